"""A setting that holds the processor below what it can do is told in words, in `run.json` and in the report."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from typing import Any

import pytest

from attn_exp.report.sentences import origin as told
from attn_exp.runs import provenance

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
        ({"ATEN_CPU_CAPABILITY": "AVX2"}, AVX512, []),
    ],
)
def test_a_pin_below_the_processor_is_told(environment: Any, flags: Any, told: list[str]) -> None:
    found = list(provenance.pins(environment, flags))
    assert len(found) == len(told)
    assert all(words in sentence for words, sentence in zip(told, found, strict=True))


def test_a_run_records_it_and_the_report_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")
    monkeypatch.setattr(provenance, "cpu_flags", lambda: frozenset(AVX512))
    about = provenance.provenance()
    words = "OPENBLAS_CORETYPE=Prescott holds OpenBLAS to SSE, and this processor has AVX-512"
    assert [each.partition(":")[0] for each in about["pins"]] == [words]
    assert ("held back", about["pins"][0]) in list(told(about))
    assert os.environ["OPENBLAS_CORETYPE"] == "Prescott"


KERNELS = {"katmai": 0, "prescott": 0, "nehalem": 0, "sandybridge": 1, "haswell": 2, "zen": 2, "skylakex": 3}
"""The level of each kernel that OpenBLAS names; where NumPy's build lacks one, it takes an older one."""


@pytest.mark.long
@pytest.mark.skipif(platform.machine() != "x86_64" or sys.platform != "linux", reason="the words are for x86 and Linux")
@pytest.mark.parametrize("word", ["penryn", "barcelona", "sandybridge", "excavator", "haswell", "zen", "skylakex"])
def test_openblas_obeys_its_words(word: str) -> None:
    able = max(level for flag, level in provenance.FLAGS.items() if flag in provenance.cpu_flags())
    program = "import numpy, threadpoolctl; print(threadpoolctl.threadpool_info()[0]['architecture'])"
    environment = os.environ | {"OPENBLAS_CORETYPE": word}
    told = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    level = provenance.PINS["OPENBLAS_CORETYPE"][1][word]
    obeyed = KERNELS[told.stdout.strip().lower()]
    assert obeyed in {level, min(level, able)}  # a word above the processor is believed by some builds, not by others
