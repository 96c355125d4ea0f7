"""How columns become heads, and heads columns again: `columns 1–2 → head 1`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from attn_exp import forms
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import Trace
from attn_exp.problem.problem import Problem
from attn_exp.report import walk
from attn_exp.report.walk import Step

MOST = 4
"""More heads than these are not written out: the first two, and the last."""


class Splitting(NamedTuple):
    """How many `heads` there are, how many columns `flat` each side has before, into how many `parts` these part.

    `pooled` columns of a side make one head, as their mean; `order` says which part each head is, where it is known.
    """

    heads: int
    flat: Mapping[str, int]
    parts: Mapping[str, int]
    pooled: int
    tiled: bool
    known: bool
    words: str


def splitting(problem: Problem, settled: Settled, trace: Trace) -> Splitting:
    """Return how a variant splits its sides into heads; what a mistake or own code does instead is not known."""
    sides = {"q": problem.q, "k": problem.k, "v": problem.v}
    traced = next((side for side in (trace.q, trace.weights, trace.context) if side is not None), None)
    heads = 1 if traced is None else len(traced)
    share = settled.heads
    parts = {"q": share.query, "k": share.given, "v": share.given}
    known = not settled.mistakes and not forms.is_own(settled.form)
    flat = {name: side.shape[-1] for name, side in sides.items() if side is not None}
    turns = share.given // share.shared
    return Splitting(heads, flat, parts, turns, settled.tiled, known, words(heads, settled))


def parted(step: Step, split: Splitting) -> Step:
    """Return a projection with the heads written below its columns; any other step as it is."""
    name = step.stage[2:]
    if not walk.is_projection(step) or split.heads == 1 or not split.known or name not in split.parts:
        return step
    shown, width = min(walk.SIDE, split.flat[name]), split.flat[name] // split.parts[name]
    owners = [(owner(split, name, part), min(width, shown - part * width)) for part in range(split.parts[name])]
    parts = tuple((words, count) for words, count in owners if count > 0)
    return step._replace(tables=tuple(table._replace(parts=parts) for table in step.tables))


def owner(split: Splitting, name: str, part: int) -> str:
    """Say which heads read a part of the columns of a side: `heads 1–2`."""
    if name == "q":
        return f"head {part + 1}"
    shared = split.parts[name] // split.pooled
    many, group = split.heads // shared, part // split.pooled
    heads = range(group, split.heads, shared) if split.tiled else range(group * many, (group + 1) * many)
    numbers = [head + 1 for head in heads]
    if len(numbers) == 1:
        return f"head {numbers[0]}"
    return f"heads {', '.join(map(str, numbers)) if split.tiled else f'{numbers[0]}–{numbers[-1]}'}"


def words(heads: int, settled: Settled) -> str:
    """Say that this is done in each head, and how many heads read the same keys and values."""
    several = settled.heads.query // settled.heads.shared
    if several > 1 and settled.heads.shared == 1:
        return f"in each of {heads} heads, one K and V for all"
    return f"in each of {heads} heads" + (f", {several} share a K and V" if several > 1 else "")


def lines(split: Splitting, name: str, shape: Sequence[int], note: str) -> tuple[str, ...]:
    """Return a line for each head of a side: which columns it is; then what else is done to it."""
    if split.heads == 1 or not split.known or len(shape) != 3:
        return ()
    pooled = 1 if name == "q" else split.pooled
    heads, width = shape[0], pooled * split.flat[name] // split.parts[name]
    shared = split.parts[name] // pooled
    into = "mean →" if pooled > 1 else "→ head"
    parts = [head % shared if split.tiled else head for head in chosen(heads)]
    said = [f"{columns(part, width)} {into} {head + 1}" for head, part in zip(chosen(heads), parts, strict=True)]
    return shortened(said, heads) + ((note,) if note else ())


def side_by_side(heads: int, width: int) -> tuple[str, ...]:
    """Return a line for each head: which columns it becomes."""
    return shortened([f"head {head + 1} → {columns(head, width)}" for head in chosen(heads)], heads)


def chosen(heads: int) -> list[int]:
    """Return the heads that are written out."""
    return list(range(heads)) if heads <= MOST else [0, 1, heads - 1]


def shortened(said: Sequence[str], heads: int) -> tuple[str, ...]:
    """Return lines with three dots where heads are left out."""
    return tuple(said) if heads <= MOST else (*said[:2], "…", said[-1])


def columns(part: int, width: int) -> str:
    """Return the numbers of the columns of a part, from 1: `3–4`."""
    first = part * width + 1
    return str(first) if width == 1 else f"{first}–{first + width - 1}"
