"""Few queries over many keys, as in decoding: heads that share keys are joined, and keys are cut into pieces."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.arrays import Array
from attn_exp.experiment.compare import compare
from attn_exp.forms import blockwise, matrix
from attn_exp.forms._blocks import block, pieces, plain, tasks, threads
from attn_exp.forms._blocks.block import Sums
from attn_exp.forms._operator import functional
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.padding import Padding
from attn_exp.rules.masks.window import Window
from attn_exp.rules.rules import Rules
from attn_exp.rules.scores.alibi import Alibi
from attn_exp.rules.scores.sink import Sink
from attn_exp.rules.scores.softcap import Softcap
from attn_exp.rules.scores.t5 import T5
from tests.compose import config

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
        (pieces, "LONG", 24),
        (tasks, "KEYS", 16),
        (tasks, "PLACES", 512),
        (tasks, "SLIVER", 3),
        (plain, "UNHELD", 0),
    ):
        monkeypatch.setattr(module, name, value)


def problem(groups: int, rows: int, spread: float = 1.0, size: int = 5) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(groups + rows)
    q = rng.normal(size=(BATCHES, HEADS, rows, 3)) * spread
    return q, rng.normal(size=(BATCHES, groups, KEYS, 3)), rng.normal(size=(BATCHES, groups, KEYS, size))


def solved(q: Array, k: Array, v: Array, rules: Rules) -> Array:
    context = blockwise.attend(q, k, v, rules, threads=2).context
    assert context is not None
    return context


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


@pytest.mark.usefixtures("small")
def test_a_strange_value_stays_where_nobody_looks() -> None:
    q, k, v = problem(2, 1)
    rules, expected = RULES["past"], solved(*problem(2, 1), RULES["past"])
    k[:, :, KEYS - 2 :], v[:, :, KEYS - 2 :] = np.nan, np.inf
    np.testing.assert_allclose(solved(q, k, v, rules), expected, rtol=1e-11)


def looked_at(monkeypatch: pytest.MonkeyPatch, q: Array, k: Array, v: Array, rules: Rules) -> list[tuple[int, int]]:
    """Return which keys each job of a call looked at."""
    seen: list[tuple[int, int]] = []
    cut = block.cut

    @functools.wraps(cut)
    def noted(*operands: Any) -> Any:
        part = cut(*operands)
        seen.append((part.span.some_start, part.span.some_stop))
        return part

    monkeypatch.setattr(block, "cut", noted)
    blockwise.attend(q, k, v, rules, threads=2)
    return sorted(seen)


@pytest.mark.parametrize(
    ("heads", "rows", "rules", "count"),
    [
        (1, 1, Rules(), 8),
        (1, 64, Rules(), 8),
        (1, 65, Rules(), None),
        (4, 1, Rules(), 4),
        (16, 1, Rules(), None),
        (1, 1, Rules(masks=(Causal(),), offset=(1 << 15) - 1), 4),
        (1, 1, Rules(masks=(Causal(), Window(999, 0)), offset=(1 << 15) - 1), None),
    ],
)
def test_keys_are_shared_out_where_few_queries_have_many(
    heads: int, rows: int, rules: Rules, count: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to 16 pieces of heads and keys, of at least 8,192 keys and values each."""
    q, k = np.ones((1, heads, rows, 2), np.float32), np.ones((1, heads, 1 << 16, 2), np.float32)
    seen = sorted(set(looked_at(monkeypatch, q, k, k, rules)))
    assert len(seen) == (count or 1) or rows == 65
    if count:
        starts, stops = zip(*seen, strict=True)
        assert starts[1:] == stops[:-1]
        assert len({stop - start for start, stop in seen}) == 1


