"""Printed results of documents, held against what a run computes.

A printed number stands for every number that rounds to it, so it agrees with a computed one iff they differ by at most
half a unit of its last digit (`printed`). Where the document's inputs are themselves printed rounded, the tolerance
grows by how far the result can move while they move within their rounding (`intervals`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np

from attn_exp.arrays import Array
from attn_exp.config.inputs import Embeddings, Projections
from attn_exp.config.schema import Config, Published
from attn_exp.errors import UserError, brief, unknown
from attn_exp.experiment.documents import intervals
from attn_exp.experiment.documents.printed import read, rewritten
from attn_exp.experiment.executing import execute
from attn_exp.experiment.row import Agreement
from attn_exp.experiment.settling import settle
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import Trace
from attn_exp.problem.matrices import BIASES, MATRICES
from attn_exp.problem.problem import Problem, build

STAGES = ("x", *MATRICES, *BIASES, *(field.name for field in fields(Trace)))
"""What a printed figure may show."""

PRODUCTS: dict[str, Callable[[Array, Array], Array]] = {
    "@": lambda left, right: left @ right,
    "matmul": np.matmul,
    "dot": np.dot,
    "sum": lambda left, right: np.stack([sum(row[j] * right[j] for j in range(len(right))) for row in left]),
}
"""Ways to write one matrix product; `sum` adds the weighted rows of the second matrix one by one."""


class Origin(NamedTuple):
    """Where a figure's number comes from: a variant, its problem and trace, and the array that it shows a part of."""

    settled: Settled
    problem: Problem
    trace: Trace
    array: Array


def hold(
    config: Config, problem: Problem, variants: Sequence[Settled], traces: Mapping[str, Trace]
) -> tuple[Agreement, ...]:
    """Compare every published figure of the configuration with the run's own numbers.

    A figure that no variant of the run forms is left out: one that names another variant, or scores of a form that has
    none.

    Raises:
        UserError: a figure of an unknown stage.
    """
    runs = [(variant, problem, traces[variant.name]) for variant in variants]
    pairs = ((entry, next(origins(entry, config, runs), None)) for entry in config.published)
    return tuple(agreement(entry, origin) for entry, origin in pairs if origin is not None)


def origins(entry: Published, config: Config, runs: Sequence[tuple[Settled, Problem, Trace]]) -> Iterator[Origin]:
    """Yield the variants that form what the entry shows, on its own small inputs if it has any.

    In order, but those that compute in a coarser type last: printed figures may have more digits than that.
    """
    if entry.stage not in STAGES:
        raise UserError(unknown(entry.stage, STAGES, f"stage of published {entry.quantity}"))
    for run in sorted(runs, key=lambda run: -run[0].computed_in.itemsize):
        if entry.variant in (None, run[0].name):
            settled, problem, trace = own_run(entry, config, run[0]) if entry.inputs else run
            array = find_array(entry, problem, trace)
            if array is not None:
                yield Origin(settled, problem, trace, array)


def own_run(entry: Published, config: Config, variant: Settled) -> tuple[Settled, Problem, Trace]:
    """Put the entry's own inputs through one head of a variant."""
    own = replace(config, embeddings=Embeddings(**entry.inputs), projections=Projections(source="none"), draws=None)
    problem = build(own)
    bind = None if variant.own is None else variant.own.bind
    settled = settle(variant.name, replace(config.variant[variant.name], head=1), own, problem, bind)
    return settled, problem, execute(settled, problem)


def agreement(entry: Published, origin: Origin) -> Agreement:
    """Hold one printed quantity against the computed one."""
    text = " ".join(entry.printed.split())
    printed, half_units = read(text, entry.decimals)
    if not printed.size:
        raise UserError(f"published {entry.quantity}: printed={brief(text)!r} holds no number")
    mine = selected(origin.array, entry)
    if mine.size != printed.size:
        counted = f"{mine.size} numbers where {printed.size} are printed"
        return Agreement(entry.quantity, text, counted, np.nan, np.nan, False, entry.note)
    box = find_bounds(entry, origin)
    low, high = (mine, mine) if box is None else (selected(end, entry) for end in box)
    widening = np.where(printed > mine, high - mine, mine - low)
    difference, tolerance = np.abs(mine - printed), half_units + widening
    worst = int(np.argmax(np.where(np.isnan(difference), np.inf, difference / tolerance)))
    return Agreement(
        quantity=entry.quantity,
        printed=text,
        computed=rewritten(text, mine, entry.decimals),
        largest_difference=float(difference[worst]),
        tolerance=float(tolerance[worst]),
        agrees=bool((difference <= tolerance).all()),
        note=entry.note if box is None else note(entry, float(widening.max())),
    )


