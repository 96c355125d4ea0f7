"""Names the mistake: which known way to be wrong, or which other setting, gives every answer that was seen."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from attn_exp import mistakes
from attn_exp.arrays import Array
from attn_exp.diagnosis.case import Answer, Case, differs, expected, predicted, without_blind
from attn_exp.diagnosis.others import others
from attn_exp.experiment.recipes import features
from attn_exp.forms.pipeline import Recipe
from attn_exp.mistakes.mistake import Change

Seen = tuple[Case, Answer]

GROUPS = (
    "scale", "products", "masks", "heads", "positions", "scores", "softmax", "precision", "behaviour",
)  # fmt: skip
"""Of two mistakes that nobody can tell apart here, the one of the earlier group is named."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """One explanation: mistakes by name, or a setting in the words of a run, and what it does to a case's recipe."""

    names: tuple[str, ...]
    change: Callable[[Case], Recipe]
    setting: bool = False
    fitted: bool = False


@dataclass(frozen=True)
class Diagnosis:
    """What explains the answers: the names that were found, others that give the very same numbers, and a setting."""

    names: tuple[str, ...] = ()
    alike: tuple[tuple[str, ...], ...] = ()
    setting: str = ""

    @property
    def found(self) -> bool:
        """Whether anything explains the answers."""
        return bool(self.names or self.setting)


def diagnose(seen: Sequence[Seen], digits: int, pairs: bool = True) -> Diagnosis:
    """Return the one explanation of all that was seen: a mistake, another setting, or a pair of mistakes; else none."""
    if all(answer.output is None or not differs(answer.output, expected(case), digits) for case, answer in seen):
        return Diagnosis()  # right, to so many bits: two mistakes that cancel each other explain nothing
    single = [*known(seen), *fitted(seen)]
    fits = [candidate for candidate in single if explains(candidate, seen, digits)]
    if not fits:
        fits = [candidate for candidate in settings(seen) if explains(candidate, seen, digits)]
    if not fits and pairs:
        fits = [candidate for candidate in two_at_once(single, seen) if explains(candidate, seen, digits)]
    if not fits:
        return Diagnosis()
    best, *rest = sorted(fits, key=rank)
    if best.setting:
        return Diagnosis(setting=best.names[0])
    alike = dict.fromkeys(frozenset(candidate.names) for candidate in rest)
    return Diagnosis(best.names, tuple(tuple(sorted(names)) for names in alike if names != frozenset(best.names)))


def rank(candidate: Candidate) -> tuple[int, ...]:
    """Return what puts the likelier explanation first: fewer mistakes, none fitted, those that need most, by group."""
    if candidate.setting:
        return len(candidate.names), candidate.fitted, 0, len(GROUPS)
    made = [mistakes.mistake(name) for name in candidate.names]
    specific, place = sum(len(one.needs) for one in made), sum(GROUPS.index(one.group) for one in made)
    return len(candidate.names), candidate.fitted, -specific, place


def known(seen: Sequence[Seen]) -> Iterator[Candidate]:
    """Yield every way of every mistake that can show in what was asked."""
    present = features((case.recipe, case.given) for case, _ in seen)
    for name in mistakes.names():
        mistake = mistakes.mistake(name)
        if set(mistake.needs) <= present and not mistake.remark and mistake.group != "precision":
            for change in mistake.changes:
                yield Candidate((name,), whole(change))
            if mistake.group == "scale":
                yield from (Candidate((name,), where_not_said(change)) for change in mistake.changes)


def whole(change: Change) -> Callable[[Case], Recipe]:
    return lambda case: change(case.recipe)


def where_not_said(change: Change) -> Callable[[Case], Recipe]:
    """Return the change of a default: where a scale is passed, the function uses that."""
    return lambda case: case.recipe if case.explicit_scale else change(case.recipe)


def fitted(seen: Sequence[Seen]) -> Iterator[Candidate]:
    """Yield the mistakes whose number is read off the answer, such as any small fill."""
    from attn_exp.mistakes.masks import added, filled  # noqa: PLC0415 - fitted where masks are asked

    for case, answer in seen:
        number = fill_of(case, answer)
        if number is not None:
            yield Candidate(("mask_small_fill",), whole(filled(number)), fitted=True)
            for shift in penalties(case, answer):
                yield Candidate(("mask_small_fill",), whole(added(shift)), fitted=True)
            return


def fill_of(case: Case, answer: Answer) -> float | None:
    """Return the logit f that hidden keys would need: the answer is linear in `z = e^f`.

    With A the sum of `e^l` over the seen keys and N that of `e^l v`, n hidden keys and M the sum of their values:
    `o (A + n z) = N + z M`.
    """
    parts = split_sums(case, answer, np.zeros_like)
    return None if parts is None else estimate(parts)


def penalties(case: Case, answer: Answer) -> Iterator[float]:
    """Yield the number that would have to be added to the hidden logits."""
    parts = split_sums(case, answer, lambda logits: logits)
    number = None if parts is None else estimate(parts)
    if number is not None:
        yield number


