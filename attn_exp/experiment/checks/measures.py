"""The metrics that `metrics=` asks for, of every variant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from attn_exp import forms
from attn_exp.config.schema import Config
from attn_exp.errors import UserError, unknown
from attn_exp.experiment.checks.precision import as_plain
from attn_exp.experiment.gradients import gradient
from attn_exp.experiment.metrics import divergences, measures, metrics
from attn_exp.experiment.rounding import rounded
from attn_exp.experiment.sameness import answer
from attn_exp.experiment.variant import Settled, execute
from attn_exp.forms.trace import Trace
from attn_exp.problem.problem import Problem
from attn_exp.rules.grid import Array
from attn_exp.rules.picture import places

COLUMNS = {"variant": "variant", "metric": "metric", "value": "value", "unit": "unit"}


@dataclass(frozen=True)
class Record:
    """One metric of one variant: NaN where the variant lacks the stage that it measures."""

    variant: str
    metric: str
    value: float
    unit: str


@dataclass(frozen=True)
class Subject:
    """What metrics look at: a variant's trace, the first row's, and the exact one, in `longdouble`."""

    settled: Settled
    trace: Trace
    first: Trace
    exact: Trace

    def allowed(self) -> Array:
        """Return which places may attend, `[h t s]`."""
        q, k = stage(self.trace, "q"), stage(self.trace, "k")
        return places(self.settled.rules.masks, q.shape[1], k.shape[1], self.offset, len(q))

    @property
    def offset(self) -> int:
        """The position of the first query among the keys."""
        return int(self.settled.rules.offset)


class NotFormedError(Exception):
    """The variant lacks what a metric measures."""


def stage(trace: Trace, name: str) -> Array:
    array: Array | None = getattr(trace, name)
    if array is None:
        raise NotFormedError
    return array


def weights(subject: Subject) -> Array:
    return stage(subject.trace, "weights")


def logits(subject: Subject) -> Array:
    masked = stage(subject.trace, "masked")
    return masked[np.isfinite(masked)]


def queries_and_keys(subject: Subject) -> tuple[Array, Array]:
    return stage(subject.trace, "q"), stage(subject.trace, "k")


def ends(subject: Subject) -> tuple[Array, Array]:
    """Return the answer and the exact one."""
    return answer(subject.trace), answer(subject.exact)


def ulp(answer: Array, exact: Array, kind: np.dtype[np.generic]) -> int:
    """Return how far they are apart in units in the last place of the type that the answer was computed in."""
    return metrics.ulp_distance(answer.astype(kind), exact)


def distributions(subject: Subject) -> tuple[Array, Array]:
    """Return the weights of the first row and of this one, where both have as many heads."""
    first = stage(subject.first, "weights")
    if first.shape != weights(subject).shape:
        raise NotFormedError
    return first, weights(subject)


def outputs(subject: Subject) -> tuple[Array, Array]:
    mine, first = answer(subject.trace), answer(subject.first)
    if mine.shape != first.shape or mine.ndim != 2:
        raise NotFormedError
    return mine, first


def gradient_norm(which: int) -> Callable[[Subject], float]:
    """Return the norm of a gradient of `|context|^2 / 2`, by the formula that `check=invariants` tests."""

    def norm(subject: Subject) -> float:
        rules = subject.settled.rules
        if forms.reference(subject.settled.form) != "logits" or rules.normalizer == "sparsemax":
            raise NotFormedError
        q, k, v, context = (stage(subject.trace, name) for name in ("q", "k", "v", "context"))
        return float(np.linalg.norm(gradient(q, k, v, rules, context)[which]))

    return norm


def lse(subject: Subject) -> Array:
    """Return the log-sum-exp of each row that sees anything, as the form has it or from its masked logits."""
    trace = subject.trace
    found = measures.log_sum_exp(stage(trace, "masked")) if trace.lse is None else trace.lse
    return found[np.isfinite(found)]


def lse_error(subject: Subject) -> float:
    exact = measures.log_sum_exp(stage(subject.exact, "masked"))
    return metrics.largest_error(lse(subject), exact[np.isfinite(exact)])


METRICS: dict[str, tuple[str, Callable[[Subject], float]]] = {
    "max_error": ("", lambda subject: metrics.largest_error(*ends(subject))),
    "mean_error": ("", lambda subject: divergences.mean_error(*ends(subject))),
    "rms_error": ("", lambda subject: divergences.rms_error(*ends(subject))),
    "relative_rms": ("", lambda subject: divergences.relative_rms(*ends(subject))),
    "close": ("1 = yes", lambda subject: divergences.close(*ends(subject), subject.settled.computed_in.name)),
    "ulp": ("ulp", lambda subject: ulp(*ends(subject), subject.settled.computed_in)),
    "row_sum_error": ("", lambda subject: metrics.row_sum_error(weights(subject))),
    "entropy": ("nats", lambda subject: metrics.entropy(weights(subject)).mean()),
    "normalized_entropy": (
        "of ln n",
        lambda subject: measures.normalized_entropy(weights(subject), subject.allowed()).mean(),
    ),
    "effective_keys": ("keys", lambda subject: metrics.effective_keys(weights(subject)).mean()),
    "participation": ("keys", lambda subject: measures.participation(weights(subject)).mean()),
    "largest_weight": ("", lambda subject: metrics.largest_weight(weights(subject)).mean()),
    "saturation_90": ("of rows", lambda subject: measures.saturation(weights(subject), 0.9)),
    "saturation_99": ("of rows", lambda subject: measures.saturation(weights(subject), 0.99)),
    "kl": ("nats, to row 1", lambda subject: divergences.kl(*distributions(subject)).mean()),
    "js": ("nats, to row 1", lambda subject: divergences.js(*distributions(subject)).mean()),
    "total_variation": ("to row 1", lambda subject: divergences.total_variation(*distributions(subject)).mean()),
    "cosine_mean": ("to row 1", lambda subject: divergences.row_cosine(*outputs(subject)).mean()),
    "cosine_least": ("to row 1", lambda subject: divergences.row_cosine(*outputs(subject)).min()),
    "sink": ("weight of key 1", lambda subject: measures.sink(weights(subject)).mean()),
    "sink_rate": ("of heads", lambda subject: measures.sink_rate(weights(subject))),
    "effective_rank": ("", lambda subject: measures.effective_rank(weights(subject)).mean()),
    "stable_rank": ("", lambda subject: measures.stable_rank(weights(subject)).mean()),
    "rank_collapse": ("", lambda subject: measures.rank_collapse(stage(subject.trace, "output"))),
    "distance": ("tokens", lambda subject: measures.distance(weights(subject), subject.offset).mean()),
    "looks_back": ("", lambda subject: measures.looks_back(weights(subject), subject.offset).mean()),
    "on_itself": ("", lambda subject: measures.at_distance(weights(subject), 0, subject.offset)),
    "on_previous": ("", lambda subject: measures.at_distance(weights(subject), -1, subject.offset)),
    "head_divergence": ("nats", lambda subject: divergences.head_divergence(weights(subject))),
    "sparsity": ("of weights < 1e-3", lambda subject: measures.sparsity(weights(subject))),
    "gini": ("", lambda subject: measures.gini(weights(subject)).mean()),
    "hoyer": ("", lambda subject: measures.hoyer(weights(subject)).mean()),
    "keys_for_90": ("keys", lambda subject: measures.keys_for(weights(subject)).mean()),
    "logit_min": ("", lambda subject: logits(subject).min()),
    "logit_max": ("", lambda subject: logits(subject).max()),
    "logit_std": ("", lambda subject: logits(subject).std()),
    "score_variance": ("", lambda subject: stage(subject.trace, "scores").var()),
    "expected_variance": ("", lambda subject: measures.expected_variance(*queries_and_keys(subject))),
    "mask_density": ("of places", lambda subject: subject.allowed().mean()),
    "empty_blocks": ("of 16 x 16", lambda subject: measures.block_emptiness(np.asarray(subject.allowed().any(axis=0)))),
    "jacobian_norm": ("", lambda subject: measures.jacobian_norm(weights(subject)).mean()),
    "gradient_q": ("norm", gradient_norm(0)),
    "gradient_k": ("norm", gradient_norm(1)),
    "gradient_v": ("norm", gradient_norm(2)),
    "log_sum_exp": ("", lambda subject: lse(subject).mean()),
    "log_sum_exp_error": ("", lse_error),
}


def chosen(config: Config) -> tuple[str, ...]:
    """Return the metrics that a configuration asks for; `all` is every one.

    Raises:
        UserError: a metric that does not exist.
    """
    for name in config.metrics:
        if name not in ("all", *METRICS):
            raise UserError(unknown(name, ("all", *METRICS), "metrics"))
    return tuple(METRICS) if "all" in config.metrics else config.metrics


def run(config: Config, problem: Problem, variants: Sequence[Settled]) -> Iterator[Record]:
    """Measure every variant."""
    names = chosen(config) or tuple(METRICS)  # `check=measures` alone
    exact_problem = rounded(problem, np.dtype(np.longdouble))
    first = execute(variants[0], problem)
    for settled in variants:
        subject = Subject(settled, execute(settled, problem), first, execute(as_plain(settled), exact_problem))
        for name in names:
            unit, measure = METRICS[name]
            yield Record(settled.name, name, value(measure, subject), unit)


def value(measure: Callable[[Subject], float], subject: Subject) -> float:
    """Return what a metric says, or NaN where the variant lacks the stage."""
    try:
        return float(measure(subject))
    except NotFormedError:
        return float("nan")


def sentence(records: Sequence[Record]) -> str:
    """Say how many metrics are shown."""
    count = len({each.metric for each in records})
    return f"{count} metric{'s' if count != 1 else ''}; what each means: attn_exp/experiment/metrics/."
