"""The columns of the comparison in readers' words: their heads, units and meanings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from attn_exp.experiment.comparison import Comparison
from attn_exp.experiment.row import Row
from attn_exp.experiment.timing import Timing
from attn_exp.report.terminal import shown


@dataclass(frozen=True)
class Head:
    """The head of one column; one that stands `aside` is told only to who asks for more."""

    name: str
    unit: str = ""
    help: str = ""
    aside: bool = False


HEADS = {
    "variant": Head("variant"),
    "same_as": Head("same as", "", "variants with the same letter compute the same function, to rounding"),
    "form": Head("form", "", "how it is computed", aside=True),
    "head": Head("heads", "", "query heads"),
    "kv_head": Head("key/value heads", "", "heads that the queries share"),
    "scale": Head("scale", "", "whether the scores are divided by sqrt(d), or the number they are multiplied by"),
    "multiplier": Head("multiplier", "", "what the scores are multiplied by", aside=True),
    "bias": Head("bias", "", "biases of the projections"),
    "output_projection": Head("W_o", "", "whether the heads are mixed by the output projection", aside=True),
    "error": Head("error", "", "largest difference from the variant's own reference: is it right?"),
    "error_ulp": Head("error", "ulp", "the same, in units in the last place of the largest number", aside=True),
    "computed_in": Head("computed in", "", "the type of numbers that the form works in: its ulp are this type's"),
    "sameness": Head("sameness", "", "how near the output is to the first row's"),
    "parts_at": Head("parts at", "", "the first stage that differs from the first row's"),
    "shift": Head("shift", "", "largest difference from the first row: what did it change?"),
    "cosine": Head("cosine", "", "cosine of the angle to the first row's output"),
    "entropy": Head("entropy", "nats", "mean entropy of the weights: 0 where one key takes all"),
    "effective_keys": Head(
        "effective keys", "", "over how many keys, equally weighted, it would spread as widely", aside=True
    ),
    "largest_weight": Head("largest weight", "", "mean over heads and queries"),
    "median_s": Head("time", "µs", "median on this machine"),
    "peak_bytes": Head("peak", "bytes", "the most memory held at once", aside=True),
    "checked": Head("queries checked", "", "how many queries the reference checked", aside=True),
    "row_sum_error": Head("row-sum error", "", "how far a row of weights is from summing to 1", aside=True),
    "flops": Head("work", "FLOPs", "multiplications and additions of both matrix products", aside=True),
}
"""Columns in the order in which they are read; a field that is not here comes after its neighbour in `Row`."""

ALWAYS = ("variant", "same_as", "error", "shift", "entropy", "largest_weight")


@dataclass(frozen=True)
class Table:
    """The comparison as text: heads, a line per variant, and what all variants share."""

    head: tuple[Head, ...]
    lines: tuple[tuple[str, ...], ...]
    shared: tuple[tuple[str, str], ...]

    def part(self, aside: bool) -> Table:
        """Return the columns that stand aside, or the others, after the variants' names."""
        places = [place for place, head in enumerate(self.head) if place == 0 or head.aside == aside]
        lines = tuple(tuple(line[place] for place in places) for line in self.lines)
        return Table(tuple(self.head[place] for place in places), lines, self.shared)


def table(comparison: Comparison, timings: Sequence[Timing]) -> Table:
    """Return the comparison with the columns that tell variants apart, and beside it what is the same for all."""
    costs = {each.variant: cost(each) for each in timings}
    values = [
        {each.name: shown(getattr(row, each.name)) for each in fields(Row)} | costs.get(row.variant, {})
        for row in comparison.rows
    ]
    names = sorted(values[0], key=place)
    told_apart = [name for name in names if name in ALWAYS or len({each.get(name, "") for each in values}) > 1]
    told_apart = [
        name for name in told_apart if name != "kv_head" or any(each[name] != each["head"] for each in values)
    ]
    shared = [name for name in names if name not in (*told_apart, "kv_head") and values[0][name] not in ("", "none")]
    return Table(
        tuple(head(name) for name in told_apart),
        tuple(tuple(each.get(name, "") for name in told_apart) for each in values),
        tuple((" ".join(filter(None, (head(name).name, head(name).unit))), values[0][name]) for name in shared),
    )


def place(name: str) -> int:
    """Return where a column stands: as in `HEADS`; settings that are not there before the results."""
    order: dict[str, int] = {each: position for position, each in enumerate(HEADS)}
    return order.get(name, len(HEADS) if name == "note" else order["error"])


def head(name: str) -> Head:
    return HEADS.get(name, Head(name.replace("_", " ")))


def cost(timing: Timing) -> dict[str, Any]:
    peak = "" if timing.peak_bytes is None else str(timing.peak_bytes)
    micro = 1e6 * timing.median_s
    return {"median_s": f"{micro:.0f}" if micro >= 100 else f"{micro:.3g}", "peak_bytes": peak}
