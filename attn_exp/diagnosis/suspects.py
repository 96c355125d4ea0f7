"""Who may have given these numbers: the whole catalogue of mistakes, and other settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from attn_exp import mistakes
from attn_exp.diagnosis.case import Answer, Case
from attn_exp.diagnosis.diagnose import Candidate, known, rank, whole
from attn_exp.diagnosis.others import others
from attn_exp.diagnosis.worksheet import Sheet, agrees, gives, stages
from attn_exp.experiment.mistaken import right
from attn_exp.experiment.recipes import Stages, follows_steps, given_to
from attn_exp.experiment.variant import Settled
from attn_exp.forms.pipeline import Recipe
from attn_exp.mistakes.behaviour import UNSHOWN


@dataclass(frozen=True)
class Explanation:
    """What gives the numbers: mistakes by name, others that do too, or a setting in the words of a run."""

    names: tuple[str, ...] = ()
    alike: tuple[tuple[str, ...], ...] = ()
    setting: str = ""


def case_of(sheet: Sheet) -> Case:
    """Return the problem as a question, which is what the catalogue knows."""
    return Case("numbers", sheet.right, given_to(sheet.settled, sheet.problem), explicit_scale=True)


def single(sheet: Sheet) -> list[Candidate]:
    """Return every way of every mistake that there can be in this run."""
    case = case_of(sheet)
    return [candidate for candidate in known([(case, Answer(None))]) if candidate.names[0] not in UNSHOWN]


@dataclass(frozen=True, eq=False)
class Made:
    """A candidate, its recipe, and the stages that this gives: all of it follows from what is asked alone."""

    candidate: Candidate
    recipe: Recipe
    stages: Stages | None


def catalogue(sheet: Sheet) -> list[Made]:
    """Return what every mistake would give on what a sheet asks, whatever stands in its boxes."""
    return what_is_made(sheet, single(sheet))


def what_is_made(sheet: Sheet, candidates: Sequence[Candidate]) -> list[Made]:
    """Return what some candidates would give on what a sheet asks."""
    case = case_of(sheet)
    made = [(candidate, candidate.change(case)) for candidate in candidates]
    return [Made(candidate, recipe, stages(sheet, recipe)) for candidate, recipe in made]


def coarse(sheet: Sheet) -> list[Made]:
    """Return the mistakes that only round more than needed; they are looked at last."""
    every = [(name, mistakes.mistake(name)) for name in mistakes.names()]
    candidates = [
        Candidate((name,), whole(change))
        for name, mistake in every
        if mistake.group == "precision" and sheet.problem.weights is None
        for change in mistake.changes
    ]
    return what_is_made(sheet, candidates)


def one_of(sheet: Sheet, known: Sequence[Made]) -> Explanation | None:
    """Return the one mistake of a catalogue that gives the numbers, and others that do too."""
    return best([made.candidate for made in known if gives(sheet, made.recipe, made.stages)])


def best(fits: Sequence[Candidate]) -> Explanation | None:
    """Return the likeliest of what fits; the others are named beside it."""
    if not fits:
        return None
    first, *rest = sorted(fits, key=rank)
    groups = dict.fromkeys(tuple(sorted(set(candidate.names))) for candidate in rest)
    groups.pop(tuple(sorted(set(first.names))), None)
    return Explanation(first.names, tuple(groups))


def another_setting(sheet: Sheet, variants: Mapping[str, Settled]) -> Explanation | None:
    """Return another setting, or another variant of the run, that gives the numbers."""
    for name, settled in variants.items():
        other = Sheet(settled, sheet.problem, sheet.boxes)
        if name != sheet.settled.name and fitting(other) and agrees(other, right(settled)):
            return Explanation(setting=f"variant=[{name}]")
    for word, change in scalings(sheet):
        if agrees(sheet, change):
            return Explanation(setting=word)
    for word, make in others(sheet.right) if sheet.problem.weights is None else ():
        if agrees(sheet, make(sheet.right)):
            return Explanation(setting=word)
    return None


def fitting(sheet: Sheet) -> bool:
    """Say whether another variant has steps of its own, without mistakes and of the same shapes."""
    return not sheet.settled.mistakes and not sheet.settled.refused and follows_steps(sheet.settled, sheet.problem)


def scalings(sheet: Sheet) -> Iterator[tuple[str, Recipe]]:
    """Yield the usual scale, where another one is asked for."""
    if sheet.problem.q is None:
        return
    usual = (sheet.problem.q.shape[-1] // sheet.settled.head) ** -0.5
    if sheet.settled.multiplier != usual:
        yield "scale=true", sheet.right.with_rules(scale=usual)


def distinct(sheet: Sheet, known: Sequence[Made]) -> list[Made]:
    """Return the candidates that change what the boxes ask, one of each name and of all that it gives there.

    Those that do not fit the shapes are kept: two of them may.
    """
    seen: set[tuple[str, str]] = set()
    kept = []
    right = given(sheet, stages(sheet, sheet.right))
    for made in known:
        key = (made.candidate.names[0], given(sheet, made.stages))
        if made.stages is None or (key not in seen and key[1] != right):
            kept.append(made)
        seen.add(key)
    return kept


def given(sheet: Sheet, made: Stages | None) -> str:
    """Return what stages give in the boxes of a sheet, to nine decimals, as one text."""
    arrays = (None if made is None else made.get(box.stage) for box in sheet.boxes)
    return " ".join("-" if array is None else f"{array.shape}{(np.round(array, 9) + 0.0).tolist()}" for array in arrays)


def what_it_computes(names: Sequence[str]) -> str:
    """Return what mistakes do, in one line."""
    return f"attention with {' and '.join(names)}: {' '.join(mistakes.mistake(name).says for name in names)}"
