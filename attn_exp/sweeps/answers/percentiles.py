"""How each metric spreads over the seeds of each combination, in percentiles: means hide what is far out."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from attn_exp.report.numbers import brief
from attn_exp.report.papers import Table
from attn_exp.sweeps.answers.cube import Cube
from attn_exp.sweeps.answers.effects import FEW
from attn_exp.sweeps.answers.sentences import name, unit

SHARES = (5, 25, 50, 75, 95)
"""Percentiles that a table shows; between two numbers they are interpolated (Hyndman & Fan 1996, type 7)."""


def percentiles_table(cube: Cube | None) -> Table:
    """Return a line for each combination, variant and metric that differs over the seeds, of which there are enough."""
    lines = () if cube is None or len(cube.seeds) < FEW else tuple(lines_of(cube))
    names = () if cube is None else cube.names
    caption = "Percentiles over the seeds, of every combination and metric that differs over them."
    return Table("percentiles", caption, (*names, "variant", "metric", "seeds", *(f"{s}%" for s in SHARES)), lines)


def lines_of(cube: Cube) -> Iterator[tuple[str, ...]]:
    """Yield the lines, in the order of the points."""
    for places in product(*(range(len(levels)) for levels in cube.levels)):
        labels = tuple(levels[place] for levels, place in zip(cube.levels, places, strict=True))
        for variant, label in enumerate(cube.variants):
            for metric, numbers in cube.numbers.items():
                seeds = numbers[..., variant][places]
                seeds = seeds[np.isfinite(seeds)]
                if len(seeds) >= FEW and np.ptp(seeds) > 0:
                    titled = f"{name(metric)} ({unit(metric).strip()})" if unit(metric) else name(metric)
                    shown = map(brief, map(float, np.percentile(seeds, SHARES)))
                    yield (*labels, label, titled, f"{len(seeds)}", *shown)
