"""What may explain evidence: mistakes of the catalogue, two of them in a row, and settings that nobody asked for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from attn_exp import mistakes
from attn_exp.arrays import Array
from attn_exp.diagnosis.case import Answer, Case, differs, expected, predicted
from attn_exp.experiment.recipes import features
from attn_exp.forms.pipeline import Recipe
from attn_exp.mistakes.masks import added, filled
from attn_exp.mistakes.mistake import Change as RecipeChange
from attn_exp.mistakes.scale import fixed, times
from attn_exp.mistakes.softmax import with_epsilon
from attn_exp.rules import names as rule_names
from attn_exp.rules import normalizer
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.mask import Mask
from attn_exp.rules.masks.window import Window
from attn_exp.rules.positions.rope import Rope
from attn_exp.rules.scores.alibi import Alibi
from attn_exp.rules.scores.score import Score
from attn_exp.rules.scores.sink import Sink
from attn_exp.rules.scores.softcap import Softcap

if TYPE_CHECKING:
    from attn_exp.diagnosis.readings import Reading
    from attn_exp.diagnosis.slips import Slip

Seen = Sequence[tuple[Case, Answer]]
Change = Callable[[Case], Recipe]
"""What becomes of the recipe of a case."""

GROUPS = (
    "scale", "products", "masks", "heads", "positions", "scores", "softmax", "precision", "behaviour",
)  # fmt: skip
"""Of two mistakes that nobody can tell apart here, the one of the earlier group is named."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """Mistakes by name, or a setting in the words of a run, and what it does to a case's recipe.

    `fitted`: a number in it was read off the answers, and `said` is what it is.
    """

    names: tuple[str, ...]
    change: Change
    fitted: bool = False
    said: str = ""


@dataclass(frozen=True, eq=False)
class Explained:
    """What explains evidence: mistakes by name, or a setting in the words of a run; nothing where all is empty.

    `alike` are other names that give the very same numbers. Of numbers in boxes, `reading` says how they are right, and
    `slips` are the wrong cells of each box, of which `slip` stands beside a mistake. `by` is the name of the
    explanation, and `view` the evidence as it was read then.
    """

    names: tuple[str, ...] = ()
    alike: tuple[tuple[str, ...], ...] = ()
    setting: str = ""
    reading: Reading | None = None
    slips: tuple[Slip | None, ...] = ()
    slip: Slip | None = None
    by: str = ""
    view: Any = None
    change: Change | None = None
    where: str = ""
    said: str = ""


def best(fits: Sequence[Candidate]) -> Explained | None:
    """Return the likeliest of the mistakes that fit; the others are named beside it."""
    if not fits:
        return None
    first, *rest = sorted(fits, key=rank)
    others = dict.fromkeys(tuple(sorted(set(candidate.names))) for candidate in rest)
    others.pop(tuple(sorted(set(first.names))), None)
    return Explained(first.names, tuple(others), change=first.change, said=first.said)


def rank(candidate: Candidate) -> tuple[int, ...]:
    """Return what puts the likelier explanation first: fewer mistakes, none fitted, those that need most, by group.

    Queries for keys and for values are likelier than queries for keys, and these keys for values. Without a softmax,
    nothing stands behind it.
    """
    made = [mistakes.mistake(name) for name in candidate.names]
    specific, place = sum(len(one.needs) for one in made), sum(GROUPS.index(one.group) for one in made)
    products = [name for name, one in zip(candidate.names, made, strict=True) if one.group == "products"]
    rare = sum(name not in PAIRED for name in products) if len(made) > 1 else 0
    rare += {"no_softmax", "scale_after_softmax"} <= set(candidate.names)
    return len(candidate.names), candidate.fitted, -specific, place, rare


def what_mistakes_compute(names: Sequence[str], where: str = "", said: str = "") -> str:
    """Return what mistakes do, in one line, where, if not everywhere, and what number was read off."""
    there = f"the right numbers, but where {where}; there " if where else ""
    says = " ".join([*(mistakes.mistake(name).says for name in names), *([f"{said}."] if said else [])])
    return f"{there}attention with {' and '.join(names)}: {says}"


def what_a_setting_computes(words: str) -> str:
    """Return what a setting computes that nobody asked for, in one line."""
    return f"attention with {words}, though the settings do not say so"


# One mistake


def every_mistake(cases: Sequence[Case]) -> Iterator[Candidate]:
    """Yield every way of every mistake that can show in what was asked, but those that only round."""
    present = features((case.recipe, case.given) for case in cases)
    for name in mistakes.names():
        mistake = mistakes.mistake(name)
        if set(mistake.needs) <= present and not mistake.remark and mistake.group != "precision":
            for place, change in enumerate(mistake.changes):
                yield Candidate((name, *filter(None, mistake.also[place : place + 1])), everywhere(change))
            if mistake.group == "scale" and any(case.explicit_scale for case in cases):
                yield from (Candidate((name,), where_not_said(change)) for change in mistake.changes)


def rounding_mistakes() -> Iterator[Candidate]:
    """Yield every way of the mistakes that only round more than needed."""
    for name in mistakes.names():
        mistake = mistakes.mistake(name)
        if mistake.group == "precision":
            yield from (Candidate((name,), everywhere(change)) for change in mistake.changes)


def everywhere(change: RecipeChange) -> Change:
    """Return a change of a recipe as one of a case, whatever the case."""
    return lambda case: change(case.recipe)


def where_not_said(change: RecipeChange) -> Change:
    """Return the change of a default: where a scale is passed, the function uses that."""
    return lambda case: case.recipe if case.explicit_scale else change(case.recipe)


# A small fill whose number is read off the answer


def fitted_fills(seen: Seen) -> Iterator[Candidate]:
    """Yield the fill, and the penalty, that the first answer with hidden keys shows."""
    for case, answer in seen:
        number = fitted_logit(case, answer, np.zeros_like)
        if number is not None:
            yield Candidate(("mask_small_fill",), everywhere(filled(number)), fitted=True)
            penalty = fitted_logit(case, answer, lambda logits: logits)
            if penalty is not None:
                yield Candidate(("mask_small_fill",), everywhere(added(penalty)), fitted=True)
            return


def fitted_logit(case: Case, answer: Answer, hidden: Callable[[Array], Array]) -> float | None:
    """Return the logit f that hidden keys would need beyond their `hidden` ones: the answer is linear in `z = e^f`.

    With A the sum of `e^l` over the seen keys and N that of `e^l v`, n hidden keys and M the sum of their values:
    `o (A + n z) = N + z M`. Of the estimates of z, one for each number of the answer, the middle one is taken, each
    weighed by how much it tells.
    """
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
    above, below = mixed - answer.output * total, answer.output * count - values
    clear = np.abs(below) > 1e-3 * np.abs(below).max(initial=0.0)
    with np.errstate(all="ignore"):
        share = float(np.sum((above * below)[clear]) / max(np.sum((below * below)[clear]), 1e-300))
    return float(np.log(share)) if np.isfinite(share) and share > 1e-30 else None


# A number that makes the answers: a factor of the scores, or what is added to the sums of the softmax


def fitted_numbers(seen: Seen, read_off: dict[object, float | None]) -> Iterator[Candidate]:
    """Yield the factor of the scores, and the number beside the sums, that the first wrong answers show.

    What was `read_off` an answer before is not read off again.
    """
    for made, starts in ((factor_of_scores, FACTORS), (beside_the_sums, PLACES)):
        for case, answer in seen[:2]:
            if (key := (made, case, answer)) not in read_off:
                read_off[key] = None if answer.output is None else fitted(case, answer.output, made, starts)
            number = read_off[key]
            if number is not None and not says_no_number(made, number):
                yield from made(number)
                yield from one_for_all_sizes(case, number) if made is factor_of_scores else ()
                break


def fitted_factors(first: Candidate, case: Case, output: Array) -> Iterator[Candidate]:
    """Yield the factor of the scores with which a mistake, or nothing at all, gives an output."""

    def beside(number: float) -> list[Candidate]:
        return [beside_factor(one) for one in factor_of_scores(number)]

    def beside_factor(factor: Candidate) -> Candidate:
        names = tuple(sorted((*first.names, *factor.names)))
        return replace(factor, names=names, change=composed(first, factor))

    number = fitted(case, output, beside, FACTORS)
    if number is not None and not is_no_factor(number):
        yield from beside(number)
        yield from map(beside_factor, one_for_all_sizes(case, number))


def says_no_number(made: object, number: float) -> bool:
    """Say whether a number that gives an answer is no factor, or nothing that people add to a sum: with 10**6 beside
    it nothing is left of the weights."""
    return is_no_factor(number) if made is factor_of_scores else number > PLACES[-1]


def is_no_factor(factor: float) -> bool:
    """Say whether a factor of the scores is 1 but for a root that was taken in float32, or is 0: then none is seen."""
    return abs(factor - 1.0) < 1e-5 or abs(factor) < 1e-6


def factor_of_scores(number: float) -> list[Candidate]:
    said = f"They are {number:.6g} times what they should be"
    return [Candidate(("scale_other",), everywhere(times(number)), True, said)]


def one_for_all_sizes(case: Case, factor: float) -> Iterator[Candidate]:
    """Yield the number that multiplies scores of any size, where a factor of the right logits was read off one case."""
    stages = predicted(case.recipe, case.given)
    if stages is not None and stages["scores"].size:
        place = np.unravel_index(np.abs(stages["scores"]).argmax(), stages["scores"].shape)
        number = factor * float(stages["logits"][place] / stages["scores"][place])
        if number:  # one number that is 0 is no scale
            said = f"They are divided by {1 / number:.6g}"
            yield Candidate(("scale_fixed",), everywhere(fixed(number)), True, said)


def beside_the_sums(place: float) -> list[Candidate]:
    number = 10.0**place
    return [Candidate(("sum_epsilon",), everywhere(with_epsilon(number)), True, f"It is {number:.4g}")]


FACTORS = tuple(sign * 2.0**power for sign in (1, -1) for power in np.arange(-5.5, 6.0, 0.5))
PLACES = tuple(np.arange(-11.0, 2.0))
STEPS, CLOSE = 12, 1e-7


def fitted(
    case: Case, output: Array, made: Callable[[float], list[Candidate]], starts: Sequence[float]
) -> float | None:
    """Return the number with which a candidate gives an output: Gauss-Newton steps from the nearest of some starts."""

    def missed(number: float) -> Array | None:
        stages = predicted(made(number)[0].change(case), case.given)
        return None if stages is None or stages["output"].shape != output.shape else stages["output"] - output

    def size(gap: Array | None) -> float:
        return np.inf if gap is None or not np.isfinite(gap).all() else float((gap * gap).sum())

    number = min(starts, key=lambda start: size(missed(start)))
    for _ in range(STEPS):
        gap, step = missed(number), 1e-6 * max(abs(number), 1.0)
        near = missed(number + step)
        if gap is None or near is None or not np.isfinite(size(gap)) or not np.isfinite(size(near)):
            return None
        slope = (near - gap) / step
        before, number = number, number - float((slope * gap).sum() / max((slope * slope).sum(), 1e-300))
        if number == before:
            break  # so it stays
    return number if size(missed(number)) < CLOSE * max(float((output * output).sum()), 1e-300) else None


# Two mistakes


def pairs_of(single: Sequence[Candidate], seen: Seen) -> Iterator[Candidate]:
    """Yield pairs of mistakes, one made after the other; those that change nothing here are left out.

    Where each changes other steps, one order stands for both.
    """
    likely = (one for one in single if one.names[0] in (*PAIRED, OF_ZEROS)
              or not mistakes.mistake(one.names[0]).of_code)  # fmt: skip
    some = samples(seen)
    telling = [(once(candidate), fields_changed(candidate, some)) for candidate in likely if tells(candidate, some)]
    for (one, first), (other, second) in itertools.combinations(telling, 2):
        if one.names != other.names and may_be_both(one.names[0], other.names[0]):
            names = tuple(sorted({*one.names, *other.names}))
            yield Candidate(names, composed(one, other))
            if order_matters(first, second):
                yield Candidate(names, composed(other, one))


PAIRED = (
    "keys_from_queries",
    "queries_from_keys",
    "values_from_queries",
    "batch_mixed",
    "keys_viewed",
    "weights_averaged",
    "scale_by_heads",
)
"""Mistakes of code alone that people make beside others; pairs of all would take too long."""


OF_ZEROS = "zero_scores_hidden"
"""It is made by who takes a triangle of the scores for a mask, and so beside a causal mask that is wrong alone."""


def may_be_both(one: str, other: str) -> bool:
    """Say whether two mistakes are made together."""
    return OF_ZEROS not in (one, other) or ("causal",) in (mistakes.mistake(one).needs, mistakes.mistake(other).needs)


def once(candidate: Candidate) -> Candidate:
    """Return a candidate that changes each case once, for many others that come after it."""
    return replace(candidate, change=cache(candidate.change))


def composed(one: Candidate, other: Candidate) -> Change:
    """Return one mistake after another as one change."""
    return lambda case: other.change(case.asking(one.change(case)))


def samples(seen: Seen) -> Seen:
    """Return the first questions, and the first with each other mask and score, and with scores of 0.

    Mistakes of masks show there alone.
    """
    found = dict[object, tuple[Case, Answer]]()
    for place, (case, answer) in enumerate(seen):
        rules = case.recipe.rules
        kinds = (*map(type, rules.masks), *map(type, rules.scores), case.rung == "equal inputs")
        found.setdefault(place if place < FIRST_FEW else kinds, (case, answer))
    return list(found.values())


FIRST_FEW = 4


def tells(candidate: Candidate, some: Seen) -> bool:
    """Say whether a mistake changes any of some answers beyond rounding."""
    for case, _ in some:
        right, wrong = predicted(case.recipe, case.given), predicted(candidate.change(case), case.given)
        if right is None or wrong is None or differs(wrong["output"], right, 40):
            return True
    return False


def fields_changed(candidate: Candidate, some: Seen) -> set[str]:
    """Return the fields of a recipe that a mistake changes."""
    pairs = [(candidate.change(case), case.recipe) for case, _ in some]
    return {
        field.name
        for made, old in pairs
        for field in fields(old)
        if getattr(made, field.name) is not getattr(old, field.name)
    }


SETTINGS, CHOSEN = {"rules", "heads", "groups", "positions"}, {"allowed", "project"}
"""Fields that say what is asked, and steps that some mistakes choose by them."""


def order_matters(first: set[str], second: set[str]) -> bool:
    """Say whether the order of two mistakes matters, by the fields that they change."""
    by_settings = any(one & SETTINGS and other & CHOSEN for one, other in ((first, second), (second, first)))
    return bool(first & second) or by_settings


# Another setting

RULES: tuple[tuple[str, Mask | Score], ...] = (
    ("mask=causal", Causal()),
    ("score=sink score.sink.logit=0", Sink(0.0)),
    ("score=alibi", Alibi()),
    ("score=alibi score.alibi.signed=true", Alibi(signed=True)),
    *((f"score=softcap score.softcap.cap={cap:g}", Softcap(cap)) for cap in (10.0, 20.0, 30.0, 50.0, 100.0)),
)


def other_settings(recipe: Recipe) -> Iterator[tuple[str, RecipeChange]]:
    """Yield other settings than those of a recipe, in the words of a run, each with the change that makes them."""
    known = {type(rule) for rule in (*recipe.rules.masks, *recipe.rules.scores)}
    for word, rule in RULES:
        if type(rule) not in known:
            yield word, with_masks(rule) if isinstance(rule, Mask) else with_score(rule)
    for left in range(1, 9) if not recipe.rules.masks else ():
        yield f"mask=[causal,window] mask.window.left={left}", with_masks(Causal(), Window(left, -1))
        yield f"mask=window mask.window.left={left} mask.window.right={left}", with_masks(Window(left, left))
    for name in rule_names("normalizer"):
        if name != recipe.rules.normalizer.name:
            yield f"normalizer={name}", with_normalizer(name)
    if not recipe.positions:
        yield "position=rope", with_rope(Rope())
        yield "position=rope position.rope.interleaved=true", with_rope(Rope(interleaved=True))


def with_normalizer(name: str) -> RecipeChange:
    """Return the change that normalizes the logits in another way."""
    return lambda recipe: recipe.with_rules(normalizer=normalizer(name))


def with_masks(*masks: Mask) -> RecipeChange:
    """Return the change that adds masks."""
    return lambda recipe: recipe.with_rules(masks=(*recipe.rules.masks, *masks))


def with_score(rule: Score) -> RecipeChange:
    """Return the change that adds a rule of scores."""
    return lambda recipe: recipe.with_rules(scores=(*recipe.rules.scores, rule))


def with_rope(rope: Rope) -> RecipeChange:
    """Return the change that turns queries and keys so, and marks no other positions."""
    return lambda recipe: replace(recipe, positions=(rope,))


def scaled_as_usual(case: Case) -> Recipe:
    """Return the recipe with the scale `1 / sqrt(d)`, whatever scale was asked for or passed."""
    given = case.given
    size = given.q.shape[-1] if given.q is not None else given.arrays["W_q"].shape[1] // case.recipe.heads
    return case.recipe.with_rules(scale=size**-0.5)


def is_right(seen: Seen, digits: int) -> bool:
    """Say whether all answers are right, to so many bits."""
    return all(answer.output is None or not differs(answer.output, expected(case), digits) for case, answer in seen)