def find_array(entry: Published, problem: Problem, trace: Trace) -> Array | None:
    """Return what an entry shows: x, an array of the projections, a stage of the trace, or a product in its own form.

    It is None where the run has none. A product is `q k^T` of each head for scores, else `weights v`.
    """
    if not entry.product:
        arrays = {"x": problem.x, "memory": problem.memory, **problem.projections} | dict(trace.stages())
        return arrays.get(entry.stage)
    left, right = (trace.q, trace.k) if entry.stage == "scores" else (trace.weights, trace.v)
    if left is None or right is None:
        return None
    right = right.swapaxes(-1, -2) if entry.stage == "scores" else right
    return np.stack([PRODUCTS[entry.product](*both) for both in zip(left, right, strict=True)])


def selected(array: Array, entry: Published) -> Array:
    """Return the numbers of a stage that are printed, in the order in which they are."""
    if array.ndim == 3:
        if entry.head > len(array):
            heads = f"{len(array)} heads" if len(array) > 1 else "one head"
            raise UserError(f"published {entry.quantity}: head={entry.head}, but there is {heads}, counted from 1")
        array = array[entry.head - 1]
    array = np.atleast_2d(array)
    array = array.T if entry.columns else array
    if entry.row is not None and entry.row > len(array):
        raise UserError(f"published {entry.quantity}: row={entry.row}, but there are {len(array)}, counted from 1")
    array = array if entry.row is None else array[[entry.row - 1]]
    return array[:, : entry.first].reshape(-1)


def find_bounds(entry: Published, origin: Origin) -> intervals.Interval | None:
    """Return between what bounds the stage moves while the printed inputs move within their rounding.

    None where no input is rounded, or where more happens to them than one plain head: rules, W_o, a mistake.
    """
    settled, problem, stage = origin.settled, origin.problem, entry.stage
    given = {name: array for name, array in origin.trace.stages() if name in ("q", "k", "v")}
    rules = settled.rules
    is_plain = not (rules.masks or rules.scores or settled.output_projection or settled.mistakes)
    is_plain &= rules.normalizer.exponential and settled.head == 1
    if not entry.rounded or not is_plain or (settled.positions and set(entry.rounded) - set(given)):
        return None
    if stage in problem.projections or stage in ("x", "memory"):
        return intervals.around(origin.array, entry.rounded.get(stage.replace("memory", "x"), 0.0))
    box = {name: intervals.around(array, radius(entry, problem, name)) for name, array in given.items()}
    if stage not in box:
        box["scores"] = intervals.scores(box["q"], box["k"])
        box["logits"] = intervals.scaled(box["scores"], settled.multiplier)
        box["weights"] = intervals.softmax(box["logits"])
    return box[stage] if stage in box else intervals.mean(box["weights"], box["v"])


def radius(entry: Published, problem: Problem, name: str) -> Array | float:
    """Return how far q, k or v may lie from the truth: as it is rounded itself, and as x and its matrix are."""
    own, x = entry.rounded.get(name, 0.0), problem.x if name == "q" or problem.memory is None else problem.memory
    if x is None:
        return own
    radii = intervals.Radii(*(entry.rounded.get(part, 0.0) for part in ("x", f"W_{name}", f"b_{name}")))
    return own + intervals.projected(x, problem.projections[f"W_{name}"], radii)


def note(entry: Published, widening: float) -> str:
    """Return the entry's note, with how its rounded inputs widen the tolerance."""
    inputs = " and ".join(f"{name} within {radius:g}" for name, radius in entry.rounded.items())
    how = f"Rounding leaves {inputs}; carried through by interval arithmetic, that adds up to {widening:.2g}."
    return f"{entry.note} {how}".strip()
