"""The block-wise form: equal to an independent formula whatever the blocks, threads, rules, and logits."""

from __future__ import annotations

import functools
import math
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from attn_exp import rules as all_rules
from attn_exp.arrays import Array
from attn_exp.forms import blockwise, matrix
from attn_exp.forms._blocks import block, operands, tasks
from attn_exp.forms._blocks import threads as holding
from attn_exp.rules.grid import Grid
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.document import Document
from attn_exp.rules.masks.mask import Mask
from attn_exp.rules.masks.padding import Padding
from attn_exp.rules.masks.window import Window
from attn_exp.rules.normalizers.normalizer import Normalizer
from attn_exp.rules.rules import Rules
from attn_exp.rules.scores.alibi import Alibi
from attn_exp.rules.scores.score import Score
from attn_exp.rules.scores.sink import Sink
from attn_exp.rules.scores.softcap import Softcap
from attn_exp.rules.scores.t5 import T5


def problem(seed: int, *shape: int, spread: float = 1.0) -> tuple[Array, Array, Array]:
    """q, k, v of `batches, heads, groups, rows, keys, size, value size`."""
    rng = np.random.default_rng(seed)
    b, h, g, t, s, d, e = shape
    return rng.normal(size=(b, h, t, d)) * spread, rng.normal(size=(b, g, s, d)), rng.normal(size=(b, g, s, e))


def formula(q: Array, k: Array, v: Array, scale: float, allowed: Any = True, added: Any = 0.0) -> tuple[Array, Array]:
    """Softmax attention in float64 by einsum, and its log-sum-exp."""
    share = q.shape[1] // k.shape[1]
    index = np.arange(q.shape[1]) // share
    logits = np.einsum("bhtd,bhsd->bhts", q.astype(float), k.astype(float)[:, index]) * scale + added
    logits = np.where(allowed, logits, -np.inf)
    top = np.maximum(logits.max(axis=-1, keepdims=True, initial=-1e300), -1e300)
    powers = np.exp(logits - top)
    total = powers.sum(-1)
    with np.errstate(divide="ignore"):
        lse = np.log(total) + top[..., 0]
    context = np.einsum("bhts,bhse->bhte", powers, v.astype(float)[:, index]) / np.maximum(total, 1e-300)[..., None]
    return context, lse


def places(rows: int, keys: int) -> tuple[Array, Array]:
    return np.arange(rows)[:, None], np.arange(keys)[None, :]


