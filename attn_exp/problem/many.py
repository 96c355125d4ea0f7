"""Problems that differ in their seed alone, as one problem whose arrays have the seeds on an axis before all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.config.inputs import DISTRIBUTIONS, STREAMS, Draw, Projections
from attn_exp.config.schema import Config
from attn_exp.forms.trace import ApartError, pile
from attn_exp.problem import sources
from attn_exp.problem.drawing import Kind
from attn_exp.problem.many_streams import ManyNumbers
from attn_exp.problem.matrices import BIASES
from attn_exp.problem.problem import Problem, build, check_size
from attn_exp.problem.projections import factor, kind

ARRAYS = ("x", "q", "k", "v", "weights", "memory")


def stacked(config: Config, first: Problem, seeds: Sequence[int]) -> Problem:
    """Return the problems of all seeds as one, every array `[n ...]`, bit by bit those of `build`; `first` is one such.

    Raises:
        ApartError: their arrays have several shapes, or their tokens several names.
        UserError: as `build`.
    """
    if first.x is None or not drawn_plainly(config):
        return piled([build(replace(config, seed=seed)) for seed in seeds])
    with np.errstate(over="ignore", invalid="ignore"):
        problem = redrawn(config, first, ManyNumbers(seeds))
        check_size(extreme(problem))
    return problem


def redrawn(config: Config, first: Problem, numbers: ManyNumbers) -> Problem:
    """Return a problem of x with all that its seed decides drawn for every seed."""
    x, given = first.x, config.embeddings
    assert x is not None
    if given.distribution is None:
        x = np.broadcast_to(x, (len(numbers.seeds), *x.shape))
    else:
        drawn = Kind(given.distribution, given.low, given.high, key="embeddings.")
        x = numbers.array("x", drawn, x.shape).astype(float)
    arrays = {name: remade(config.projections, name, array, numbers) for name, array in first.projections.items()}
    q, k, v = (projected(x[:, first.past :] if letter == "q" else x, arrays, letter) for letter in "qkv")
    return replace(first, x=x, q=q, k=k, v=v, projections=arrays)


def drawn_plainly(config: Config) -> bool:
    """Say whether x and the projections are the same for every seed, or drawn from a stream of their own by name."""
    x, own = config.embeddings, config.projections
    said = sources.said(x)
    drawn = list(said) == ["distribution"] and x.seed is None and x.generator in (None, STREAMS) and not x.columns
    written = list(said) == ["vectors"] and not isinstance(x.vectors, Draw | str)
    plain = Projections(source=own.source, spread=own.spread, low=own.low, high=own.high)
    widths = {name: getattr(own, name) for name in ("width", "key_width", "value_width", "output_width")}
    return (
        (drawn or written)
        and x.memory is None
        and config.generator == STREAMS
        and not config.draws
        and own == replace(plain, **widths)
        and own.source in (*DISTRIBUTIONS, "identity")
    )


def remade(settings: Projections, name: str, array: Array, numbers: ManyNumbers) -> Array:
    """Return a projection of every seed, given that of the first."""
    if settings.source not in DISTRIBUTIONS:
        return np.broadcast_to(array, (len(numbers.seeds), *array.shape))
    shape = (1, array.size) if name in BIASES else array.shape
    drawn = factor(settings, name, shape) * numbers.array(name, kind(settings), shape)
    return drawn.reshape(len(drawn), -1) if name in BIASES else drawn


def projected(x: Array, arrays: Mapping[str, Array], letter: str) -> Array:
    """Return `x W + b` of every seed, as `problem.projected` does for one."""
    product = x @ arrays[f"W_{letter}"]
    return product + arrays[f"b_{letter}"][:, None] if f"b_{letter}" in arrays else product


def piled(problems: Sequence[Problem]) -> Problem:
    """Return problems that were built one by one as one."""
    first = problems[0]
    for other in problems[1:]:
        if (other.tokens, other.key_tokens, other.past) != (first.tokens, first.key_tokens, first.past):
            raise ApartError
    named: dict[str, Any] = {name: pile([getattr(problem, name) for problem in problems]) for name in ARRAYS}
    arrays = {name: pile([problem.projections.get(name) for problem in problems]) for name in first.projections}
    return replace(first, **named, projections=arrays)


def one(problem: Problem, place: int) -> Problem:
    """Return the problem of one seed."""
    named: dict[str, Any] = {
        name: None if (array := getattr(problem, name)) is None else array[place] for name in ARRAYS
    }
    return replace(problem, **named, projections={name: array[place] for name, array in problem.projections.items()})


def extreme(problem: Problem) -> Problem:
    """Return a problem of one seed whose numbers are as large as the largest of all: what fits it fits every one."""
    named: dict[str, Any] = {
        name: None if (array := getattr(problem, name)) is None else np.abs(array).max(axis=0) for name in ARRAYS
    }
    return replace(problem, **named)
