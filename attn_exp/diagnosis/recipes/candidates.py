"""What may explain evidence: mistakes of the catalogue, two of them in a row, and settings that nobody asked for."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from attn_exp import mistakes
from attn_exp.diagnosis.asking.case import Answer, Case, differs, expected, predicted
from attn_exp.experiment.recipes import features
from attn_exp.forms.pipeline import Recipe
from attn_exp.mistakes.mistake import Change as RecipeChange
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
    from attn_exp.diagnosis.sheets.readings import Reading
    from attn_exp.diagnosis.sheets.slips import Slip

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