BLOCK = 16
SHAPES = [
    (1, 1, 1, 1, 1, 3, 2),
    (2, 6, 3, 37, 53, 5, 7),
    (3, 4, 1, BLOCK - 1, BLOCK + 1, 2, 3),
    (1, 2, 2, BLOCK, BLOCK, 7, 5),
    (1, 3, 3, BLOCK + 1, BLOCK - 1, 4, 1),
    (1, 2, 1, 2 * BLOCK + 1, 1, 4, 3),
]


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of 16 keys, so that small problems have many."""
    monkeypatch.setattr(tasks, "KEYS", BLOCK)
    monkeypatch.setattr(tasks, "TILE_LOGITS", BLOCK * BLOCK * 2)
    monkeypatch.setattr(tasks, "SLIVER", 3)
    monkeypatch.setattr(block, "PIECE", 8)
    monkeypatch.setattr(operands, "RELATIVE_FROM", 8)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("workers", [1, 2, 7])
@pytest.mark.parametrize("spread", [1.0, 3000.0], ids=["bounded", "unbounded"])
@pytest.mark.usefixtures("small_tiles")
def test_equal_to_the_formula(shape: tuple[int, ...], workers: int, spread: float) -> None:
    q, k, v = problem(3, *shape, spread=spread)
    context, lse = formula(q, k, v, 0.4)
    for rows in (1, BLOCK - 1, BLOCK, BLOCK + 1, 300):
        trace: Any = blockwise.attend(q, k, v, Rules(scale=0.4), threads=workers, rows=rows)
        np.testing.assert_allclose(trace.context, context, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(trace.lse, lse, rtol=1e-13, atol=1e-12)


class Strided(Mask):
    """A relative mask that cannot tell which keys it leaves out, so that each block has patterns of its own."""

    relative = True

    def allows(self, grid: Grid) -> Any:
        return (grid.key - grid.query) % 3 == 0


MASKS: dict[str, tuple[Mask, Any]] = {
    "causal": (Causal(), lambda i, j: j <= i),
    "window": (Window(3, 2), lambda i, j: (j >= i - 3) & (j <= i + 2)),
    "left": (Window(5, 0), lambda i, j: (j >= i - 5) & (j <= i)),
    "document": (
        Document((0,) * 20 + (1,) * 19 + (0,) * 3),
        lambda i, j: ((i < 20) | (i > 38)) == ((j < 20) | (j > 38)),
    ),
    "strided": (Strided(), lambda i, j: (j - i) % 3 == 0),
    "array": (Allowed(np.random.default_rng(5).random((42, 42)) < 0.3), None),
    "nothing": (Allowed(np.zeros((1, 1), bool)), lambda i, j: (i + j) < 0),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("spread", [1.0, 3000.0], ids=["bounded", "unbounded"])
@pytest.mark.usefixtures("small_tiles")
def test_masks(name: str, spread: float) -> None:
    mask, allows = MASKS[name]
    q, k, v = problem(4, 2, 4, 2, 42, 42, 3, 5, spread=spread)
    allowed = allows(*places(42, 42)) if allows else mask.values  # type: ignore[attr-defined]  # the array itself
    context, lse = formula(q, k, v, 0.4, allowed)
    for workers, rows in ((1, 1), (2, 15), (2, 16), (7, 17), (1, 32)):
        trace: Any = blockwise.attend(q, k, v, Rules(scale=0.4, masks=(mask,)), threads=workers, rows=rows)
        np.testing.assert_allclose(trace.context, context, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(trace.lse, lse, rtol=1e-13, atol=1e-12)


RULES = {
    "nothing": Rules(scale=0.3),
    "everything": Rules(scale=0.3, masks=(Causal(), Padding((31, 0, 53))), scores=(Softcap(2.0), Alibi(), T5())),
    "sink": Rules(scale=0.3, masks=(Window(9, 4),), scores=(Sink((0.3, -1.0, 2.0, 0.0)),), offset=16),
    "offsets": Rules(scale=0.3, masks=(Causal(),), scores=(Alibi(),), offset=np.array([16, -4, 0])),
    "sigmoid": Rules(scale=0.3, masks=(Causal(),), normalizer=all_rules.normalizer("sigmoid")),
    "sum": Rules(scale=0.3, masks=(Causal(),), normalizer=all_rules.normalizer("sum")),
    "sparsemax": Rules(
        scale=0.3,
        masks=(Causal(),),
        scores=(Sink((0.3, -1.0, 2.0, 0.0)),),
        normalizer=all_rules.normalizer("sparsemax"),
    ),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("spread", [1.0, 3000.0], ids=["bounded", "unbounded"])
@pytest.mark.parametrize("tiles", ["small", "usual"])
def test_equal_to_the_matrix(name: str, groups: int, spread: float, tiles: str, request: pytest.FixtureRequest) -> None:
    if tiles == "small":
        request.getfixturevalue("small_tiles")
    q, k, v = problem(5, 3, 4, groups, 37, 53, 3, 5, spread=spread)
    expected: Any = matrix.attend(q, k, v, RULES[name]).context
    for workers in (1, 2, 7):
        found: Any = blockwise.attend(q, k, v, RULES[name], threads=workers).context
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("spread", [1.0, 3000.0], ids=["bounded", "unbounded"])
@pytest.mark.parametrize("logit", [-3.0, 0.0, 500.0, 2000.0])
@pytest.mark.parametrize("cells", [None, 4], ids=["plain", "summary"])
@pytest.mark.usefixtures("small_tiles")
def test_the_log_sum_exp_does_not_count_a_sink(spread: float, logit: float, cells: int | None) -> None:
    """It is that of the keys alone, so that parts merge by it, as the stages of a trace say."""
    q, k, v = problem(20, 2, 4, 2, 37, 53, 3, 5, spread=spread)
    allowed = np.tri(37, 53, dtype=bool)
    context, lse = formula(q, k, v, 0.4, allowed)
    trace: Any = blockwise.attend(q, k, v, Rules(0.4, (Causal(),), (Sink(logit),)), cells=cells)
    np.testing.assert_allclose(trace.lse, lse, rtol=1e-13, atol=1e-12)
    share = 1 / (1 + np.exp(np.minimum(logit - lse, 700)))
    np.testing.assert_allclose(trace.context, context * share[..., None], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("normalizer", [all_rules.normalizer(name) for name in all_rules.names("normalizer")])
@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
@pytest.mark.usefixtures("small_tiles")
def test_the_softmax_is_computed_in_the_type_asked_for(kind: str, normalizer: Normalizer) -> None:
    """Numbers are so large that each type rounds them to others: only the very type gives the same answer."""
    q, k, v = problem(21, 1, 4, 2, 37, 53, 3, 5, spread=40.0)
    if normalizer.signed:  # scores of both signs cancel in a sum, which is then exact in no type
        q, k = np.abs(q), np.abs(k)
    scores = (Sink(2.0),) if normalizer.takes_extra else ()
    rules = Rules(0.3, (Causal(),), scores, normalizer, softmax_dtype=kind)
    expected, found = matrix.attend(q, k, v, rules), blockwise.attend(q, k, v, rules, cells=4)
    units = max(8 * float(np.finfo(kind).eps), 1e-12)
    near = functools.partial(np.testing.assert_allclose, rtol=units, atol=units)
    near(found.context, expected.context)
    near(blockwise.complete(q, k, v, rules).weights, expected.weights)
    exact = matrix.attend(q, k, v, replace(rules, softmax_dtype=None)).context
    rounded = np.abs(np.asarray(exact) - np.asarray(found.context)).max()
    assert rounded < 1e-13 if kind == "float64" else np.finfo(kind).eps / 4 < rounded
    if normalizer.exponential:
        _, lse = formula(q, k, v, 0.3, np.tri(37, 53, dtype=bool))
        assert found.lse is not None
        near(found.lse, lse)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("spread", [1.0, 3000.0], ids=["bounded", "unbounded"])
@pytest.mark.usefixtures("small_tiles")
def test_the_summary_is_that_of_the_matrix(name: str, spread: float) -> None:
    q, k, v = problem(14, 3, 4, 2, 37, 53, 3, 5, spread=spread)
    expected = matrix.attend(q, k, v, RULES[name])
    weights = np.asarray(expected.weights)
    logs = np.log(np.where(weights > 0, weights, 1))
    for workers in (1, 7):
        trace: Any = blockwise.attend(q, k, v, RULES[name], threads=workers, cells=10)
        summary = trace.summary
        assert summary is not None and "summary" not in dict(trace.stages())
        near = functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-11)
        near(trace.context, expected.context)
        near(summary.entropy, -(weights * logs).sum(-1))
        near(summary.effective_keys, np.exp(-(weights * logs).sum(-1)))
        near(summary.largest_weight, weights.max(-1))
        near(summary.sink_mass, weights[..., 0])
        assert summary.heat.shape == (3, 4, 10, 10)
        for a, (top, bottom) in enumerate(pairwise(summary.row_edges)):
            for c, (left, right) in enumerate(pairwise(summary.key_edges)):
                near(summary.heat[..., a, c], weights[..., top:bottom, left:right].mean((-1, -2)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("side", [-1e-3, 0.0, 1e-3])
@pytest.mark.parametrize("sign", [-1, 1])
def test_logits_around_the_largest_power(dtype: Any, side: float, sign: int) -> None:
    limit = math.log(np.finfo(dtype).max) * (1 + side)
    q = np.full((1, 1, 3, 1), limit, dtype)
    k = np.array([sign, sign * 0.99, sign * 0.5, sign], dtype).reshape(1, 1, 4, 1)
    v = np.array([1.0, 2.0, 4.0, -7.0], dtype).reshape(1, 1, 4, 1)
    context, lse = formula(q, k, v, 1.0)
    trace: Any = blockwise.attend(q, k, v, Rules())
    np.testing.assert_allclose(trace.context, context, rtol=limit * 4 * np.finfo(dtype).eps)
    np.testing.assert_allclose(trace.lse, lse, rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_whose_powers_underflow_are_done_again(dtype: Any) -> None:
    q = np.full((1, 1, 5, 1), math.log(np.finfo(dtype).tiny) * 0.99, dtype)
    k, v = (np.linspace(ends[0], ends[1], 6, dtype=dtype).reshape(1, 1, 6, 1) for ends in ((1.0, 1.05), (-1, 2)))
    context, lse = formula(q, k, v, 1.0)
    trace: Any = blockwise.attend(q, k, v, Rules())
    np.testing.assert_allclose(trace.context, context, rtol=1000 * np.finfo(dtype).eps)
    np.testing.assert_allclose(trace.lse, lse, rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("cells", [None, 4], ids=["plain", "summary"])
@pytest.mark.parametrize("scores", [(), (Sink(1.0),)], ids=["softmax", "sink"])
@pytest.mark.usefixtures("small_tiles")
def test_an_answer_is_finite_where_a_sum_of_values_is_not(dtype: Any, cells: int | None, scores: Any) -> None:
    q, k, v = (array.astype(dtype) for array in problem(22, 2, 2, 1, 40, 70, 3, 4))
    large = np.clip(v, -1, 1) * np.finfo(dtype).max
    rules = Rules(0.3, (Causal(),), scores, offset=-1)
    units: Any = matrix.attend(q, k, np.clip(v, -1, 1), rules).context
    trace: Any = blockwise.attend(q, k, large, rules, cells=cells)
    near = 100 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(np.asarray(trace.context) / np.finfo(dtype).max, units, rtol=near, atol=near)
    _, lse = formula(q, k, v, 0.3, np.tri(40, 70, -1, dtype=bool))
    np.testing.assert_allclose(trace.lse, lse, rtol=near, atol=near)


def test_parts_merge_into_the_whole_by_their_log_sum_exps() -> None:
    """As in Dao et al. 2023, "Flash-Decoding for long-context inference"."""
    q, k, v = problem(12, 1, 2, 2, 13, 29, 3, 4, spread=30.0)
    whole: Any = blockwise.attend(q, k, v, Rules())
    parts = [blockwise.attend(q, k[..., cut, :], v[..., cut, :], Rules()) for cut in (slice(0, 11), slice(11, 29))]
    lse = np.logaddexp(np.asarray(parts[0].lse), np.asarray(parts[1].lse))
    shares = [np.exp(np.asarray(part.lse) - lse)[..., None] * np.asarray(part.context) for part in parts]
    np.testing.assert_allclose(sum(shares), whole.context, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(lse, whole.lse, rtol=1e-13)


@pytest.fixture
def blas() -> Iterator[ThreadpoolController]:
    controller = ThreadpoolController().select(user_api="blas")
    with controller.limit(limits=2):
        yield controller


def counts(blas: ThreadpoolController) -> set[int]:
    return {each["num_threads"] for each in blas.info()}


class Watch(Score):
    """A score rule that notes the BLAS's threads where it is asked, and fails if told to."""

    def __init__(self, blas: ThreadpoolController, fails: bool) -> None:
        self.blas, self.fails, self.seen = blas, fails, set[int]()

    def bend(self, logits: Any) -> Any:
        self.seen |= counts(self.blas)
        if self.fails:
            raise RuntimeError("on purpose")
        return logits


