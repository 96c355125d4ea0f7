"""Layers that are written from a seed, each with a mistake or none: what is true of them is known, and is said."""

from __future__ import annotations

from pathlib import Path

import pytest

import attn_exp
from attn_exp.diagnosis.matrices.named_matrices import sounds_like
from tools.layers.__main__ import kinds, made

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")

LIBRARIES = {"torch": "torch", "flax": "flax", "haiku": "haiku", "equinox": "equinox", "keras": "keras", "jax": "jax"}
FIRST, COUNT = 3000, 6
NOT_YET = {
    ("other_libraries", 3001): "a function that makes layers of haiku in each call is not called",
    ("other_libraries", 3002): "a function of parameters, query, key and value is not called",
    ("more_modules", 3004): "the pairing of rotary positions is not read off beside norms and a gate",
}
"""What the check does not tell yet, and why."""
CASES = [(kind, seed) for seed in range(FIRST, FIRST + COUNT) for kind in kinds()]


@pytest.mark.parametrize("case", CASES)
def test_what_is_true_of_a_written_layer_is_said(case: tuple[str, int], tmp_path: Path) -> None:
    if case in NOT_YET:
        pytest.xfail(NOT_YET[case])
    written, true = made(*case)
    if written.framework in LIBRARIES:
        pytest.importorskip(LIBRARIES[written.framework])
    if "einops" in written.source:
        pytest.importorskip("einops")
    path = tmp_path / "layer.py"
    path.write_text(written.source, encoding="utf-8")
    verdict = attn_exp.check(f"{path}:{written.name}", *written.words.split())
    if true:  # a mask that is inverted may be a convention, which is said beside it
        (name,) = verdict.mistakes or next(iter(verdict.alike), ())
        assert name in true.split("|"), verdict
    else:
        assert verdict.passed or verdict.right_under


@pytest.mark.parametrize(
    "name",
    [
        "WQ",
        "w_qs",
        "toqueries",
        "query_layer",
        "heads_q.weight",
        "qw",
        "query_transform.0.weight",
        "query_all.weight",
        "query_conv2d/kernel",
    ],
)
def test_names_of_matrices_say_what_they_make(name: str) -> None:
    assert sounds_like(name) == "q"


@pytest.mark.parametrize("name", ["q_norm", "qkv", "query_embedding", "unique", "q_a_proj", "rel_k_emb"])
def test_other_names_say_nothing(name: str) -> None:
    assert not sounds_like(name)
