"""Printed results of documents, held against what a run computes.

A printed number stands for every number that rounds to it, so it agrees with a computed one iff they differ by at most half a
unit of its last digit. Where the document's inputs are themselves printed rounded, the tolerance grows by how far the
result can move while they move within their rounding (`intervals`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attn_exp import intervals
from attn_exp.config import Config, Embeddings, Projections, Published, UserError, unknown
from attn_exp.problem import Problem, build
from attn_exp.stages import Trace
from attn_exp.variant import Settled, execute, settle

Array = NDArray[Any]

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")

PRODUCTS: dict[str, Callable[[Array, Array], Array]] = {
    "@": lambda left, right: left @ right,
    "matmul": np.matmul,
    "dot": np.dot,
    "sum": lambda left, right: np.stack([sum(row[j] * right[j] for j in range(len(right))) for row in left]),
}
"""Ways to write one matrix product; `sum` adds the weighted rows of the second matrix one by one."""


@dataclass(frozen=True)
class Agreement:
    """One printed quantity beside the computed one: `agrees` iff the largest difference is within the tolerance.

    Where the numbers have tolerances of their own, the difference and tolerance shown are those of the number whose
    difference is largest in units of its tolerance.
    """

    quantity: str
    printed: str
    computed: str
    largest_difference: float
    tolerance: float
    agrees: bool
    note: str


def hold(
    config: Config, problem: Problem, variants: Sequence[Settled], traces: Mapping[str, Trace]
) -> tuple[Agreement, ...]:
    """Compare every published figure of the configuration with the run's own numbers.

    A figure that names a variant is left out of a run without that variant.

    Raises:
        UserError: a figure that names no stage, or holds another count of numbers than its stage.
    """
    settled = {each.name: each for each in variants}
    entries = [each for each in config.published if each.variant is None or each.variant in settled]
    agreements = []
    for entry in entries:
        chosen = settled[entry.variant] if entry.variant else variants[0]
        agreements.append(agreement(entry, *source(entry, chosen, config, problem, traces[chosen.name])))
    return tuple(agreements)


def source(
    entry: Published, chosen: Settled, config: Config, problem: Problem, trace: Trace
) -> tuple[Settled, Problem, Trace]:
    """Return where the entry's number comes from: the run, or the entry's own small inputs put through its variant."""
    if not entry.inputs:
        return chosen, problem, trace
    own = replace(config, embeddings=Embeddings(**entry.inputs), projections=Projections(source="none"))
    problem = build(own)
    chosen = settle(chosen.name, config.variant[chosen.name], own, problem)
    return chosen, problem, execute(chosen, problem)


def agreement(entry: Published, settled: Settled, problem: Problem, trace: Trace) -> Agreement:
    """Hold one printed quantity against the computed one."""
    whole = computed(entry, problem, trace)
    mine = selected(whole, entry).reshape(-1)
    printed, half_units = numbers(entry)
    if mine.size != printed.size:
        raise UserError(f"published {entry.quantity}: {printed.size} numbers are printed, but {mine.size} are computed")
    low, high = (selected(end, entry).reshape(-1) for end in reach(entry, settled, trace) or (whole, whole))
    difference = np.abs(mine - printed)
    tolerance = half_units + np.maximum(high - mine, mine - low)
    worst = int(np.argmax(np.where(np.isnan(difference), np.inf, difference / tolerance)))
    return Agreement(
        quantity=entry.quantity,
        printed=one_line(entry.printed),
        computed=one_line(written_like(entry, mine)),
        largest_difference=float(difference[worst]),
        tolerance=float(tolerance[worst]),
        agrees=bool((difference <= tolerance).all()),
        note=note(entry, float((tolerance - half_units).max())),
    )


def computed(entry: Published, problem: Problem, trace: Trace) -> Array:
    """Return the array that the entry speaks of: a stage of the trace, an array of the problem, or a plain product."""
    if entry.product is not None:
        return product(entry, trace)
    arrays = {"x": problem.x, **problem.projections} | dict(trace.stages())
    found = arrays.get(entry.stage)
    if found is None:
        choices = [name for name, each in arrays.items() if each is not None]
        raise UserError(unknown(f"published {entry.quantity}: stage={entry.stage}", choices, "choice"))
    return found


def product(entry: Published, trace: Trace) -> Array:
    """Return `q k^T` of each head, or `weights v` where the stage lies behind the weights, in the form that is named."""
    if entry.product not in PRODUCTS:
        raise UserError(unknown(f"published {entry.quantity}: product={entry.product}", tuple(PRODUCTS), "choice"))
    pair = (trace.q, trace.k) if entry.stage == "scores" else (trace.weights, trace.v)
    if pair[0] is None or pair[1] is None:
        raise UserError(f"published {entry.quantity}: the problem lacks the arrays of its product")
    left, right = pair[0], pair[1].swapaxes(-1, -2) if entry.stage == "scores" else pair[1]
    return np.stack([PRODUCTS[entry.product](*both) for both in zip(left, right, strict=True)])


def selected(array: Array, entry: Published) -> Array:
    """Return the part of a stage that is printed, turned as it is printed."""
    if array.ndim == 3:
        array = array[entry.head]
    array = np.atleast_2d(array)
    array = array.T if entry.columns else array
    array = array if entry.row is None else array[[entry.row]]
    return array[:, : entry.first]


def numbers(entry: Published) -> tuple[Array, Array]:
    """Return the printed numbers, and half a unit of each one's last digit.

    NumPy writes a whole array with as many decimals as its longest number needs and leaves zeros off, so the numbers share
    their decimals; a number with an exponent has its own. `decimals` says it where every number lost its zeros.
    """
    words = NUMBER.findall(one_line(entry.printed))
    plain = [decimals(word) for word in words if exponent(word) is None]
    shared = max(plain, default=0) if entry.decimals is None else entry.decimals
    units = [shared if exponent(word) is None else decimals(word) - (exponent(word) or 0) for word in words]
    return np.array([float(word) for word in words]), np.array([float(f"0.5e{-unit}") for unit in units])


def decimals(word: str) -> int:
    """Return how many digits follow the point."""
    return len(re.split("[eE]", word)[0].partition(".")[2])


def exponent(word: str) -> int | None:
    """Return the power of ten that a word ends in, if any."""
    _, mark, power = word.lower().partition("e")
    return int(power) if mark else None


def written_like(entry: Published, mine: Array) -> str:
    """Write the computed numbers into the brackets of the printed ones, to as many digits."""
    values = iter(mine.tolist())
    words = NUMBER.findall(one_line(entry.printed))
    shared = max((decimals(word) for word in words if exponent(word) is None), default=0)

    def write(found: re.Match[str]) -> str:
        word = found.group()
        kind = f".{decimals(word)}e" if exponent(word) is not None else f".{shared}f"
        return format(next(values), kind)

    return NUMBER.sub(write, one_line(entry.printed))


def one_line(text: str) -> str:
    """Put a printed text on one line, with the typographer's minus made plain."""
    return " ".join(text.replace("−", "-").split())


