"""A setting that holds the processor below what it can do is told in words, in `run.json` and in the report."""

from __future__ import annotations

import os
from typing import Any

import pytest

from attn_exp import pins, provenance, report

AVX512 = ("fma", "avx", "avx2", "avx512f", "avx512bw")


@pytest.mark.parametrize(
    ("environment", "flags", "told"),
    [
        ({"OPENBLAS_CORETYPE": "Haswell"}, AVX512, ["holds OpenBLAS to AVX2, and this processor has AVX-512"]),
        ({"OPENBLAS_CORETYPE": "Nehalem"}, ("avx", "avx2"), ["holds OpenBLAS to SSE, and this processor has AVX2"]),
        ({"OPENBLAS_CORETYPE": "SkylakeX"}, AVX512, []),
        ({"OPENBLAS_CORETYPE": "Haswell"}, ("avx", "avx2"), []),
        ({"OPENBLAS_CORETYPE": "Haswell"}, (), []),
        ({"OPENBLAS_CORETYPE": "ARMV8"}, AVX512, []),
        ({}, AVX512, []),
        (
            {"MKL_ENABLE_INSTRUCTIONS": "AVX2", "ATEN_CPU_CAPABILITY": "default"},
            AVX512,
            ["holds MKL to AVX2", "holds PyTorch to SSE"],
        ),
    ],
)
def test_a_pin_below_the_processor_is_told(environment: Any, flags: Any, told: list[str]) -> None:
    found = list(pins.pins(environment, flags))
    assert len(found) == len(told)
    assert all(words in sentence for words, sentence in zip(told, found, strict=True))


def test_a_run_records_it_and_the_report_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")
    monkeypatch.setattr(pins, "cpu_flags", lambda: frozenset(AVX512))
    about = provenance.provenance()
    words = "OPENBLAS_CORETYPE=Prescott holds OpenBLAS to SSE, and this processor has AVX-512"
    assert [each.partition(":")[0] for each in about["pins"]] == [words]
    assert ("held back", about["pins"][0]) in list(report.origin(about))
    assert os.environ["OPENBLAS_CORETYPE"] == "Prescott"
