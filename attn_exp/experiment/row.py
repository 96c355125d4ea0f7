"""The result of a run as plain data: its rows and what their columns mean, distances, steps, and the comparison."""

# Without `from __future__ import annotations`: `get_type_hints` would have to compile every annotation again.

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

if TYPE_CHECKING:
    from attn_exp.config.schema import Config
    from attn_exp.experiment.checks.check import Finding
    from attn_exp.experiment.variant import Settled
    from attn_exp.experiment.verdict import Verdict
    from attn_exp.forms.trace import Trace
    from attn_exp.problem.problem import Problem


class Column(NamedTuple):
    """How tables show one field of a record; declared with the field: `error: Annotated[float, Column(...)]`.

    `place`: the position among the columns, from the left.
    `unit`, `meaning`: for the legend of a report.
    `shown`: the tables that always show it, of `page`, `terminal`, `paper` and `sweep`; a page shows others on request.
    `summed`: whether a sweep aggregates it over its points.
    `deep`: whether `report.depth=reading` leaves it out, because students do not need it.
    `exact`: whether it is itself an error, so that two digits suffice.
    `drawn`: its priority among the plots of a sweep: 1 is the first, 0 means never drawn.
    `fixed`: whether it depends only on the settings, not on the numbers of the input.
    `key`: the unique name of the field; set by `read_columns`.
    `name`: the column header in a report, which `read_columns` derives from the key; terminals and files show the key.
    """

    place: int
    unit: str = ""
    meaning: str = ""
    shown: tuple[str, ...] = ()
    summed: bool = False
    exact: bool = False
    deep: bool = False
    drawn: int = 0
    fixed: bool = False
    key: str = ""
    name: str = ""

    @property
    def small(self) -> str:
        """The unit, shown in small letters after the name; empty if the name ends with it."""
        return "" if self.name.split(" ")[-1] == self.unit else self.unit

    @property
    def title(self) -> str:
        """The name, with its unit in parentheses unless the name ends with it."""
        return f"{self.name} ({self.small})" if self.small else self.name


READABLE_NAMES = {
    "saturation_90": "share of rows with a weight above 0.90",
    "saturation_99": "share of rows with a weight above 0.99",
    "close": "share of close answers",
    "ulp": "error in ulp",
    "participation": "participation ratio",
    "kl": "KL divergence",
    "js": "JS divergence",
    "cosine_mean": "mean cosine",
    "cosine_least": "least cosine",
    "looks_back": "attention to earlier keys",
    "on_itself": "attention to itself",
    "on_previous": "attention to the previous token",
    "on_delimiters": "attention to delimiters",
    "induction": "induction score",
    "gini": "Gini index",
    "hoyer": "Hoyer sparsity",
    "keys_for_90": "number of keys with 90% of the weight",
    "logit_min": "smallest logit",
    "logit_max": "largest logit",
    "logit_std": "standard deviation of the logits",
    "empty_blocks": "share of empty blocks",
    "gradient_q": "norm of the query gradient",
    "gradient_k": "norm of the key gradient",
    "gradient_v": "norm of the value gradient",
    "log_sum_exp": "log-sum-exp",
    "log_sum_exp_error": "error of the log-sum-exp",
}
"""Noun phrases for metrics whose names cannot be used in a sentence."""


def readable_name(name: str) -> str:
    return READABLE_NAMES.get(name) or name.strip("_").replace("_", " ")


def read_columns(*schemas: type) -> dict[str, Column]:
    hints = [pair for schema in schemas for pair in get_type_hints(schema, include_extras=True).items()]
    found = {
        name: extra._replace(key=name, name=readable_name(name))
        for name, hint in hints
        for extra in getattr(hint, "__metadata__", ())
        if isinstance(extra, Column)
    }
    return dict(sorted(found.items(), key=lambda pair: pair[1].place))


EVERYWHERE = ("page", "terminal", "paper")

fixed = partial(Column, fixed=True)


