"""How each metric spreads over the seeds of each combination, in percentiles: means hide what is far out."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from attn_exp.experiment.row import titled
from attn_exp.report import words
from attn_exp.report.numbers import brief
from attn_exp.report.papers import Table, deep_places
from attn_exp.sweeps.answers.cube import Cube
from attn_exp.sweeps.answers.effects import FEW

SHARES = (5, 25, 50, 75, 95)
"""Percentiles that a table shows; between two numbers they are interpolated (Hyndman & Fan 1996, type 7)."""


def percentiles_table(cube: Cube | None) -> Table:
    """Return a line for each combination, variant and metric that differs over the seeds, of which there are enough."""
    pairs = () if cube is None or len(cube.seeds) < FEW else tuple(lines_of(cube))
    names = () if cube is None else cube.names
    head = (*names, words.VARIANT_HEAD, words.METRIC, words.SEEDS, *(f"{share}%" for share in SHARES))
    lines, deep = tuple(line for _, line in pairs), deep_places(metric for metric, _ in pairs)
    return Table("percentiles", words.PERCENTILES_OVER_SEEDS, head, lines, deep)


def lines_of(cube: Cube) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the lines, each after its metric, in the order of the points."""
    for places in product(*(range(len(levels)) for levels in cube.levels)):
        labels = tuple(levels[place] for levels, place in zip(cube.levels, places, strict=True))
        for variant, label in enumerate(cube.variants):
            for metric, numbers in cube.numbers.items():
                seeds = numbers[..., variant][places]
                seeds = seeds[np.isfinite(seeds)]
                if len(seeds) >= FEW and np.ptp(seeds) > 0:
                    shown = map(brief, map(float, np.percentile(seeds, SHARES)))
                    yield metric, (*labels, label, titled(metric), f"{len(seeds)}", *shown)
