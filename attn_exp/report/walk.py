"""One variant stage by stage: labelled tables from x to the output, and each token's output as a sum of values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from attn_exp import registry
from attn_exp.arrays import Array
from attn_exp.experiment.comparison import Comparison, settled_as
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import Trace
from attn_exp.own_code import is_code
from attn_exp.problem.problem import Problem
from attn_exp.report import words
from attn_exp.report.stages import (
    PROJECTED,
    STAGES,
    Explained,
    Marked,
    concatenated,
    contexts,
    elsewhere,
    masked,
    paired,
    projected,
    remark,
    scaled,
    scores_that,
    summed,
    weighted,
    wrongly,
)
from attn_exp.report.views import MOST_COARSE, labels
from attn_exp.rules.from_outside import AbsentMask
from attn_exp.rules.grid import Grid
from attn_exp.rules.masks.mask import AllOf

SIDE = 16
"""A table shows at most this many rows and columns; the file of results has them all."""

CELLS = 1200
"""A stage shows as many heads as have this many cells together, and one at least."""

OUTWARD = ("W_o", "b_o")
"""The projection of the output, which not every variant has."""

BY_KEY = ("scores", "logits", "capped", "masked", "weights")
"""Stages whose columns are keys."""


class Table(NamedTuple):
    """A labelled matrix: its corner where it is too large to show whole.

    `parts` says which heads its columns are for: so many columns each, from the left.
    """

    title: str
    head: int
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    matrix: Array
    parts: tuple[tuple[str, int], ...] = ()


class Step(NamedTuple):
    """One stage of a computation: what it is, its whole shape, and its tables, one per head.

    `largest` is the number whose cell has the full colour, and `power` that of a share of it which is coloured;
    `closed` says which weights a mask closes, `whole` whether its numbers have no more decimals than are shown.
    `corners` are the numbers of all heads `[h row column]`, also of those without a table; of a projection whose
    columns part into heads, `owners` may name whose corner each is, and at which column it starts; of W_o `head_rows`
    says how many rows each head has, where the corners are those of its heads. `wrong`: it
    does not follow from the stages before as the definition has it.
    """

    stage: str
    explained: Explained
    note: str
    shape: tuple[int, ...]
    tables: tuple[Table, ...]
    largest: float
    decimals: int
    left_out: str
    rows_are_keys: bool
    closed: Array | None = None
    power: float = 1.0
    whole: bool = False
    corners: Array = np.zeros((0, 0, 0))
    owners: tuple[tuple[str, int], ...] = ()
    head_rows: int = 0
    wrong: bool = False


def steps(comparison: Comparison, variant: str) -> tuple[Step, ...]:
    """Return the stages of one variant in order, those that change nothing left out."""
    settled = settled_as(comparison, variant)
    wrong: tuple[str, ...] = ()
    if settled.mistakes or is_code(settled.form):
        from attn_exp.experiment.recipes import departures  # noqa: PLC0415 - most runs need it not

        wrong = departures(settled, comparison.problem, comparison.traces[variant])
    return tuple(
        step(stage, array, comparison, settled, wrong=stage in wrong) for stage, array in every(comparison, variant)
    )


def every(comparison: Comparison, variant: str) -> Iterator[tuple[str, Array]]:
    """Yield the stages of one variant; the output projection stands where it is used, and only if it is."""
    mixes = is_mixed(comparison, variant)
    yield from before(comparison)
    for stage, array in during(comparison.traces[variant]):
        if stage == "output" and mixes:
            yield from (named for named in comparison.problem.projections.items() if named[0] in OUTWARD)
        yield stage, array


def is_mixed(comparison: Comparison, variant: str) -> bool:
    """Say whether a variant ends in W_o, as its row has it: a run that is opened again has no code to ask."""
    rows = (row for row in comparison.rows if row.variant == variant)
    return "W_o" in comparison.problem.projections and any(row.output_projection for row in rows)


def before(comparison: Comparison) -> Iterator[tuple[str, Array]]:
    """Yield x, the memory and the projections of x."""
    if comparison.problem.x is not None:
        yield "x", comparison.problem.x
        if comparison.problem.memory is not None:
            yield "memory", comparison.problem.memory
        yield from (named for named in comparison.problem.projections.items() if named[0] not in OUTWARD)


def during(trace: Trace) -> Iterator[tuple[str, Array]]:
    """Yield the stages of a trace, without those that are equal to the stage before."""
    last: Array | None = None
    for stage, array in trace.stages():
        if stage not in ("capped", "masked") or last is None or not np.array_equal(array, last):
            yield stage, array
        last = array


def is_input(step: Step) -> bool:
    """Say whether a step is the same for every variant: x, the memory, or a projection."""
    return step.stage in ("x", "memory") or is_projection(step)


def is_projection(step: Step) -> bool:
    """Say whether a step is a matrix or a bias that projects x."""
    return step.stage[:2] in ("W_", "b_")


def has_rows_of_keys(stage: str, problem: Problem) -> bool:
    """Say whether the rows of a stage are keys: x holds the past tokens too."""
    return stage in ("k", "v", "memory") or (stage == "x" and problem.past > 0)


def by_key(step: Step) -> bool:
    """Say whether the columns of a step are keys."""
    return step.stage in BY_KEY


def shape(step: Step) -> str:
    """Write the shape of a stage with its axes: `[h t s] = [2 3 3]`."""
    axes = f"h {step.explained.axes}" if len(step.shape) == 3 else step.explained.axes
    return f"[{axes}] = [{' '.join(map(str, step.shape))}]"


def beside(step: Step) -> str:
    """Return what steps that are read side by side have in common."""
    if step.stage in ("q", "k", "v"):
        return "projected"
    return "projections" if is_projection(step) else step.stage


def step(stage: str, array: Array, comparison: Comparison, settled: Settled, *, wrong: bool = False) -> Step:
    """Return one stage of a computation as a reader walks through it: its tables, its formula and its words.

    `wrong`: it does not follow from the stages before as the definition has it.
    """
    heads = array if array.ndim == 3 else np.atleast_2d(array.T if stage == "lse" else array)[None]
    shown = max(1, min(len(heads), CELLS // max(1, min(SIDE, heads.shape[1]) * min(SIDE, heads.shape[2]))))
    rows, columns = names(stage, comparison, heads.shape[1:], vector=array.ndim == 1)
    finite = np.abs(heads[np.isfinite(heads)])
    places = decimals(finite)
    stated, note = in_words(stage, comparison, settled), remark(stage, comparison, settled)
    return Step(
        stage=stage,
        explained=mistaken_words(stated, stage, settled) if wrong else stated,
        note=words.SHOULD_BE.format(what=note) if wrong and stage == "logits" else note,
        shape=array.shape,
        tables=tuple(
            Table(
                words.HEAD.format(number=head + 1) if len(heads) > 1 else "",
                head,
                rows[:SIDE],
                columns[:SIDE],
                heads[head, :SIDE, :SIDE],
            )
            for head in range(shown)
        ),
        largest=float(finite.max(initial=0.0)),
        decimals=places,
        left_out=left_out(heads.shape, shown),
        rows_are_keys=has_rows_of_keys(stage, comparison.problem),
        closed=closed_by_mask(settled, heads, None if heads.size <= MOST_COARSE else SIDE)
        if stage == "weights"
        else None,
        wrong=wrong,
        whole=is_exact(finite, places),
        corners=heads,
    )


def in_words(stage: str, comparison: Comparison, settled: Settled) -> Explained:
    """Return the words for a stage of this variant."""
    problem = comparison.problem
    apart = "memory" if problem.memory is not None else "past" if problem.past else ""
    if stage in PROJECTED:
        bias = f"b_{stage}" in problem.projections
        stated = projected(stage.upper(), PROJECTED[stage], bias, apart, marks(stage, settled))
    elif stage == "output":
        mixed = settled.output_projection and "W_o" in problem.projections
        stated = concatenated(mixed, "b_o" in problem.projections, settled.head == 1)
    elif stage == "W_o" and settled.head == 1:
        stated = STAGES["W_o"]._replace(meaning="Makes the output of the context.")
    else:
        stated = of_pairs(stage, comparison, settled)
    if stage == "weights" and problem.weights is not None:
        stated = Explained("A", "t s", "How much of each value a query receives, as given.", "A, given", "")
    elif stage in PROJECTED and problem.x is None:
        stated = stated._replace(formula=f"{stated.symbol}, given", mathml="")
    return elsewhere(stated, stage, apart) if apart else stated


def of_pairs(stage: str, comparison: Comparison, settled: Settled) -> Explained:
    """Return the words for a stage from the scores to the context, and for what is the same in all variants."""
    rules, formed = settled.rules, [name for name, _ in during(comparison.traces[settled.name])]
    logit = logit_of(stage, formed)
    adds, bends = (bool(scores_that(comparison, settled, act)) for act in ("bias", "bend"))
    extra = any(rule.extra(0) is not None for rule in rules.scores)
    of: dict[str, Callable[[], Explained]] = {
        "logits": lambda: scaled(settled.scale),
        "masked": lambda: masked(logit, bool(rules.masks), adds, bends and rules.bend_last),
        "weights": lambda: weighted(logit, rules.normalizer, extra),
        "lse": lambda: summed(logit, "logits" in formed),
        "context": lambda: contexts("weights" in formed),
    }
    if stage == "scores" and rules.pairing is not None:
        return paired(registry.name_of(rules.pairing))
    return of[stage]() if stage in of else STAGES.get(stage, Explained(stage, "", "", "", ""))


def mistaken_words(stated: Explained, stage: str, settled: Settled) -> Explained:
    """Return the words for a stage that is made otherwise: the mistakes that begin there, or all of them.

    A function of the user's own has no mistakes to name, and an earlier version may have known others.
    """
    from attn_exp import mistakes  # noqa: PLC0415 - most runs make none

    made = [(name, mistakes.mistake(name)) for name in settled.mistakes if name in mistakes.names()]
    here = [(name, mistake.says) for name, mistake in made if mistake.stage == stage]
    return wrongly(stated, here or [(name, mistake.says) for name, mistake in made])


def marks(stage: str, settled: Settled) -> Marked:
    """Return what positions and shared heads do to queries, keys or values."""
    turns = [registry.name_of(position) for position in settled.positions if not position.changes_x and stage != "v"]
    shares = settled.heads
    fewer = shares if stage != "q" and shares.shared < shares.given else None
    return Marked(any(position.changes_x for position in settled.positions), " ".join(turns), fewer)


def logit_of(stage: str, formed: Sequence[str]) -> str:
    """Return the symbol of the logits that a stage is made of."""
    if "masked" in formed and stage != "masked":
        return "M"
    return "L′" if "capped" in formed else "L"


def left_out(shape: tuple[int, ...], shown: int) -> str:
    """Say what a step does not show."""
    parts = [words.OF_HEADS.format(shown=shown, all=shape[0])] if shown < shape[0] else []
    if max(shape[1:]) > SIDE:
        _, rows, columns = shape
        sizes = {"rows": min(SIDE, rows), "all_rows": rows, "columns": min(SIDE, columns), "all_columns": columns}
        parts.append(words.OF_ROWS.format(**sizes))
    return f" {words.AND} ".join(parts)


def names(
    stage: str, comparison: Comparison, shape: Sequence[int], vector: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the labels of the rows and columns of a stage: tokens where they are tokens, else numbers from 1."""
    numbers = tuple(str(place + 1) for place in range(max(shape)))
    if stage[:2] in ("W_", "b_"):
        return (("",) if vector else numbers[: shape[0]]), numbers[: shape[1]]
    queries, keys = labels(comparison.problem)
    if stage == "lse":
        return queries, tuple(words.HEAD.format(number=number) for number in numbers[: shape[1]])
    rows = keys if has_rows_of_keys(stage, comparison.problem) else queries
    columns = keys if stage in BY_KEY else numbers[: shape[1]]
    return rows, columns