@dataclass(frozen=True)
class Row:
    """The results of one variant; each column declares its meaning.

    `error` and `error_ulp` are measured over `checked` queries. Numbers about stages that the form does not compute are
    NaN. If the form refuses the rules, all numbers are NaN, `same_as` is empty, and `note` gives the reason.
    """

    variant: Annotated[str, fixed(10, shown=EVERYWHERE)]
    form: Annotated[str, fixed(30, meaning="how it is computed")]
    head: Annotated[int, fixed(40, meaning="query heads", shown=("terminal", "paper"))]
    scale: Annotated[
        bool | float,
        fixed(
            60,
            meaning="whether the scores are divided by sqrt(d), or the number that they are multiplied by",
            shown=("terminal", "paper"),
        ),
    ]
    multiplier: Annotated[float, fixed(70, meaning="the number that the scores are multiplied by")]
    bias: Annotated[bool, fixed(80, meaning="whether the projections add biases")]
    output_projection: Annotated[bool, fixed(90, meaning="whether the heads are mixed by the output projection W_o")]
    mistake: Annotated[str, fixed(95)]
    same_as: Annotated[
        str,
        Column(
            20,
            meaning="variants with the same letter compute the same function, up to rounding",
            shown=EVERYWHERE,
        ),
    ]
    error: Annotated[
        float,
        Column(
            100,
            meaning="largest difference from the reference, which shows whether the variant is right",
            shown=EVERYWHERE,
            summed=True,
            exact=True,
        ),
    ]
    error_ulp: Annotated[
        float,
        Column(
            110,
            unit="ulp",
            meaning="the error in units in the last place of the largest number",
            shown=("terminal", "sweep"),
            summed=True,
            deep=True,
            drawn=6,
        ),
    ]
    checked: Annotated[int, fixed(230, meaning="how many queries the reference checked")]
    max_diff: Annotated[
        float,
        Column(
            150,
            meaning="largest difference from the baseline row's output",
            shown=(*EVERYWHERE, "sweep"),
            summed=True,
            drawn=3,
        ),
    ]
    cosine: Annotated[
        float,
        Column(
            160,
            meaning="cosine of the angle to the baseline row's output",
            shown=("terminal", "paper", "sweep"),
            summed=True,
            drawn=4,
        ),
    ]
    entropy: Annotated[
        float,
        Column(
            170,
            unit="nats",
            meaning="mean entropy of the weights, in nats (natural logarithm): 0 if one key has all the weight",
            shown=(*EVERYWHERE, "sweep"),
            summed=True,
            drawn=1,
        ),
    ]
    effective_keys: Annotated[
        float,
        Column(
            180,
            meaning="number of equally weighted keys with the same entropy",
            shown=("terminal", "paper", "sweep"),
            summed=True,
            drawn=5,
        ),
    ]
    largest_weight: Annotated[
        float,
        Column(
            190,
            meaning="the largest weight of a row, averaged over heads and queries",
            shown=(*EVERYWHERE, "sweep"),
            summed=True,
            drawn=2,
        ),
    ]
    row_sum_error: Annotated[
        float,
        Column(
            240,
            meaning="largest deviation of a row of weights from summing to 1",
            summed=True,
            deep=True,
            exact=True,
        ),
    ]
    flops: Annotated[
        int,
        fixed(250, meaning="multiplications and additions of both matrix products", deep=True),
    ]
    kv_head: Annotated[int, fixed(50, meaning="key/value heads, which the query heads share")] = 0
    mask: Annotated[str, fixed(101)] = "none"
    score: Annotated[str, fixed(102)] = "none"
    position: Annotated[str, fixed(103)] = "none"
    normalizer: Annotated[str, fixed(104)] = "softmax"
    convention: Annotated[str, fixed(105)] = "none"
    queries: Annotated[
        str,
        fixed(200, meaning="the queries over which weights are averaged: those that see a key", deep=True),
    ] = "all"
    sameness: Annotated[
        str,
        Column(130, meaning="how close the output is to that of the baseline row (the first, or against=)", deep=True),
    ] = ""
    differs_at: Annotated[
        str, Column(140, meaning="the first stage that differs from the baseline row's", deep=True)
    ] = ""
    note: Annotated[str, fixed(260)] = ""
    computed_in: Annotated[
        str,
        fixed(
            120,
            meaning="the dtype that the form computes in; errors in ulp are in units of this dtype",
            shown=("terminal",),
            deep=True,
        ),
    ] = "float64"


COLUMNS = read_columns(Row)


