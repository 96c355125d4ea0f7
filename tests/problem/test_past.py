"""Past keys: the first tokens are in a cache, and only those after them have queries."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from attn_exp import run
from attn_exp.experiment.row import Comparison
from tests.compose import comparison
from tests.refusal import refusal

RANDOM = ("embeddings=random", "embeddings.tokens=7", "embeddings.d_model=8")
FORMS = "variant=[looped,matrix,multi_head,blockwise,torch_sdpa,onnxruntime,decode,linear,linear_recurrent]"
RULES = (
    ("mask=causal",),
    ("mask=causal", "position=rope"),
    ("mask=causal", "position=sinusoidal", "kv_head=1"),
    ("mask=causal", "position=[sinusoidal,rope]", "score=alibi"),
    ("mask=[causal,window]", "mask.window.left=2", "mask.window.right=0"),
    ("mask=[causal,document]", "mask.document.ids=[0,0,0,1,1,1,1]"),
    ("mask=[causal,padding]", "mask.padding.lengths=6"),
    ("mask=[causal,prefix]", "mask_join=or", "mask.prefix.length=5"),
    ("score=[alibi,t5]", "bias=true"),
    (),
)


def output(found: Comparison, variant: str) -> np.ndarray:
    array = found.traces[variant].output
    assert array is not None
    return array


@pytest.mark.parametrize(("rules", "past"), list(zip(RULES, itertools.cycle([1, 4, 6]), strict=False)))
def test_new_tokens_get_what_they_get_when_all_are_computed_at_once(rules: tuple[str, ...], past: int) -> None:
    """It is what a cache is for: nothing changes for the tokens that come after it.

    A prefix that is past no longer lets a query look ahead: `decode` takes it then, and gives what `matrix` does.
    """
    words = (*RANDOM, "head=2", FORMS, *rules)
    whole, later = comparison(*words), comparison(*words, f"past={past}")
    for row in later.rows:
        if not row.note:
            assert row.error_ulp <= 8 and row.checked == 7 - past, row
            tolerance = 1e-6 if row.computed_in == "float32" else 1e-13
            same = row.variant if whole.traces[row.variant].output is not None else "matrix"
            expected = output(whole, same)[past:]
            np.testing.assert_allclose(output(later, row.variant), expected, rtol=0, atol=tolerance)
    assert {row.variant for row in later.rows if row.note} <= {row.variant for row in whole.rows if row.note}


def test_pytorch_gives_the_same_with_a_mask_that_counts_the_past() -> None:
    """Without such a mask, `is_causal=True` is wrong here: it puts the first query beside the first key."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
    found = run(*RANDOM, "past=4", "mask=causal", variant=["matrix"], head=1)
    trace = found.comparison.traces["matrix"]
    q, k, v = (torch.tensor(array) for array in (trace.q, trace.k, trace.v))
    seen = torch.ones(3, 7, dtype=torch.bool).tril(diagonal=4)
    attend = torch.nn.functional.scaled_dot_product_attention
    np.testing.assert_allclose(
        attend(q, k, v, attn_mask=seen)[0].numpy(), found.array("matrix", "output"), rtol=0, atol=1e-14
    )
    wrong = run(*RANDOM, "past=4", "mask=causal", "convention=torch_sdpa", variant=["matrix"], head=1)
    theirs = attend(q, k, v, is_causal=True)[0].numpy()
    np.testing.assert_allclose(wrong.array("matrix", "output"), theirs, rtol=0, atol=1e-14)
    assert np.abs(theirs - found.array("matrix", "output")).max() > 0.1


@pytest.mark.long
def test_queries_that_are_given_may_be_the_new_ones_or_all() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((5, 4)) for _ in range(3))
    words = ("mask=causal", "variant=[matrix,decode]", "head=1", "past=3")
    every, new = run(*words, q=q, k=k, v=v), run(*words, q=q[3:], k=k, v=v)
    named = run(*words, q=q[3:], k=k, v=v, tokens=["d", "e"]).comparison.problem
    np.testing.assert_array_equal(every.array("matrix", "output"), new.array("matrix", "output"))
    np.testing.assert_allclose(new.array("decode", "output"), new.array("matrix", "output"), atol=1e-15)
    assert named.tokens == ("d", "e") and named.key_tokens == ("past0", "past1", "past2", "d", "e")
    seen = torch.ones(2, 5, dtype=torch.bool).tril(diagonal=3)
    given = [torch.tensor(array)[None] for array in (q[3:], k, v)]
    expected = torch.nn.functional.scaled_dot_product_attention(given[0], given[1], given[2], attn_mask=seen)
    np.testing.assert_allclose(new.array("matrix", "output"), expected[0].numpy(), rtol=0, atol=1e-14)


def test_given_weights_may_have_a_past() -> None:
    weights = [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]
    v = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    found = run(weights=weights, v=v, past=2, variant=["matrix"], head=1)
    np.testing.assert_allclose(found.array("matrix", "output"), [[0.7, 0.8]], atol=1e-15)


WRONG = {
    "past=-1": "past=-1: expected a whole number of at least 0",
    "past=3": "past=3: the input has 3 tokens, and one must be new; choose at most 2",
    "past=1 embeddings.memory=3": "past=1 and embeddings.memory",
    "past=1 embeddings=inline projections=none embeddings.q=[[1]] embeddings.k=[[1],[2],[3]]": "expected 2, one for",
    "past=1 embeddings=random embeddings.tokens=1": "past=1: the input has 1 token, and one must be new; leave",
    "past=5 embeddings=inline projections=none embeddings.q=[[1]] embeddings.k=[[1],[2],[3]]": "expected more than 5",
}


@pytest.mark.parametrize("words", WRONG)
def test_what_does_not_fit_is_told_in_one_line(words: str) -> None:
    assert WRONG[words] in refusal(comparison, *words.split())
