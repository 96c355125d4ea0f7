"""The patterns of every head as columns of a sweep over the layers of a model."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from attn_exp.config.read import read
from attn_exp.errors import UserError
from attn_exp.experiment.comparison import Comparison
from attn_exp.problem import left
from attn_exp.sweeps.space import Space

NAME = re.compile(r"head_(\d+)_([a-z]+)")
LAYER = "model.layer"


def column(head: int, pattern: str) -> str:
    """Return the name of a column; heads count from 1."""
    return f"head_{head}_{pattern}"


def parsed(name: str) -> tuple[int, str] | None:
    """Return the head and the pattern of a column, or None for another column."""
    match = NAME.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def columns(space: Space) -> tuple[str, ...]:
    """Return a column for each pattern of each head, where a sweep goes over the layers of a model; else none.

    A model that cannot be read has none: its points say why.
    """
    keys = [axis.key for axis in space.axes]
    config = read(space.settings(0))
    if LAYER not in keys or "head" in keys or config.model.family is None:
        return ()
    from attn_exp.experiment import patterns  # noqa: PLC0415 - few sweeps are of models

    try:
        heads = left.settled(config).head
    except UserError:
        return ()
    return tuple(column(head, name) for head in range(1, heads + 1) for name in patterns.NAMES)


def numbers(comparison: Comparison, names: Sequence[str]) -> dict[tuple[str, str], float]:
    """Return what the columns of each variant hold: NaN where it has no such head, or does not form its weights."""
    wanted = {name: place for name in names if (place := parsed(name))}
    if not wanted:
        return {}
    from attn_exp.experiment import patterns  # noqa: PLC0415 - as above

    problem, values = comparison.problem, {}
    for variant in comparison.variants:
        weights = comparison.traces[variant.name].weights
        if weights is None:
            continue
        offset, apart = int(variant.rules.offset), problem.memory is not None
        shares = patterns.measured(weights, problem.key_tokens, offset, apart)
        for name, (head, pattern) in wanted.items():
            known = head <= len(weights)
            values[variant.name, name] = float(shares[pattern][head - 1]) if known else math.nan
    return values