def test_one_query_of_one_head_goes_to_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k = np.ones((1, 1, 1, 16), np.float32), np.ones((1, 1, 1 << 15, 16), np.float32)
    monkeypatch.setattr("attn_exp.forms._blocks.threads.default_threads", lambda: 2)
    monkeypatch.setattr(blockwise, "default_threads", lambda: 2)
    used: list[int] = []
    together = threads.together

    def noted(work: Any, jobs: Any, count: int) -> None:
        used.append(min(count, len(jobs)))
        together(work, jobs, count)

    monkeypatch.setattr(blockwise, "together", noted)
    np.testing.assert_allclose(attn_exp.attention(q, k, k), 1, rtol=1e-4)
    assert used == [2]


@pytest.mark.parametrize("anchors", [(None, None), (None, 3.0), (-700.0, 3.0), (-np.inf, 3.0), (-np.inf, -np.inf)])
def test_parts_are_merged_by_what_they_are_worth(anchors: tuple[float | None, float | None]) -> None:
    """Two parts of one row, worth `exp(anchor)` each; without an anchor that is 1."""
    parts = [
        Sums(np.full((1, 1, 1, 1, 2), sums), np.full((1, 1, 1, 1), total), anchor and np.full((1, 1, 1, 1), anchor))
        for sums, total, anchor in ((5.0, 2.0, anchors[0]), (7.0, 4.0, anchors[1]))
    ]
    merged = pieces.merged(parts)
    first, second = (np.exp(0.0 if anchor is None else anchor) for anchor in anchors)
    share = np.exp(0.0 if merged.anchor is None else merged.anchor)
    np.testing.assert_allclose(merged.total * share, 2 * first + 4 * second, rtol=1e-13)
    np.testing.assert_allclose(merged.context * share[..., None], 5 * first + 7 * second, rtol=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", [(32, 8, 1, 64), (6, 2, 3, 90), (4, 1, 20, 29), (2, 1, 25, 25)], ids=str)
def test_shared_heads_of_few_tokens_are_done_at_once(dtype: str, sizes: tuple[int, int, int, int]) -> None:
    heads, groups, rows, keys = sizes
    rng = np.random.default_rng(heads)
    q = rng.standard_normal((2, heads, rows, 8)).astype(dtype)
    k, v = (rng.standard_normal((2, groups, keys, size)).astype(dtype) for size in (8, 3))
    found = plain.at_once(q, k, v, None)
    assert found is not None and found.shape == (2, heads, rows, 3)
    expected = attn_exp.attention(q, k, v, form="matrix")
    np.testing.assert_allclose(found, expected, rtol=1e-4 if dtype == "float32" else 1e-12, atol=1e-6)
    assert plain.at_once(q[:, :, :, ::2], k, v, None) is None
    assert plain.at_once(q, k, v, None, is_causal=True) is None
    assert plain.at_once(q, k, v[:, :, 1:], None) is None
    assert plain.at_once(q[:, :0], k, v, None) is None
    assert plain.at_once(np.concatenate([q, q[:, :1]], axis=1), k, v, None) is None or groups == 1
    assert plain.at_once(q[:1, :, :, :1], k[:1, :, :, :1], v[:1], None) is None  # too few to be worth it


def test_a_document_that_goes_on_late_is_refused() -> None:
    words = ("embeddings=random", "embeddings.tokens=5", "mask=document", "mask.document.ids=[0,1,2,3,3]")
    decoded = compare(config(*words, "variant=[matrix,decode]")).rows[1]
    assert decoded.note == "decoding has no later keys to look at; use mask=causal"
    assert np.isnan(decoded.error)


def test_the_second_entry_of_a_batch_is_asked_too() -> None:
    q, k, v = (np.random.default_rng(seed).standard_normal((2, 1, 2, 3)) for seed in range(3))
    with pytest.raises(ValueError, match="decoding has no later keys"):
        functional.attention(q, k, v, nonpad_kv_seqlen=np.array([0, 2]), form="decode")
    causal = [
        functional.attention(q, k, v, nonpad_kv_seqlen=np.array([0, 2]), is_causal=True, form=form)
        for form in ("decode", "looped")
    ]
    np.testing.assert_allclose(causal[0], causal[1], atol=1e-15)
