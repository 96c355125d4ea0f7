"""How columns become heads, and heads columns again: `columns 1–2 → head 1`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from attn_exp import forms
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import Trace
from attn_exp.problem.problem import Problem
from attn_exp.report import walk, words
from attn_exp.report.flow_boxes import GAP_IN_SHARES, Share, wide
from attn_exp.report.walk import Step

MOST = 4
"""More heads than these are not written out: the first two, and the last."""


class Splitting(NamedTuple):
    """How many `heads` there are, how many columns `flat` each side has before, into how many `parts` these part.

    `pooled` parts of a side make one head, as their mean; `tiled` heads take turns; `words` say what is done in each,
    the longest first. What is not `known` is not written out.
    """

    heads: int
    flat: Mapping[str, int]
    parts: Mapping[str, int]
    pooled: int
    tiled: bool
    known: bool
    words: tuple[str, ...]


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
    return Splitting(heads, flat, parts, turns, settled.tiled, known, several(heads, settled))


def parted(step: Step, split: Splitting) -> Step:
    """Return a projection with the heads written below its columns; any other step as it is."""
    name = step.stage[2:]
    if not walk.is_projection(step) or split.heads == 1 or not split.known or name not in split.parts:
        return step
    shown, width = min(walk.SIDE, split.flat[name]), split.flat[name] // split.parts[name]
    owners = [(owner(split, name, part), min(width, shown - part * width)) for part in range(split.parts[name])]
    parts = tuple((whom, count) for whom, count in owners if count > 0)
    return step._replace(tables=tuple(table._replace(parts=parts) for table in step.tables))


def owner(split: Splitting, name: str, part: int) -> str:
    """Say which heads read a part of the columns of a side: `heads 1–2`."""
    if name == "q":
        return words.HEAD.format(number=part + 1)
    shared = split.parts[name] // split.pooled
    many, group = split.heads // shared, part // split.pooled
    heads = range(group, split.heads, shared) if split.tiled else range(group * many, (group + 1) * many)
    numbers = [head + 1 for head in heads]
    if len(numbers) == 1:
        return words.HEAD.format(number=numbers[0])
    all_of_them = ", ".join(map(str, numbers)) if split.tiled else counted(numbers[0], numbers[-1])
    return words.HEADS_FOR.format(numbers=all_of_them)


def several(heads: int, settled: Settled) -> tuple[str, ...]:
    """Say that this is done in each head, and how many heads read the same keys and values; then in fewer words."""
    each = words.IN_EACH_HEAD.format(count=heads)
    share = settled.heads.query // settled.heads.shared
    if share > 1:
        more = words.ONE_K_AND_V if settled.heads.shared == 1 else words.SHARE_K_AND_V
        return more.format(each=each, count=share), each, words.COUNT_HEADS.format(count=heads)
    return each, words.COUNT_HEADS.format(count=heads)


def shares(split: Splitting, name: str, shape: Sequence[int]) -> tuple[Share, ...]:
    """Return which columns of a side become which head."""
    if split.heads == 1 or not split.known or len(shape) != 3:
        return ()
    pooled = 1 if name == "q" else split.pooled
    heads, width = shape[0], pooled * split.flat[name] // split.parts[name]
    shared = split.parts[name] // pooled
    into = words.MEAN_TO_HEAD if pooled > 1 else words.TO_HEAD
    return shortened(
        [
            Share(
                columns(head % shared if split.tiled else head, width),
                into.format(head=head + 1),
                words.TO_NUMBER.format(head=head + 1),
                words.MEANS if pooled > 1 else "",
            )
            for head in chosen(heads)
        ],
        heads,
    )


def side_by_side(heads: int, width: int) -> tuple[Share, ...]:
    """Return which columns each head becomes."""
    parts = [words.TO_COLUMNS.format(columns=columns(head, width)) for head in chosen(heads)]
    names = [words.HEAD.format(number=head + 1) for head in chosen(heads)]
    return shortened([Share(name, part, part) for name, part in zip(names, parts, strict=True)], heads)


def lines(said: Sequence[Share], room: float) -> tuple[str, ...]:
    """Return a line for each share, in fewer letters where one would leave the room."""
    if all(wide(share.line) <= room for share in said):
        return tuple(share.line.strip() for share in said)
    return tuple(f"{share.part} {share.short}".strip() for share in said)


def chosen(heads: int) -> list[int]:
    """Return the heads that are written out."""
    return list(range(heads)) if heads <= MOST else [0, 1, heads - 1]


def shortened(said: Sequence[Share], heads: int) -> tuple[Share, ...]:
    """Return shares with three dots where heads are left out."""
    return tuple(said) if heads <= MOST else (*said[:2], GAP_IN_SHARES, said[-1])


def columns(part: int, width: int) -> str:
    """Return the numbers of the columns of a part, from 1: `3–4`."""
    first = part * width + 1
    return str(first) if width == 1 else counted(first, first + width - 1)


def counted(first: int, last: int) -> str:
    """Return numbers from the first to the last: `3–4`."""
    return words.RANGE.format(first=first, last=last)