def reach(entry: Published, settled: Settled, trace: Trace) -> intervals.Interval | None:
    """Return between what bounds the stage moves while the printed inputs move within their rounding."""
    if not entry.rounded:
        return None
    given = {name: getattr(trace, name) for name in "qkv" if getattr(trace, name) is not None}
    box = {name: intervals.around(each, entry.rounded.get(name, 0.0)) for name, each in given.items()}
    if entry.stage in box:
        return box[entry.stage]
    if settled.head != 1 or settled.output_projection or settled.mistake != "none":
        raise UserError(f"published {entry.quantity}: rounded inputs are followed through one plain head only")
    return bounds(entry, box, settled.multiplier)


def bounds(entry: Published, box: Mapping[str, intervals.Interval], multiplier: float) -> intervals.Interval:
    """Carry the box of q, k and v to the stage of the entry."""
    scores = intervals.scores(box["q"], box["k"])
    if entry.stage == "scores":
        return scores
    logits = intervals.scaled(scores, multiplier)
    if entry.stage == "logits":
        return logits
    weights = intervals.softmax(logits)
    return weights if entry.stage == "weights" else intervals.mean(weights, box["v"])


def note(entry: Published, radius: float) -> str:
    """Return the entry's note, with how its rounded inputs widen the tolerance."""
    if not entry.rounded:
        return entry.note
    inputs = " and ".join(f"{name} within {size:g}" for name, size in entry.rounded.items())
    widened = f"The inputs are known only to {inputs}; interval arithmetic adds up to {radius:.2g} to half a unit."
    return f"{entry.note} {widened}".strip()