def decimals(magnitudes: Array) -> int:
    """Return how many decimals a stage is shown with: all that its numbers have, or four digits of the largest."""
    if not magnitudes.size or not magnitudes.any():
        return 0
    most = int(np.clip(3 - np.floor(np.log10(magnitudes.max())), 0, 8))
    few = magnitudes[:64]  # they rule most out, and a model's stage has some hundred thousand
    exact = (places for places in range(most) if is_exact(few, places) and is_exact(magnitudes, places))
    return next(exact, most)


def is_exact(magnitudes: Array, places: int) -> bool:
    """Say whether numbers have no more decimals than so many."""
    return np.array_equal(magnitudes, magnitudes.round(places))


MEANING = {
    "t": "how many queries: tokens that ask",
    "s": "how many keys: tokens that are asked",
    "m": "how many numbers a token has in X",
    "n": "how many numbers a token has in the memory",
    "d": "how many numbers a query and a key have: in one head, or in W for all heads together",
    "e": "how many numbers a value has: in one head, or in W for all heads together",
    "h": "how many heads",
}
"""Every letter that a shape is written with, in the order in which they are explained."""


class Axis(NamedTuple):
    """One letter, what it stands for, and its sizes in words, such as `4 or 2`."""

    letter: str
    meaning: str
    sizes: str


