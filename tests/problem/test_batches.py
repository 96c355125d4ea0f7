"""Batches: their sequences never meet, so a sweep over them, one point each, is what a library computes at once."""

from __future__ import annotations

import numpy as np
import pytest

from attn_exp import run
from attn_exp.errors import UserError
from tests.compose import config

TEXTS = {"she likes hot coffee": 4, "the cat sat [PAD]": 3}


@pytest.mark.parametrize("form", ["looped", "matrix", "blockwise", "torch_sdpa", "onnxruntime"])
def test_each_sequence_of_a_padded_batch_is_a_run(form: str) -> None:
    """PyTorch computes both at once, `[b h t d]`, with the filling hidden as a key."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
    if form == "onnxruntime":
        pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: pip install 'attn-exp[onnxruntime]'")
    kind = f"++variant.own.form={form}"
    words = ("embeddings=words", "mask=padding", "head=2", "variant=[multi_head]", kind.replace("own", "multi_head"))
    runs = [
        run(*words, f"mask.padding.lengths={length}", **{"embeddings.text": text}) for text, length in TEXTS.items()
    ]
    q, k, v = (torch.tensor(np.stack([each.array("multi_head", side) for each in runs])) for side in "qkv")
    seen = torch.tensor([[[[key < length for key in range(4)]]] for length in TEXTS.values()])
    context = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen).numpy()
    tolerance = 1e-6 if form == "onnxruntime" else 1e-13
    for entry, single in zip(context, runs, strict=True):
        np.testing.assert_allclose(single.array("multi_head", "context"), entry, rtol=0, atol=tolerance)
        assert single.comparison.rows[0].checked == 4
    assert [each.comparison.problem.tokens[-1] for each in runs] == ["coffee", "[PAD]"]


@pytest.mark.parametrize("start", ["", "embeddings."])
@pytest.mark.parametrize("name", ["batch", "batch_size"])
def test_who_asks_for_a_batch_is_told_what_to_write(start: str, name: str) -> None:
    with pytest.raises(UserError, match="did you mean a sweep with one point per sequence: -m embeddings=words"):
        config(f"{start}{name}=2")


def test_arrays_of_a_batch_and_several_lengths_are_told_so_too() -> None:
    with pytest.raises(UserError, match="a run takes one sequence of a batch, and -m runs several"):
        run(vectors=np.zeros((2, 3, 4)))
    with pytest.raises(UserError, match="2 lengths, but a run has one sequence; give one number, or sweep over them"):
        run("mask=padding", "mask.padding.lengths=[2,3]")
