"""Metrics, each held to a number from outside: a published table, or arithmetic by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from attn_exp import rules
from attn_exp.experiment import executing, measuring, metrics
from attn_exp.experiment.metrics import (
    errors,
    logits,
    spread,
    targets,
)
from attn_exp.forms.trace import Trace, entropy
from attn_exp.rules.rules import Rules
from tests.compose import comparison
from tools.fuzz.metrics import attempt

UDL = np.array([[[0, 0.99828149, 0.00171851], [0, 0.00585506, 0.99414494], [0.00505708, 0.00654776, 0.98839516]]])
UDL_SCALED = np.array(
    [[[3.4e-7, 0.96016197, 0.03983769], [1.56e-6, 0.0712735, 0.92872495], [0.06204187, 0.07059622, 0.86736191]]]
)
"""Weights of "Understanding Deep Learning", notebook 12.1, unscaled and scaled, a row per query."""

UNIFORM, ONE = np.full((1, 2, 4), 0.25), np.eye(4)[None, :2]


def test_entropy_of_the_udl_notebook() -> None:
    np.testing.assert_allclose(entropy(UDL)[0], [0.01265759, 0.03593554, 0.07120013], atol=6e-8)
    np.testing.assert_allclose(entropy(UDL_SCALED)[0], [0.16743336, 0.25694297, 0.4830327], atol=3e-7)
    assert spread.largest_weight(UDL).mean() == pytest.approx(0.99360720, abs=1e-8)
    assert spread.largest_weight(UDL_SCALED).mean() == pytest.approx(0.91874961, abs=1e-8)


def test_divergences_and_ranks_of_the_udl_notebook() -> None:
    np.testing.assert_allclose(errors.kl(UDL, UDL_SCALED)[0], [0.0334645, 0.05303875, 0.10086255], atol=1e-6)
    np.testing.assert_allclose(errors.total_variation(UDL, UDL_SCALED)[0], [0.0381195, 0.06542, 0.1210333], atol=1e-6)
    np.testing.assert_allclose(errors.js(UDL, UDL_SCALED)[0], [0.01100943, 0.01692665, 0.03179163], atol=1e-6)
    assert spread.effective_rank(UDL)[0] == pytest.approx(1.99196, abs=5e-6)
    assert spread.effective_rank(UDL_SCALED)[0] == pytest.approx(2.15004, abs=5e-6)


@pytest.mark.parametrize(
    ("measure", "uniform", "one_key"),
    [
        (lambda w: spread.normalized_entropy(w, np.ones_like(w, bool)), 1.0, 0.0),
        (spread.participation, 4.0, 1.0),
        (lambda w: spread.saturation(w, 0.9), 0.0, 1.0),
        (spread.stable_rank, 1.0, 2.0),
        (spread.effective_rank, 1.0, 2.0),
        (spread.gini, 0.0, 0.75),
        (spread.hoyer, 0.0, 1.0),
        (spread.count_keys_for, 4.0, 1.0),
        (spread.sparsity, 0.0, 0.75),
        (logits.jacobian_norm, 0.25, 0.0),
        (targets.sink, 0.25, 0.5),
        (targets.sink_rate, 0.0, 1.0),
        (targets.distance, 1.25, 0.0),
        (targets.looks_back, 0.125, 0.0),
        (lambda w: targets.at_distance(w, 0), 0.25, 1.0),
        (lambda w: targets.at_distance(w, -1), 0.125, 0.0),
    ],
)
def test_two_rows_that_share_among_four_keys_or_each_take_their_own(
    measure: Any, uniform: float, one_key: float
) -> None:
    assert np.mean(measure(UNIFORM)) == pytest.approx(uniform, abs=1e-12)
    assert np.mean(measure(ONE)) == pytest.approx(one_key, abs=1e-12)


def test_small_metrics_by_hand() -> None:
    row = np.array([[[0.1, 0.2, 0.3, 0.4]]])
    assert spread.gini(row) == pytest.approx(0.25)
    assert spread.count_keys_for(row, 0.7) == 2
    assert spread.count_keys_for(row, 0.71) == 3
    assert spread.count_keys_for(np.zeros((1, 1, 4))) == 0
    assert spread.block_emptiness(np.tril(np.ones((64, 64), bool))) == 6 / 16
    assert logits.jacobian_norm(np.array([[[0.5, 0.5]]])) == pytest.approx(0.5)
    assert spread.rank_collapse(np.ones((3, 2))) == 0.0
    assert spread.rank_collapse(np.array([[1.0, -1.0], [-1.0, 1.0]])) == 1.0
    half, first = np.array([0.5, 0.5]), np.array([1.0, 0.0])
    assert errors.kl(half, first) == math.inf
    heads = np.stack([first, first[::-1], first])[:, None]
    assert errors.head_divergence(heads) == pytest.approx(math.log(2) * 2 / 3)


def test_expected_variance_is_that_of_independent_numbers() -> None:
    """Two values each with variance 4 and 9 and 16 of them: 16 * 4 * 9; drawn numbers come near it."""
    q, k = np.tile([2.0, -2.0], (1, 3, 8)), np.tile([3.0, -3.0], (1, 5, 8))
    assert logits.expected_variance(q, k) == 16 * 4 * 9
    rng = np.random.default_rng(0)
    q, k = rng.normal(scale=2, size=(1, 300, 64)), rng.normal(scale=3, size=(1, 300, 64))
    assert logits.expected_variance(q, k) == pytest.approx((q @ k.swapaxes(-1, -2)).var(), rel=0.05)


def test_log_sum_exp_by_hand() -> None:
    found = logits.log_sum_exp(np.array([[[0.0, 0.0, -np.inf], [1000.0, 1000.0, 0.0], [-np.inf] * 3]]))
    np.testing.assert_allclose(found, [[math.log(2), 1000 + math.log(2), -np.inf]])


def test_errors_by_hand() -> None:
    answer, expected = np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.0, 1.0])
    assert errors.mean_error(answer, expected) == 1.0
    assert errors.rms_error(answer, expected) == pytest.approx(math.sqrt(3))
    assert errors.relative_rms(answer, expected) == pytest.approx(math.sqrt(3 / 2))
    assert not errors.passes_assert_close(answer, expected)
    assert errors.passes_assert_close(expected + 1e-6, expected, "float32")
    np.testing.assert_allclose(errors.cosines(np.eye(2), np.array([[2.0, 0.0], [1.0, 1.0]])), [1, 0.5**0.5])


def test_a_run_shows_the_metrics_that_it_is_asked_for() -> None:
    found = comparison("metrics=[kl,gini]", "scale=false", "variant=[matrix,scaled,multi_head]").checks[0]
    values = {(each.variant, each.metric): each.value for each in found.records}
    assert values["matrix", "kl"] == 0
    assert values["scaled", "kl"] > 0
    assert math.isnan(values["multi_head", "kl"])
    assert set(values) == {(name, metric) for name in ("matrix", "scaled", "multi_head") for metric in ("kl", "gini")}


def test_every_metric_is_a_number_where_every_stage_is_formed() -> None:
    words = ("embeddings=random", "embeddings.tokens=[she,likes,she,likes,'.',coffee]")  # repeated, with a full stop
    found = comparison("metrics=all", "mask=causal", "head=2", "variant=[multi_head]", *words).checks[0].records
    assert {each.metric for each in found} == set(metrics.all_metrics())
    assert [each.metric for each in found if math.isnan(each.value)] == []


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("variant=linear", "entropy"),
        ("variant=matrix embeddings=qk_transpose head=1", "cosine_least,cosine_mean,rank_collapse"),
        ("variant=matrix mask=padding mask.padding.lengths=0", "mean_error,cosine_mean,largest_weight"),
        (
            "variant=matrix mistake=no_max_subtraction projections.spread=1000",
            "stable_rank,effective_rank",
        ),
    ],
    ids=["no weights", "no values", "no keys", "no numbers"],
)
def test_a_metric_of_what_is_not_formed_is_blank(words: str, names: str) -> None:
    found = comparison(f"metrics=[{names}]", *words.split()).checks[0].records
    assert [each.metric for each in found if math.isnan(each.value)] == names.split(",")


@pytest.mark.long
def test_what_does_not_sum_to_one_has_no_entropy() -> None:
    words = ("embeddings=random", "embeddings.tokens=2000", "embeddings.d_model=4", "normalizer=sigmoid")
    row = comparison(*words, "variant=[matrix]").rows[0]
    assert math.isnan(row.entropy)
    assert math.isnan(row.effective_keys)
    assert 0 < row.largest_weight < 1
    assert all(math.isnan(row.entropy) for row in comparison("score=sink", "variant=[matrix,blockwise]").rows)
    assert not math.isnan(comparison("mask=causal", "mistake=causal_strict", "variant=[matrix]").rows[0].entropy)
    assert math.isnan(comparison("mask=padding", "mask.padding.lengths=0", "variant=[matrix]").rows[0].entropy)


@pytest.mark.parametrize(
    ("words", "queries"),
    [
        ("mask=causal", "all"),
        ("mask=causal past=1", "all but 1"),
        ("mask=causal mistake=causal_strict", "all but 1"),
        ("mask=causal mistake=causal_strict past=1", "all but 1"),
        ("mask=array mask.array.values=[[1,0,1],[0,0,0],[0,0,0]] embeddings=random embeddings.tokens=3", "all but 2-3"),
        (
            "mask=causal align=bottom_right embeddings=random embeddings.tokens=5 embeddings.memory.tokens=2",
            "all but 1-3",
        ),
    ],
)
@pytest.mark.parametrize("form", ["matrix", "blockwise"])
def test_a_row_says_which_queries_see_a_key(form: str, words: str, queries: str) -> None:
    weights = ["weights=blocks"] if form == "blockwise" else []
    rows = comparison(*words.split(), f"variant={form}", *weights).rows
    assert [row.queries for row in rows] == [queries]


def test_the_log_sum_counts_keys_alone_in_every_form() -> None:
    found = comparison("metrics=[log_sum_exp,log_sum_exp_error]", "score=sink", "mask=causal",
                       "variant=[matrix,looped,blockwise]").checks[0].records  # fmt: skip
    values = {(record.variant, record.metric): record.value for record in found}
    assert len({round(values[name, "log_sum_exp"], 12) for name in ("matrix", "looped", "blockwise")}) == 1
    assert all(values[name, "log_sum_exp_error"] < 1e-14 for name in ("matrix", "looped", "blockwise"))


@pytest.mark.long
def test_random_small_problems_break_no_metric_and_no_check() -> None:
    assert [fell for seed in range(150) if (fell := attempt(seed))] == []


def test_metrics_of_a_run_are_those_of_scipy_and_numpy() -> None:
    """The divergence is that of a variant from the first; no matrix of weights has a largest singular value of 1."""
    words = ("embeddings=random", "embeddings.tokens=5", "metrics=[kl,stable_rank]", "variant=[matrix,unscaled]")
    compared = comparison(*words, "mask=causal")
    weights = {name: np.asarray(trace.weights)[0] for name, trace in compared.traces.items()}
    values = {(each.variant, each.metric): each.value for each in compared.checks[0].records}
    rows = [stats.entropy(p, q) for p, q in zip(weights["matrix"], weights["unscaled"], strict=True)]
    back = [stats.entropy(q, p) for p, q in zip(weights["matrix"], weights["unscaled"], strict=True)]
    assert abs(np.mean(rows) - np.mean(back)) > 1e-6
    for name, matrix in weights.items():
        squared = np.linalg.norm(matrix, "fro") ** 2 / np.linalg.norm(matrix, 2) ** 2
        assert values[name, "stable_rank"] == pytest.approx(squared)
    assert values["unscaled", "kl"] == pytest.approx(np.mean(rows))
    assert spread.stable_rank(np.diag([4.0, 2.0, 2.0])[None])[0] == pytest.approx(1.5)  # 24 / 16, and 8 / 4 unsquared


def test_induction_counts_no_place_of_its_own() -> None:
    """In `a a b` the second a looks at itself, which follows the first a: that is no earlier repeat to copy from."""
    weights = np.array([[[1.0, 0, 0, 0], [0.25, 0.75, 0, 0], [0, 0, 1, 0], [0.1, 0.6, 0.2, 0.1]]])
    assert targets.induction(weights, ("a", "a", "b", "a"))[0] == pytest.approx(0.6 + 0.2)


def test_bfloat16_is_rounded_and_not_cut() -> None:
    """1 + 3/512 lies nearer to 1 + 1/128 than to 1; a tie goes to the even one."""
    kind = executing.find_type("bfloat16")
    given = np.array([1 + 3 / 512, 1 + 1 / 256, 1 + 3 / 256, -(1 + 3 / 512)])
    expected = [1 + 1 / 128, 1.0, 1 + 1 / 64, -(1 + 1 / 128)]
    np.testing.assert_array_equal(executing.cast(given, kind).astype(float), expected)


def test_means_of_bfloat16_are_not_taken_in_bfloat16() -> None:
    """1024 queries each look at one key alone; in bfloat16 their sum stops at 256."""
    weights = np.eye(1024, dtype=executing.find_type("bfloat16"))[None, None]
    found = measuring.measure_spread(Trace(weights=weights), Rules(normalizer=rules.normalizer("softmax")))
    assert (found["largest_weight"], found["entropy"], found["row_sum_error"]) == ([1.0], [0.0], [0.0])


BLIND = "mask=array mask.array.values=[[1,0,1,1],[1,1,0,1],[0,1,1,1],[0,0,0,0],[0,0,0,0]]"
SEEING = "mask=array mask.array.values=[[1,0,1,1],[1,1,0,1],[0,1,1,1]]"
OF_DISTRIBUTIONS = {
    "entropy", "normalized_entropy", "effective_keys", "participation", "saturation_90", "saturation_99", "kl", "js",
    "total_variation", "head_divergence", "on_delimiters", "distance", "looks_back", "induction",
}  # fmt: skip
OF_PLACES = {"mask_density", "empty_blocks", "score_variance", "expected_variance"}
"""What counts places or scores that no mask has touched."""


@pytest.mark.parametrize("rule", ["softmax", "sigmoid", "sparsemax", "sum", "sink", "udl", "onnx_old"])
def test_queries_that_see_no_key_are_in_no_metric_whatever_normalizes(rule: str) -> None:
    """The last two queries see nothing: without them, every metric is the same."""
    rng = np.random.default_rng(0)
    q, k, v = (np.round(np.abs(rng.normal(size=size)), 3).tolist() for size in ((5, 4), (4, 4), (4, 4)))
    kind = {"sink": "score", "udl": "convention", "onnx_old": "convention"}.get(rule, "normalizer")
    chosen = f"{kind}={rule}"

    def measured(queries: list[list[float]], mask: str) -> dict[tuple[str, str], float]:
        given = (
            f"embeddings.q={queries}",
            f"embeddings.k={k}",
            f"embeddings.v={v}",
            f"embeddings.tokens={len(queries)}",
        )
        words = (
            "embeddings=inline",
            "projections=none",
            *given,
            "variant=[multi_head,matrix,blockwise]",
            *mask.split(),
            chosen,
        )
        found = comparison(*words, "metrics=all")
        shown = {(each.variant, each.metric): each.value for each in found.checks[0].records}
        return shown | {(row.variant, "column"): row.largest_weight for row in found.rows}

    blind, seeing = measured(q, BLIND), measured(q[:3], SEEING)
    for (variant, metric), value in seeing.items():
        if metric not in OF_PLACES and not (kind == "convention" and metric.startswith("gradient")):
            assert blind[variant, metric] == pytest.approx(value, rel=1e-9, abs=1e-15, nan_ok=True), (variant, metric)
        if metric in OF_DISTRIBUTIONS and rule in ("sigmoid", "sink"):
            assert math.isnan(value), metric
    assert math.isnan(seeing["matrix", "distance"]) == (rule in ("sigmoid", "sink"))
    assert blind["matrix", "largest_weight"] == pytest.approx(blind["matrix", "column"], rel=1e-12)