@pytest.mark.parametrize("workers", [1, 2, 7])
@pytest.mark.parametrize("fails", [False, True])
def test_the_blas_is_left_as_it_was(blas: ThreadpoolController, workers: int, fails: bool) -> None:
    q, k, v = problem(13, 1, 8, 8, 50, 50, 3, 4)
    watch = Watch(blas, fails)
    if fails:
        with pytest.raises(RuntimeError, match="on purpose"):
            blockwise.attend(q, k, v, Rules(scores=(watch,)), threads=workers)
    else:
        blockwise.attend(q, k, v, Rules(scores=(watch,)), threads=workers)
    assert watch.seen == {1}
    assert counts(blas) == {2}
    assert (holding.HOLDER.calls, holding.HOLDER.busy) == (0, 0)


def work(seed: int) -> float:
    q, k, v = problem(seed, 1, 4, 2, 300, 300, 8, 4)
    found = np.asarray(blockwise.attend(q, k, v, Rules(scale=0.3, masks=(Causal(),))).context)
    context, _ = formula(q, k, v, 0.3, np.tri(300, dtype=bool))
    return float(np.abs(found - context).max())


def test_from_several_threads_at_once(blas: ThreadpoolController) -> None:
    with ThreadPoolExecutor(5) as pool:
        assert max(pool.map(work, range(20))) < 1e-13
    assert counts(blas) == {2}


@pytest.mark.long
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_inside_process_pools(method: str) -> None:
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip("no such way to start a process here")
    work(0)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        assert max(pool.map(work, range(4))) < 1e-13
        assert pool.submit(holding.default_threads).result() == 1


def forked_within(blas: ThreadpoolController) -> None:
    assert counts(blas) == {2} and holding.HOLDER.calls == 0 and holding.HOLDER.busy == 0
    assert work(1) < 1e-13


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_fork_in_the_middle_of_a_call(blas: ThreadpoolController) -> None:
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("no fork here")
    with holding.one_blas_thread(2):
        child = multiprocessing.get_context("fork").Process(target=forked_within, args=(blas,))
        child.start()
        child.join(60)
        assert counts(blas) == {1}
    assert child.exitcode == 0
    assert counts(blas) == {2}
