"""Conventions that depend on the type of a layer, or on the order of its steps, in every way to compute them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from attn_exp.diagnosis.in_child import checked
from attn_exp.experiment.compare import tabulate
from tests.compose import comparison, config

BLIND = (
    "embeddings=inline", "projections=none", "embeddings.vectors=null", "scale=false", "head=1", "embeddings.q=[[1]]",
    "embeddings.v=[[1,0,0],[0,1,0],[0,0,1]]", "mask=padding", "mask.padding.keys=[false,false,false]",
)  # fmt: skip

SMALL, LARGE, LOW = "[[1],[9],[-20]]", "[[2],[31],[-39]]", "[[-16],[-17],[-40]]"
THIRD = [1 / 3, 1 / 3, 1 / 3]

EMPTY = [
    ("jax", SMALL, THIRD),  # as jax.nn.dot_product_attention: the mean over the 3 keys, for its 1 query
    ("keras_attention", SMALL, THIRD),  # in float32 1e9 less 1, 9 or -20 is the same number
    ("keras_attention", LARGE, [0.5, 0.5, 0.0]),  # numbers lie 64 apart: 2 and 31 become 0, -39 becomes -64
    ("keras_attention_float16", SMALL, [0.5, 0.5, 0.0]),  # and 32 apart; below -65520 is -inf
    ("keras_attention_float16", LARGE, [0.0, 1.0, 0.0]),
    ("keras_attention_float16", LOW, [math.nan] * 3),
    ("keras_attention_float64", SMALL, np.exp([-8, 0, -29]) / np.exp([-8, 0, -29]).sum()),
]


@pytest.mark.parametrize(("convention", "keys", "weights"), EMPTY)
def test_what_is_left_of_masked_scores_is_what_the_type_of_the_layer_holds(
    convention: str, keys: str, weights: list[float]
) -> None:
    words = (*BLIND, f"embeddings.k={keys}", f"convention={convention}")
    compared = comparison(*words, "variant=[looped,matrix,blockwise]")
    for row in compared.rows:
        np.testing.assert_allclose(np.asarray(compared.traces[row.variant].output), [weights], atol=2e-6)
        assert row.error < 2e-6 or math.isnan(weights[0])
    wrong = comparison(*words, "variant=[matrix]", "mistake=no_scale")  # nothing is scaled, so nothing is wrong
    np.testing.assert_allclose(np.asarray(wrong.traces["matrix"].output), [weights], atol=2e-6)


def test_rows_without_keys_are_rounded_to_the_type_of_the_run() -> None:
    words = (*BLIND, f"embeddings.k={SMALL}", "convention=keras_attention_float64", "variant=[matrix]")
    assert tabulate(config(*words), dtype="bfloat16").traces["matrix"].weights.max() == 1  # type: ignore[union-attr] # e^-8 is lost


LATE = """
import numpy as np

def attention(q, k, v, mask=None, softcap=0.0):
    logits = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    logits = logits if mask is None else np.where(mask, logits, -np.inf)
    logits = softcap * np.tanh(logits / softcap) if softcap else logits
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True) @ v

def in_turns(q, k, v):
    return attention(q, *(np.tile(side, (1, q.shape[1] // side.shape[1], 1, 1)) for side in (k, v)))
"""


@pytest.mark.long
def test_a_check_holds_a_function_to_the_order_of_steps_of_its_convention(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(LATE)
    late, cap = f"{tmp_path}/late.py:attention", ("score=softcap", "score.softcap.cap=2")
    assert checked([late, *cap, "convention=onnx_old", "--quick"])[1] == 0
    said, code = checked([late, *cap, "convention=onnx", "--quick"])
    assert "softcap_after_mask" in said and code == 1
    turns = f"{tmp_path}/late.py:in_turns"
    assert checked([turns, "head=4", "kv_head=2", "convention=onnx_old", "--quick"])[1] == 0
    assert "kv_heads_tiled" in checked([turns, "head=4", "kv_head=2", "convention=onnx", "--quick"])[0]


RANDOM = ("embeddings=random", "embeddings.tokens=4", "embeddings.d_model=8", "head=4", "kv_head=2", "mask=causal")


TOLD = ("true_means", "align", "empty", "softmax", "caps", "groups")


@pytest.mark.parametrize(
    "words",
    [("past=2", "mask=causal"), ("past=2", "mask=causal", "align=bottom_right"), ("mask=[causal,padding]",
     "mask.padding.lengths=2", "embeddings=random", "embeddings.tokens=4", "past=1")],
    ids=" ".join,
)  # fmt: skip
def test_conventions_that_are_told_alike_give_the_same_numbers(words: tuple[str, ...]) -> None:
    """Two rows of the table whose columns are equal have one letter; what a letter depends on is among the columns."""
    records = comparison(*words, "variant=[matrix,looped]", "check=conventions").checks[0].records
    letters: dict[tuple[str, ...], set[str]] = {}
    for each in records:
        letters.setdefault((each.variant, *(getattr(each, name) for name in TOLD)), set()).add(each.same_as)
    assert all(len(same) == 1 for same in letters.values()), letters
    where = {each.convention: each.align for each in records}
    assert where["onnx"] == ("bottom_right" if "align=bottom_right" in words else "after_past")
    assert where["torch_sdpa"] == ("bottom_right" if "align=bottom_right" in words else "top_left")
    assert where["flash"] == ("before_filler" if "mask.padding.lengths=2" in words else "bottom_right")
