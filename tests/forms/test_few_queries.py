"""Few queries over many keys, as in decoding: heads that share keys are joined, and keys are cut into blockwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.arrays import Array
from attn_exp.forms import blockwise, matrix
from attn_exp.forms._blocks import plain, tasks
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.padding import Padding
from attn_exp.rules.masks.window import Window
from attn_exp.rules.rules import Rules
from attn_exp.rules.scores.alibi import Alibi
from attn_exp.rules.scores.sink import Sink
from attn_exp.rules.scores.softcap import Softcap
from attn_exp.rules.scores.t5 import T5

BATCHES, HEADS, KEYS = 2, 6, 203

ALLOWED = np.random.default_rng(7).random((BATCHES, HEADS, 1, KEYS)) < 0.2

RULES = {
    "nothing": Rules(0.4),
    "past": Rules(0.4, (Causal(),), offset=KEYS - 3),
    "lengths": Rules(0.4, (Causal(), Padding((KEYS, 20))), offset=np.array([KEYS - 3, 17])),
    "window": Rules(0.4, (Causal(), Window(90, 0)), offset=KEYS - 3),
    "heads differ": Rules(0.4, (Allowed(ALLOWED),), (Alibi(), T5()), offset=KEYS - 3),
    "bent": Rules(0.4, (Causal(),), (Softcap(2.0), Alibi(), Sink((0.3, -1.0, 2.0, 0.0, 1.0, 5.0))), offset=KEYS - 3),
    "nobody": Rules(0.4, (Allowed(np.zeros((1, 1), bool)),)),
    "the last keys alone": Rules(0.4, (Allowed(np.arange(KEYS)[None] > KEYS - 9),)),
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of few keys, runs of fewer, and nothing done at once."""
    for module, name, value in (
        (blockwise, "LEAST_KEYS_PER_PIECE", 24),
        (tasks, "KEYS", 16),
        (tasks, "TILE_LOGITS", 512),
        (tasks, "SLIVER", 3),
        (plain, "ONE_THREAD_PRODUCT", 0),
    ):
        monkeypatch.setattr(module, name, value)


def problem(groups: int, rows: int, spread: float = 1.0, size: int = 5) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(groups + rows)
    q = rng.normal(size=(BATCHES, HEADS, rows, 3)) * spread
    return q, rng.normal(size=(BATCHES, groups, KEYS, 3)), rng.normal(size=(BATCHES, groups, KEYS, size))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("spread", [1.0, 3000.0], ids=["bounded", "unbounded"])
def test_equal_to_the_matrix(name: str, groups: int, rows: int, spread: float) -> None:
    q, k, v = problem(groups, rows, spread)
    expected = matrix.attend(q, k, v, RULES[name])
    for count in (1, 2, 7):
        found = blockwise.attend(q, k, v, RULES[name], threads=count)
        assert found.context is not None and expected.context is not None
        np.testing.assert_allclose(found.context, expected.context, rtol=1e-11, atol=1e-12)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("spread", [1.0, 3000.0], ids=["bounded", "unbounded"])
@pytest.mark.parametrize("name", ["nothing", "past", "heads differ", "nobody", "the last keys alone"])
def test_the_log_sum_exp_is_that_of_all_keys(name: str, spread: float) -> None:
    q, k, v = problem(2, 3, spread)
    masked = matrix.attend(q, k, v, RULES[name]).masked
    assert masked is not None
    expected = np.logaddexp.reduce(masked, axis=-1)
    for values in (v, None):
        trace: Any = blockwise.attend(q, k, values, RULES[name])
        np.testing.assert_allclose(trace.lse, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("rows", [1, 3])
def test_the_number_of_threads_changes_no_bit(rows: int) -> None:
    q, k, v = problem(1, rows)
    answers: list[Any] = [blockwise.attend(q[:1], k[:1], v[:1], Rules(0.4), threads=count) for count in (1, 2, 7)]
    for other in answers[1:]:
        np.testing.assert_array_equal(other.context, answers[0].context)
        np.testing.assert_array_equal(other.lse, answers[0].lse)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spread", [0.0, 3000.0], ids=["bounded", "unbounded"])
def test_an_answer_is_finite_where_a_sum_of_pieces_is_not(dtype: Any, spread: float) -> None:
    q, k, _ = (array.astype(dtype) for array in problem(2, 1, spread))
    v = np.full((BATCHES, 2, KEYS, 5), np.finfo(dtype).max, dtype)
    found = attn_exp.attention(q, k, v, form="blockwise")
    np.testing.assert_allclose(found, np.finfo(dtype).max, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", [(32, 8, 1, 64), (6, 2, 3, 90), (4, 1, 20, 29), (2, 1, 25, 25)], ids=str)
def test_shared_heads_of_few_tokens_are_done_at_once(dtype: str, sizes: tuple[int, int, int, int]) -> None:
    heads, groups, rows, keys = sizes
    rng = np.random.default_rng(heads)
    q = rng.standard_normal((2, heads, rows, 8)).astype(dtype)
    k, v = (rng.standard_normal((2, groups, keys, size)).astype(dtype) for size in (8, 3))
    found = attn_exp.attention(q, k, v)
    expected = attn_exp.attention(q, k, v, form="matrix")
    np.testing.assert_allclose(found, expected, rtol=1e-4 if dtype == "float32" else 1e-12, atol=1e-6)