def axes_of(steps: Iterable[Step]) -> list[Axis]:
    """Return the letters that the shapes of these stages are written with, and the sizes that they have."""
    sizes: dict[str, dict[int, None]] = {}
    for step in steps:
        letters = step.explained.axes.split()
        for letter, size in zip(["h", *letters] if len(step.shape) == 3 else letters, step.shape, strict=False):
            sizes.setdefault(letter, {})[size] = None
    return [
        Axis(letter, meaning, " or ".join(map(str, sizes[letter])))
        for letter, meaning in MEANING.items()
        if letter in sizes
    ]


TERMS = 8
"""A sum writes out at most this many of its terms, the largest."""


class Sum(NamedTuple):
    """One query's answer as a sum of values: `name(token) = sum of weight v(key)`; `rest` is the share left out."""

    name: str
    token: str
    query: int
    head: int
    terms: tuple[tuple[float, str, int], ...]
    rest: float
    result: Array | None

    @property
    def is_number(self) -> bool:
        """Whether there is such a sum: weights that are NaN, as a row without keys has in some libraries, give none."""
        return not math.isnan(self.rest)


def sums(comparison: Comparison, settled: Settled) -> tuple[Sum, ...]:
    """Return each query's sum in each head; none where the variant departs from `context = weights v`."""
    trace = comparison.traces[settled.name]
    if trace.weights is None or trace.context is None or settled.mistake != "none":
        return ()
    queries, keys = labels(comparison.problem)
    alone = len(trace.weights) == 1
    name = "context" if settled.output_projection else "output"
    shown = max(1, CELLS // max(1, TERMS * len(queries)))
    return tuple(
        sum_of(row, keys, name if alone else f"context {head + 1}", token, query, head, trace.context)
        for head, matrix in enumerate(trace.weights[:shown])
        for query, (token, row) in enumerate(zip(queries, matrix, strict=True))
        if query < SIDE
    )


def sum_of(row: Array, keys: Sequence[str], name: str, token: str, query: int, head: int, context: Array) -> Sum:
    """Write one row of weights as a sum, its largest terms in the order of the keys."""
    if np.isnan(row).any():
        return Sum(name, token, query, head, (), math.nan, None)
    chosen = sorted(key for key in np.argsort(-row, kind="stable")[:TERMS].tolist() if row[key] != 0)
    rest = float(row.sum() - row[chosen].sum()) if len(chosen) < np.count_nonzero(row) else 0.0
    result = context[head, query] if context.shape[-1] <= 8 else None
    return Sum(name, token, query, head, tuple((float(row[key]), keys[key], key) for key in chosen), rest, result)


def sum_written(total: Sum) -> str:
    """Return a sum as text: `output(she) = 0.34 v(she) + 0.30 v(likes) + 0.36 v(coffee)`."""
    if not total.is_number:
        return f"{total.name}({total.token}) = {words.NAN_AS_WEIGHTS}"
    terms = " + ".join(f"{weight:.2f} v({key})" for weight, key, _ in total.terms) or "0"
    rest = f" {words.OTHER_VALUES.format(rest=f'{total.rest:.2f}')}" if total.rest else ""
    return f"{total.name}({total.token}) = {terms}{rest}"


MOST_PLACES = 1 << 22
"""Of more places no mask is asked, nor one whose code is not at hand: a weight of exactly 0 counts as masked."""


def closed_by_mask(settled: Settled, weights: Array, columns: int | None = None) -> Array | None:
    """Return which of the weights `[h t s]`, or of their first `columns`, no query may give.

    None where there are no masks. A weight above 0, such as one that a mistake leaks, is shown as what it is.
    """
    masks, offset = settled.rules.masks, settled.rules.offset
    if not masks or np.ndim(offset):
        return None
    heads, rows, keys = weights.shape
    shown = weights[:, :, :columns]
    if shown.size > MOST_PLACES or any(isinstance(mask, AbsentMask) for mask in masks):
        return np.asarray(shown == 0)
    row = np.arange(shown.shape[1])[:, None]
    grid = Grid(
        batch=0,
        head=np.arange(heads)[:, None, None],
        row=row,
        query=row + offset,
        key=np.arange(shown.shape[2]),
        heads=heads,
        rows=rows,
        keys=keys,
    )
    return np.asarray(~np.broadcast_to(AllOf(masks).allows(grid), shown.shape) & (shown == 0))
