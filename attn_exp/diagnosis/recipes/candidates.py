"""Candidate explanations: single mistakes, pairs of them, and settings that the user did not request.

A recipe is what a case computes from its inputs. A `Candidate` changes it, for example to one without a scale. If the
changed recipe reproduces the answers, the candidate explains them. `find_explanation` tries one explanation after
another, and `choose_best` chooses among the candidates that fit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from typing import Any, Protocol

import numpy as np

from attn_exp import mistakes
from attn_exp.diagnosis.asking.case import (
    Answer,
    Case,
    Seen,
    differs,
    expected,
    is_blind,
    predicted,
    tolerance,
    without_blind,
)
from attn_exp.diagnosis.asking.offer import setup_of
from attn_exp.experiment.executing import list_features
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

Change = Callable[[Case], Recipe]
"""Maps a case to its changed recipe."""

GROUPS = (
    "scale", "products", "masks", "heads", "positions", "scores", "softmax", "precision", "behaviour",
)  # fmt: skip
"""Groups of mistakes by priority: if several mistakes give the same numbers, one of the earliest group is named."""
RARE_SCALES = frozenset(("scale_by_d", "scale_by_heads", "scale_twice", "scale_other"))
"""Wrong scales that are less likely than `scale_by_sqrt_d_model` if both are equal, as with 8 heads of size 8."""
PAIRED_CODE_MISTAKES = (
    "keys_from_queries",
    "queries_from_keys",
    "values_from_queries",
    "values_from_keys",
    "batch_mixed",
    "keys_viewed",
    "weights_averaged",
    "scale_by_heads",
)
"""Code-only mistakes that people combine with others; pairs of all mistakes would take too long."""
ZERO_SCORES = "zero_scores_hidden"
"""A mistake of code that hides every zero in a triangle of the scores; paired only with mistakes in causal masks."""
SETTINGS, CHOSEN = {"rules", "heads", "groups", "positions"}, {"allowed", "project"}
"""Recipe fields that are settings, and steps that some mistakes replace depending on these settings."""
RULES: tuple[tuple[str, Mask | Score], ...] = (
    ("mask=causal", Causal()),
    ("score=sink score.sink.logit=0", Sink(0.0)),
    ("score=alibi", Alibi()),
    ("score=alibi score.alibi.signed=true", Alibi(signed=True)),
    *((f"score=softcap score.softcap.cap={cap:g}", Softcap(cap)) for cap in (10.0, 20.0, 30.0, 50.0, 100.0)),
)
"""Rules that a function may apply although nobody requested them, each with its setting."""
FIRST_TURN = 1
"""The `turn` of explanations that are tried on every view of the evidence."""
SAMPLE_SIZE = 4
"""Number of cases at the start of the sample of `choose_sample`; mistakes without effect on it are not paired."""
EFFECT_DIGITS = 40
"""A mistake has no effect on a case if the right and the wrong output agree to this many bits."""
MAX_ROUNDING = 0.01
"""An answer is inconclusive if its tolerance exceeds this fraction of its largest number."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """Named mistakes or a setting, and the change that they make to a case's recipe.

    - `fitted`: a number of the change was fitted to the answers.
    - `message`: a sentence with that number, such as "They are divided by 8".
    """

    names: tuple[str, ...]
    change: Change
    fitted: bool = False
    message: str = ""


@dataclass(frozen=True, eq=False)
class Explained:
    """An explanation of the evidence: named mistakes or a setting. If all fields are empty, none was found.

    - `names`: the mistakes. `alike`: other mistakes that give the same numbers.
    - `setting`: the setting, as words of a command line.
    - `view`: the view of the evidence that is explained, such as a transposed sheet.
    - `change`, `message`: copied from the candidate with these `names`.

    Only for numbers that a person wrote into the boxes of a sheet:

    - `reading`: the `Reading` under which they are right.
    - `slips`: a `Slip` or None for each box.
    - `slip`: a slip in addition to the mistakes.
    """

    names: tuple[str, ...] = ()
    alike: tuple[tuple[str, ...], ...] = ()
    setting: str = ""
    reading: Any = None
    slips: tuple[Any, ...] = ()
    slip: Any = None
    view: Any = None
    change: Change | None = None
    message: str = ""


@dataclass(frozen=True)
class Explanation:
    """One kind of explanation to try.

    - `find`: takes a view of the evidence, and returns an explanation that fits, or None.
    - `turn`: when it is tried; smaller numbers come first. All explanations with the same `turn` are tried on one view
      before the next view. Only those with `FIRST_TURN` are tried on every view.
    - `rare`: skip it if answers are compared at float32 precision although their dtype is more precise.
    - `dear`: the search is slow and takes thousands of tries.
    """

    find: Callable[[Any], Explained | None]
    turn: int = 1
    rare: bool = False
    dear: bool = False


class Evidence(Protocol):
    """What to explain: the answers of a function, or the numbers that a person wrote into a sheet.

    - `explanations`: what to try, likelier and cheaper ones first.
    - `views`: yields the evidence at several precisions or in several layouts, and in more of them if `first`.
    """

    @property
    def explanations(self) -> Sequence[Explanation]: ...

    def views(self, first: bool) -> Iterator[Any]: ...

    def can_try(self, explanation: Explanation) -> bool: ...


def find_explanation(evidence: Evidence) -> Explained:
    """Return the first explanation that fits, or an empty one."""
    for turn in sorted({explanation.turn for explanation in evidence.explanations}):
        for view in evidence.views(first=turn == FIRST_TURN):
            for explanation in evidence.explanations:
                found = explanation.find(view) if explanation.turn == turn and view.can_try(explanation) else None
                if found is not None:
                    return replace(found, view=view)
    return Explained()


def choose_best(fitting: Sequence[Candidate]) -> Explained | None:
    """Return the likeliest of the candidates that fit, with the names of the others; None if there are none."""
    if not fitting:
        return None
    likeliest, *rest = sorted(fitting, key=rank)
    other_names = dict.fromkeys(tuple(sorted(set(candidate.names))) for candidate in rest)
    other_names.pop(tuple(sorted(set(likeliest.names))), None)
    return Explained(likeliest.names, tuple(other_names), change=likeliest.change, message=likeliest.message)


def rank(candidate: Candidate) -> tuple[int, ...]:
    """Return the sort key of a candidate; the likeliest candidate sorts first.

    Fewer mistakes come first, then those without a fitted number, then those with more preconditions, then early
    `GROUPS`, then common pairs. "Keys and values from queries" is likelier than "keys from queries, values from those
    keys", and a scale after a missing softmax is unlikely.
    """
    known = [mistakes.mistake(name) for name in candidate.names]
    preconditions = sum(len(mistake.needs) for mistake in known)
    priority = sum(GROUPS.index(mistake.group) for mistake in known)
    products = [name for name, mistake in zip(candidate.names, known, strict=True) if mistake.group == "products"]
    oddities = sum(name not in PAIRED_CODE_MISTAKES for name in products) if len(known) > 1 else 0
    oddities += len({name.partition("_from_")[2] for name in products if "_from_" in name}) > 1
    oddities += {"no_softmax", "scale_after_softmax"} <= set(candidate.names)
    return (
        len(candidate.names), candidate.fitted, -preconditions, priority, oddities,
        not RARE_SCALES.isdisjoint(candidate.names),
    )  # fmt: skip


def what_mistakes_compute(names: Sequence[str], message: str = "") -> str:
    says = " ".join([*(mistakes.mistake(name).says for name in names), *([f"{message}."] if message else [])])
    return f"attention with {' and '.join(names)}: {says}"


def what_a_setting_computes(words: str) -> str:
    return f"attention with {words}, though the settings do not include it"


# One mistake


def list_mistakes(cases: Sequence[Case]) -> Iterator[Candidate]:
    """Yield every variant of every mistake that these cases can show, except remarks and losses of precision."""
    features_present = list_features((case.recipe, case.given) for case in cases)
    # with one head size, a constant scale looks like any other factor
    has_one_size = len({setup_of(case).size for case in cases}) == 1
    for name in mistakes.names():
        mistake = mistakes.mistake(name)
        cannot_show = not set(mistake.needs) <= features_present or (name == "scale_fixed" and has_one_size)
        if cannot_show or mistake.remark or mistake.group == "precision":
            continue
        for index, change in enumerate(mistake.changes):
            second_name = filter(None, mistake.also[index : index + 1])  # only some variants have one
            yield Candidate((name, *second_name), everywhere(change))
        if mistake.group == "scale" and any(case.explicit_scale for case in cases):
            yield from (Candidate((name,), with_default_scale_only(change)) for change in mistake.changes)


def everywhere(change: RecipeChange) -> Change:
    """Apply a change of recipes to the recipe of every case."""
    return lambda case: change(case.recipe)


def with_default_scale_only(change: RecipeChange) -> Change:
    """Apply a change only to cases with the default scale; a scale that is passed is used as it is."""
    return lambda case: case.recipe if case.explicit_scale else change(case.recipe)


# Two mistakes


def pair_mistakes(single: Sequence[Candidate], seen: Seen) -> Iterator[Candidate]:
    """Yield pairs of mistakes, one applied after the other.

    Mistakes without effect on these cases are left out. Both orders are yielded only if their results can differ.
    """
    sample = choose_sample(seen)
    likely = (one for one in single if one.names[0] in (*PAIRED_CODE_MISTAKES, ZERO_SCORES)
              or not mistakes.mistake(one.names[0]).of_code)  # fmt: skip
    effective = [(cache_change(one), find_changed_fields(one, sample)) for one in likely if has_effect(one, sample)]
    for (first, first_fields), (second, second_fields) in itertools.combinations(effective, 2):
        if first.names != second.names and can_combine(first.names[0], second.names[0]):
            names = tuple(sorted({*first.names, *second.names}))
            yield Candidate(names, compose_changes(first, second))
            if can_order_matter(first_fields, second_fields):
                yield Candidate(names, compose_changes(second, first))


def can_combine(first: str, second: str) -> bool:
    return ZERO_SCORES not in (first, second) or ("causal",) in (
        mistakes.mistake(first).needs,
        mistakes.mistake(second).needs,
    )


def cache_change(candidate: Candidate) -> Candidate:
    """Cache the change of a candidate, because many other changes are applied after it."""
    return replace(candidate, change=cache(candidate.change))


def compose_changes(first: Candidate, second: Candidate) -> Change:
    """Apply `first`, then `second`."""
    return lambda case: second.change(case.with_recipe(first.change(case)))


def choose_sample(seen: Seen) -> list[Case]:
    """Return the first few cases, then one case of each further kind.

    The kind of a case is its mask types and score types; cases of equal inputs are separate kinds. Without the further
    cases, mistakes in masks would not show.
    """
    sample = dict[object, Case]()
    for index, (case, _) in enumerate(seen):
        rules = case.recipe.rules
        kind = (*map(type, rules.masks), *map(type, rules.scores), case.question == "equal inputs")
        sample.setdefault(index if index < SAMPLE_SIZE else kind, case)
    return list(sample.values())


def has_effect(candidate: Candidate, sample: Sequence[Case]) -> bool:
    """Return whether a candidate changes the output of any case; also True if an output cannot be computed."""
    outputs = ((predicted(case.recipe, case.given), predicted(candidate.change(case), case.given)) for case in sample)
    return any(
        right is None or wrong is None or differs(wrong["output"], right, EFFECT_DIGITS) for right, wrong in outputs
    )


def find_changed_fields(candidate: Candidate, sample: Sequence[Case]) -> set[str]:
    recipes = [(candidate.change(case), case.recipe) for case in sample]
    return {
        field.name
        for changed, recipe in recipes
        for field in fields(recipe)
        if getattr(changed, field.name) is not getattr(recipe, field.name)
    }


def can_order_matter(first: set[str], second: set[str]) -> bool:
    """Return whether the order of two changes to these recipe fields may matter.

    It may if both change the same field, or if one chooses a step by a setting that the other changes.
    """
    return bool(first & second or (first & SETTINGS and second & CHOSEN) or (second & SETTINGS and first & CHOSEN))


# Another setting


def window_settings(left: int) -> dict[str, tuple[Mask, ...]]:
    """Return the masks with windows of this size, by the settings that choose them."""
    return {f"mask=[causal,window] mask.window.left={left}": (Causal(), Window(left, -1)),
            f"mask=window mask.window.left={left} mask.window.right={left}": (Window(left, left),)}  # fmt: skip


def list_other_settings(recipe: Recipe) -> Iterator[tuple[str, RecipeChange]]:
    """Yield settings that a recipe does not have, as words of a command line, and the changes that they make."""
    types_present = {type(rule) for rule in (*recipe.rules.masks, *recipe.rules.scores)}
    for words, rule in RULES:
        if type(rule) not in types_present:
            yield words, with_masks(rule) if isinstance(rule, Mask) else with_score(rule)
    for left in range(1, 9) if not recipe.rules.masks else ():
        yield from ((words, with_masks(*masks)) for words, masks in window_settings(left).items())
    for name in rule_names("normalizer"):
        if name != recipe.rules.normalizer.name:
            yield f"normalizer={name}", partial(Recipe.with_rules, normalizer=normalizer(name))
    if not recipe.positions:
        yield "position=rope", partial(replace, positions=(Rope(),))
        yield "position=rope position.rope.interleaved=true", partial(replace, positions=(Rope(interleaved=True),))


def with_masks(*masks: Mask) -> RecipeChange:
    return lambda recipe: recipe.with_rules(masks=(*recipe.rules.masks, *masks))


def with_score(rule: Score) -> RecipeChange:
    return lambda recipe: recipe.with_rules(scores=(*recipe.rules.scores, rule))


def use_default_scale(case: Case) -> Recipe:
    """Return the recipe with scale `1 / sqrt(d)`, whatever scale was requested or passed."""
    given = case.given
    size = given.q.shape[-1] if given.q is not None else given.arrays["W_q"].shape[1] // case.recipe.heads
    return case.recipe.with_rules(scale=size**-0.5)


def is_right(seen: Seen, digits: int) -> bool:
    return all(answer.output is None or not differs(answer.output, expected(case), digits) for case, answer in seen)


def reproduces(recipe: Recipe, case: Case, answer: Answer, digits: int) -> bool:
    """Return whether a recipe reproduces an answer; False if logits are so large that any recipe would."""
    stages, output = predicted(recipe, case.given), answer.output
    if output is None or stages is None or is_blind(stages) or not np.isfinite(output).any():
        return False
    output = without_blind(output, stages)  # a query that sees no key may have any output
    stages = {**stages, "output": without_blind(stages["output"], stages)}
    is_inconclusive = tolerance(stages, digits) > MAX_ROUNDING * np.abs(output).max(initial=0.0)
    return not is_inconclusive and not differs(output, stages, digits)