def split_sums(case: Case, answer: Answer, hidden: Callable[[Array], Array]) -> tuple[Array, Array, Array] | None:
    """Return numerator, denominator and weight of each entry's own estimate of z."""
    if answer.output is None or case.given.x is not None or not case.recipe.rules.masks:
        return None
    stages = predicted(case.recipe, case.given)
    if stages is None or stages["output"].shape != answer.output.shape:
        return None
    open_places = np.isfinite(stages["masked"])
    if open_places.all():
        return None
    biased = np.where(open_places, stages["masked"], stages["capped"])
    shown = np.where(open_places, np.exp(biased), 0.0)
    kept_out = np.where(open_places, 0.0, np.exp(hidden(biased)))
    total, mixed = shown.sum(axis=-1, keepdims=True), shown @ stages["v"]
    count, values = kept_out.sum(axis=-1, keepdims=True), kept_out @ stages["v"]
    return mixed - answer.output * total, answer.output * count - values, np.abs(answer.output * count - values)


def estimate(parts: tuple[Array, Array, Array]) -> float | None:
    """Return the logarithm of the middle of all estimates, weighed by how much each tells."""
    above, below, weight = parts
    clear = weight > 1e-3 * weight.max(initial=0.0)
    with np.errstate(all="ignore"):
        share = float(np.sum((above * below)[clear]) / max(np.sum((below * below)[clear]), 1e-300))
    return float(np.log(share)) if np.isfinite(share) and share > 1e-30 else None


def settings(seen: Sequence[Seen]) -> Iterator[Candidate]:
    """Yield what the function may compute instead: settings that nobody asked for."""
    for word, change in others(seen[0][0].recipe):
        yield Candidate((word,), whole(change), setting=True)
    yield Candidate(("scale=true",), scaled_as_usual, setting=True)


def scaled_as_usual(case: Case) -> Recipe:
    """Return the recipe with the scale `1 / sqrt(d)`, whatever scale was asked for or passed."""
    given = case.given
    size = given.q.shape[-1] if given.q is not None else given.arrays["W_q"].shape[1] // case.recipe.heads
    return case.recipe.with_rules(scale=size**-0.5)


def of_another_setting(words: str) -> str:
    """Return what a setting computes that nobody asked for, in one line."""
    return f"attention with {words}, which was not asked for"


def two_at_once(single: Sequence[Candidate], seen: Sequence[Seen]) -> Iterator[Candidate]:
    """Yield pairs of mistakes, one made after the other; those that change nothing here are left out.

    Where each changes other steps, one order stands for both.
    """
    telling = [(candidate, touched(candidate, seen)) for candidate in single if tells(candidate, seen)]
    for (one, first), (other, second) in itertools.combinations(telling, 2):
        if one.names != other.names:
            names = tuple(sorted((*one.names, *other.names)))
            yield Candidate(names, composed(one, other))
            if meet(first, second):
                yield Candidate(names, composed(other, one))


def touched(candidate: Candidate, seen: Sequence[Seen]) -> set[str]:
    """Return the fields of a recipe that a mistake changes."""
    pairs = [(candidate.change(case), case.recipe) for case, _ in seen[:4]]
    return {field.name for made, old in pairs for field in fields(old) if differ(made, old, field.name)}


def differ(made: Recipe, old: Recipe, name: str) -> bool:
    return getattr(made, name) is not getattr(old, name)


SETTINGS, CHOSEN = {"rules", "heads", "groups", "positions"}, {"allowed", "project"}
"""Fields that say what is asked, and steps that some mistakes choose by them."""


def meet(first: set[str], second: set[str]) -> bool:
    """Say whether the order of two mistakes matters, by the fields that they change."""
    by_settings = any(one & SETTINGS and other & CHOSEN for one, other in ((first, second), (second, first)))
    return bool(first & second) or by_settings


def composed(one: Candidate, other: Candidate) -> Callable[[Case], Recipe]:
    return lambda case: other.change(replace(case, recipe=one.change(case)))


def tells(candidate: Candidate, seen: Sequence[Seen]) -> bool:
    """Say whether a mistake changes any of the first answers beyond rounding."""
    for case, _ in seen[:4]:
        right, wrong = predicted(case.recipe, case.given), predicted(candidate.change(case), case.given)
        if right is None or wrong is None or differs(wrong["output"], right, 40):
            return True
    return False


def explains(candidate: Candidate, seen: Sequence[Seen], digits: int) -> bool:
    """Say whether an explanation gives every answer, within rounding; what raised an error says nothing."""
    explained = 0
    for case, answer in seen:
        if answer.output is None:
            continue
        stages = predicted(candidate.change(case), case.given)
        if stages is None and answer.output.shape != expected(case)["output"].shape:
            continue  # neither fits these shapes
        if stages is None or differs(*seeing(answer.output, stages), digits):
            return False
        explained += 1
    return explained > 0


def seeing(output: Array, stages: Mapping[str, Array]) -> tuple[Array, Mapping[str, Array]]:
    """Return both without the rows in which a query sees no key."""
    return without_blind(output, stages), {**stages, "output": without_blind(stages["output"], stages)}