def is_deep(metric: str) -> bool:
    """Return whether `report.depth=reading` leaves a metric out; metrics that are not columns of `Row` always stay."""
    return metric in COLUMNS and COLUMNS[metric].deep


def column_title(name: str) -> str:
    return COLUMNS[name].title if name in COLUMNS else readable_name(name)


@dataclass(frozen=True)
class Timing:
    """The cost of one variant on this machine: seconds per computation, and peak bytes if they were measured."""

    variant: str
    median_s: Annotated[float, Column(200, unit="s", meaning="median time of one computation on this machine")]
    minimum_s: float
    runs: Annotated[int, Column(205, meaning="how many computations the median is taken over")]
    peak_bytes: Annotated[int | None, Column(210, unit="bytes", meaning="peak memory", deep=True)]


@dataclass(frozen=True)
class Distance:
    """How much the outputs of two variants differ.

    `difference`, `cosine`: the largest absolute difference, and the cosine of the angle between the outputs.
    `sameness`: how close the outputs are, in words; the coarser of their dtypes decides what is rounding.
    `differs_at`: the first stage that differs beyond rounding, if the outputs do; otherwise the first stage that is not
        bit-identical.
    """

    variant: str
    other: str
    difference: float
    cosine: float
    sameness: str = ""
    differs_at: str = ""


@dataclass(frozen=True)
class Step:
    """One step of a ladder, which leads from one row to another; each step changes one setting of the variant before.

    `variant`, `against`: the row at which the ladder ends, and the row at which it starts.
    `step`: the number of this step, counted from 1.
    `setting`, `before`, `after`: the setting, and its values before and after the step. If there is no variant in
        between, several settings change together: they are joined by ` + `, and `note` gives the reason.
    `change`: the change in words.
    `moved`: the largest absolute difference between the outputs before and after the step; NaN if their shapes differ.
    `total`: the largest absolute difference between the output of `against` and the output after the step; NaN if their
        shapes differ. The values of `moved` do not add up to it.
    `sameness`: how close the outputs before and after the step are, in words.
    `least`, `most`: the range of `moved` over the `orders` that were tried; NaN if only one order was tried.
    `row`: the row that the variant after the step equals; empty if it equals none.
    """

    variant: str
    against: str
    step: int
    setting: str
    before: str
    after: str
    change: str
    moved: float
    total: float
    sameness: str
    least: float = math.nan
    most: float = math.nan
    orders: str = ""
    row: str = ""
    note: str = ""


@dataclass(frozen=True)
class Agreement:
    """The comparison of a printed quantity with the computed one.

    `computed`: the computed numbers in the format of the printed ones; if their counts differ, both counts in words.
    `largest_difference`, `tolerance`: the difference and the tolerance of the number whose difference is largest
        relative to its tolerance; NaN if the counts differ.
    `agrees`: whether every number is within its tolerance.
    """

    quantity: str
    printed: str
    computed: str
    largest_difference: float
    tolerance: float
    agrees: bool
    note: str


@dataclass(frozen=True)
class Comparison:
    """The complete result of one run: plain data that renderers read without computing anything.

    `steps`: the changes that lead from the baseline row to each other row, one setting at a time; none in a sweep.
    `rungs`: the weights and the output after each step that does not end at a row, if they are small; the key is the
        name of the variant and the number of the step.
    `verdicts`: the verdict on each of the user's own functions, by variant.
    `seconds`: the time that each variant took; empty for a run that was read from disk.
    """

    config: "Config"
    problem: "Problem"
    variants: "tuple[Settled, ...]"
    rows: tuple[Row, ...]
    distances: tuple[Distance, ...]
    traces: "Mapping[str, Trace]"
    published: tuple[Agreement, ...]
    checks: "tuple[Finding, ...]" = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    verdicts: "Mapping[str, Verdict]" = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    rungs: "Mapping[tuple[str, int], Trace]" = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """A run as it is saved.

    `timings`: the cost of each variant.
    `about`: the contents of `run.json`: how to repeat the run, and its provenance.
    """

    comparison: Comparison
    timings: tuple[Timing, ...]
    about: Mapping[str, Any]


def find_settled(comparison: Comparison, variant: str) -> "Settled":
    return next(settled for settled in comparison.variants if settled.name == variant)
