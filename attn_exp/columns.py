"""The columns of the comparison in readers' words: their heads, units and meanings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from attn_exp.compare import Comparison, Row
from attn_exp.terminal import shown
from attn_exp.timing import Timing


@dataclass(frozen=True)
class Head:
    """The head of one column."""

    name: str
    unit: str = ""
    help: str = ""


HEADS = {
    "same_as": Head("same as", "", "variants with the same letter compute the same function, to rounding"),
    "multiplier": Head("multiplier", "", "what the scores are multiplied by"),
    "output_projection": Head("W_o", "", "whether the heads are mixed by the output projection"),
    "error": Head("error", "", "largest difference from the variant's own reference: is it right?"),
    "error_ulp": Head("error", "ulp", "the same in units in the last place of the largest number"),
    "checked": Head("checked", "queries", "how many queries the reference checked"),
    "shift": Head("shift", "", "largest difference from the first row: what did it change?"),
    "cosine": Head("cosine", "", "cosine of the angle to the first row's output"),
    "entropy": Head("entropy", "nats", "mean entropy of the weights: 0 where one key takes all"),
    "effective_keys": Head(
        "effective keys", "", "over how many keys, equally weighted, a query would spread as widely"
    ),
    "largest_weight": Head("largest weight", "", "mean over queries"),
    "row_sum_error": Head("row sum", "error", "how far a row of weights is from summing to 1"),
    "flops": Head("work", "FLOPs", "multiplications and additions of both matrix products"),
    "median_s": Head("time", "µs", "median on this machine"),
    "peak_bytes": Head("peak", "bytes", "the most memory held at once"),
}


def constant(name: str, rows: Sequence[Row]) -> bool:
    """Say whether a column says nothing: a setting that no row has."""
    return name in ("bias", "mistake") and {getattr(row, name) for row in rows} <= {False, "none"}


def heads(comparison: Comparison) -> list[Head]:
    """Return the heads of the columns of a comparison, timings last."""
    names = [*row_columns(comparison.rows), "median_s", "peak_bytes"]
    return [HEADS.get(name, Head(name.replace("_", " "))) for name in names]


def lines(comparison: Comparison, timings: Sequence[Timing]) -> list[list[str]]:
    """Return the cells of a comparison in the order of `heads`."""
    costs = {each.variant: each for each in timings}
    return [
        [*(shown(getattr(row, name)) for name in row_columns(comparison.rows)), *cost(costs.get(row.variant))]
        for row in comparison.rows
    ]


def row_columns(rows: Sequence[Row]) -> list[str]:
    return [each.name for each in fields(Row) if not constant(each.name, rows)]


def cost(timing: Timing | None) -> list[str]:
    if timing is None:
        return ["", ""]
    return [f"{1e6 * timing.median_s:.3g}", "" if timing.peak_bytes is None else str(timing.peak_bytes)]
