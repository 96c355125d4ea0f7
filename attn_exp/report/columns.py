"""The comparison as a table: the columns that tell variants apart, and beside it what is the same for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from markupsafe import Markup

from attn_exp.experiment.column import Column, columns
from attn_exp.experiment.comparison import Comparison
from attn_exp.experiment.row import Row
from attn_exp.experiment.timing import Timing
from attn_exp.report.numbers import brief, kinds, minus

COLUMNS = columns(Row, Timing)
"""The columns of the comparison, in the order in which they are read."""


class Shared(NamedTuple):
    """What is the same for all variants: its column and its value."""

    column: Column
    value: str


class Table(NamedTuple):
    """The comparison as text: heads, a line per variant, and what all variants share."""

    head: tuple[Column, ...]
    lines: tuple[tuple[str, ...], ...]
    shared: tuple[Shared, ...]

    def part(self, aside: bool) -> Table:
        """Return the columns that stand aside, or the others, after the variants' names."""
        return self.chosen([place for place, head in enumerate(self.head) if place == 0 or head.aside == aside])

    @property
    def kinds(self) -> list[str]:
        """What each column holds, and whether it is left out for a reader, in the words that the style sheet knows."""
        return [f"{kind} deep" if head.deep else kind for kind, head in zip(kinds(self.lines), self.head, strict=True)]

    def at_depth(self, depth: str) -> Table:
        """Return what a reader of this depth is shown."""
        if depth == "all":
            return self
        table = self.chosen([place for place, head in enumerate(self.head) if not head.deep])
        return table._replace(shared=tuple(shared for shared in self.shared if not shared.column.deep))

    def chosen(self, places: Sequence[int]) -> Table:
        """Return some of the columns."""
        lines = tuple(tuple(line[place] for place in places) for line in self.lines)
        return Table(tuple(self.head[place] for place in places), lines, self.shared)


def mark(column: Column) -> Markup:
    """Return how the script of a page knows a column that other numbers of the input may change."""
    return Markup() if column.fixed else Markup(' data-column="{}"').format(column.key)


def shared(table: Table) -> Markup:
    """Return what is the same for all variants, as a list in words, with marks where other numbers may change it."""
    pattern, plain = Markup("{} <span{}>{}</span>"), Markup("{} {}")
    return Markup(", ").join(
        plain.format(column.words, minus(value))
        if column.fixed
        else pattern.format(column.words, mark(column), minus(value))
        for column, value in table.shared
    )


def heads(table: Table) -> str:
    """Return the heads of a table but that of the variants, as a list in words."""
    return ", ".join(head.title for head in table.head[1:])


def table(comparison: Comparison, timings: Sequence[Timing]) -> Table:
    """Return the comparison with the columns that tell variants apart, and beside it what is the same for all."""
    unit, factor = unit_of(timings)
    costs = {timing.variant: cost(timing, factor) for timing in timings}
    described = COLUMNS | {"median_s": COLUMNS["median_s"].measured_in(unit)}
    values = [
        {field.name: brief(getattr(row, field.name)) for field in fields(Row)} | costs.get(row.variant, {})
        for row in comparison.rows
    ]
    known = [name for name in COLUMNS if name in values[0]]
    apart = [
        name for name in known if "page" in described[name].shown or len({line.get(name, "") for line in values}) > 1
    ]
    apart = [name for name in apart if name != "kv_head" or any(line[name] != line["head"] for line in values)]
    shared = [name for name in known if name not in (*apart, "kv_head") and values[0][name] not in ("", "none")]
    return Table(
        tuple(described[name] for name in apart),
        tuple(tuple(line.get(name, "") for name in apart) for line in values),
        tuple(Shared(described[name], values[0][name]) for name in shared),
    )


UNITS = (("s", 1.0), ("ms", 1e3), ("µs", 1e6))
"""The units of time, with how many of them are a second."""


def unit_of(timings: Sequence[Timing]) -> tuple[str, float]:
    """Return the largest unit in which the longest time is at least 1, and how many of them are a second."""
    longest = max((timing.median_s for timing in timings), default=0.0)
    return next((unit for unit in UNITS if longest * unit[1] >= 1), UNITS[-1])


def cost(timing: Timing, factor: float) -> dict[str, Any]:
    peak = "" if timing.peak_bytes is None else str(timing.peak_bytes)
    time = factor * timing.median_s
    return {"median_s": f"{time:.0f}" if time >= 100 else f"{time:.3g}", "peak_bytes": peak}
