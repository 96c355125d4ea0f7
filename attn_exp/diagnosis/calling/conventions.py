"""Detect conventions that code follows without any setting: mask format and polarity, a causal mask, positions.

A function that is right with such settings is checked with them, and the verdict names them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import (
    Answer,
    Case,
    expected,
    predicted,
    same_numbers,
    without_blind,
)
from attn_exp.diagnosis.asking.offer import ADDED, MASKINGS, PADDINGS, attribute_of
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.calling.call import Bound, Caller
from attn_exp.diagnosis.calling.ways_to_call import cases, is_near, of_kept_queries, rounded
from attn_exp.diagnosis.recipes.candidates import Change, gives, other_settings, words_of_windows
from attn_exp.experiment.verdict import Verdict
from attn_exp.forms import steps
from attn_exp.forms.pipeline import At, Recipe, Step
from attn_exp.mistakes.mistake import Change as RecipeChange
from attn_exp.mistakes.mistake import together
from attn_exp.mistakes.scores import sloped, up_to_8
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.window import Window

OF_MASKS = ("mask", "mask_join", "align")
RULES = {"mask": OF_MASKS, "convention": (*OF_MASKS, "convention"), "position": ("position", "score"),
         "scale": ("scale",)}  # fmt: skip
"""Settings that change the result, by kind; a kind is fixed if the user typed one of its settings."""
SAID_BY = ("causal", "window", "alibi")
"""Settings with a keyword of the same role: if a function has the keyword, the setting is not assumed."""
UNSCALED = "scale=1"
TWO_TO_THE = "head=4"
"""A number of heads for which all variants of ALiBi slopes agree."""
BOTTOM_RIGHT, BLOCKS, INVERTED = "align=bottom_right", "convention=torch_mha", "mask_inverted"
NEIGHBOURS = "position.rope.interleaved=true"


def are_open(request: Request, kind: str = "convention") -> bool:
    return not request.as_typed and not {word.partition(".")[0] for word in request.said} & set(RULES[kind])


def find_settings(caller: Caller, case: Case, answer: Answer, digits: int) -> list[str]:
    known = ((words, change(case.recipe)) for words, change in meant(caller, case))
    possible = [*known, *list_other_widths(caller, case.recipe)]
    fits = [words for words, recipe in possible if gives(recipe, case, answer, digits)]
    return [*fits, *(f"{words} {BOTTOM_RIGHT}" for words in fits if "mask=" in words and caller.offer.core)]


def list_other_widths(caller: Caller, recipe: Recipe) -> Iterator[tuple[str, Recipe]]:
    """Yield windows wider than the default, with their recipes, if the user did not set a width."""
    is_said = takes_window(caller) or any(word.startswith("mask.window") for word in caller.request.said)
    for left in range(2, SHOWN + 1) if not (is_said or caller.request.as_typed) else ():
        masks = tuple(replace(one, left=left) if isinstance(one, Window) else one for one in recipe.rules.masks)
        if masks != recipe.rules.masks:
            yield f"mask.window.left={left}", recipe.with_rules(masks=masks)


def of_heads_inside(caller: Caller, case: Case) -> Iterator[tuple[str, Recipe]]:
    """Yield settings and recipe for each head count that may be used internally, plus causal ones where allowed."""
    offer, request, recipe = caller.offer, caller.request, case.recipe
    if offer.core or offer.takes("heads") or request.head is not None or recipe.heads > 1 or request.as_typed:
        return
    width = case.given.arrays["W_q"].shape[1]
    for count in (one for one in range(2, width) if width % one == 0):
        rules = request.rules(width // count, case.given.keys, case.given.keys)
        made = replace(recipe, heads=count, groups=count, rules=replace(rules, masks=recipe.rules.masks))
        yield f"head={count}", made
        if is_meant(CAUSAL, caller):
            yield f"{CAUSAL} head={count}", made.with_rules(masks=(*recipe.rules.masks, Causal()))


def find_width(words: str, case: Case, answer: Answer, digits: int) -> str:
    """Return `words` with the true window size, as a longer case reveals it, or unchanged if it reveals none."""
    widest = f"mask.window.left={SHOWN}"
    shown = next((one for one in (*words_of_windows(SHOWN), widest, CAUSAL) if one in words), "")
    others = tuple(one for one in case.recipe.rules.masks if not isinstance(one, Causal | Window))
    is_known = not shown or gives(case.recipe, case, answer, digits)
    for left in range(SHOWN, case.given.keys) if not is_known else ():
        for said, masks in words_of_windows(left).items():
            if gives(case.recipe.with_rules(masks=(*others, *masks)), case, answer, digits):
                return words.replace(shown, f"mask.window.left={left}" if shown == widest else said)
    return words


CAUSAL = "mask=causal"
SHOWN = 8
"""Windows of at least this width have no effect in the first cases."""


def may_be_made(names: Collection[str], caller: Caller) -> bool:
    given = any(map(caller.offer.takes, ("mask", "padding", "lengths")))
    return given or not set(names) & {"mask_hides_all", "mask_of_first_entry", "mask_tiled_over_heads"}


def meant(caller: Caller, case: Case) -> list[tuple[str, RecipeChange]]:
    """Return the settings that may be assumed, and how each of them changes the recipe.

    Most ALiBi code has the paper's slopes only if the number of heads is a power of 2, so the check may use 4 heads.
    """
    single = [(words, change) for words, change in other_settings(case.recipe) if is_meant(words, caller)]
    closed = [(f"{words} {TWO_TO_THE}", together(change, sloped(up_to_8))) for words, change in single
              if words == "score=alibi" and case.recipe.heads & (case.recipe.heads - 1)]  # fmt: skip
    masks, marks = (
        [one for one in (*single, *closed) if one[0].startswith("mask=") is masked] for masked in (True, False)
    )
    both = [(f"{words} {marked}", together(change, mark)) for words, change in masks for marked, mark in marks]
    return [*single, *closed, *both]


def is_meant(words: str, caller: Caller) -> bool:
    """Return whether settings may be assumed: a mask or positions for which the function has no keyword."""
    kind = "mask" if words.startswith("mask=") else "position"
    known = words.startswith(("mask=", "position=", "score=alibi")) and are_open(caller.request, kind)
    taken = {role for role in SAID_BY if caller.offer.takes(role)} - (set() if takes_window(caller) else {"window"})
    return known and not any(role in words for role in taken)


def takes_window(caller: Caller) -> bool:
    """Return whether a function takes a window and has none by default."""
    default = caller.offer.defaults.get("window")
    return caller.offer.takes("window") and not (type(default) is int and default > 0)


def under(verdict: Verdict, request: Request, words: str) -> Verdict:
    why = (
        "which fits; to have the width checked too, set it"
        if words.startswith("mask.window")
        else "though your settings do not include it; this is not a mistake"
    )
    said = f"attention with {words}, {why}"
    if verdict.passed:
        return replace(verdict, asked=request.words, right_under=words, computes=said)
    computes = f"under {words}, which your settings do not include: {verdict.computes}"
    return replace(verdict, asked=request.words, computes=computes)


def read_otherwise(verdict: Verdict, words: str, passed: bool) -> Verdict:
    """Return the verdict on a function that is right except for inverted mask polarity.

    That is a bug as often as a convention; `passed` means that its keyword comes from a library with this convention.
    """
    said = f"attention with {words}: True in its mask means hidden"
    if passed:
        return replace(verdict, passed=True, mistakes=(), alike=(), smallest=None, computes=said, right_under=words)
    return replace(verdict, mistakes=(), alike=((INVERTED,),), computes=said, right_under=words)


# Mask formats: the one that gives the right answer to a case

Ways = Sequence[tuple[Caller, Case]]


def with_its_mask(caller: Caller, function: Bound, change: Change | None = None) -> Caller:
    """Return a caller with the mask format that the function expects; `change` is another mistake of the function.

    Use booleans if they give the right answer, or an additive mask if the function adds booleans to its logits.
    Otherwise, use the first format that gives the right answer in either polarity; key masks `[b s]` come last. If
    booleans give the right shape, try only other axes, and also ones and zeros if booleans have no effect. If nothing
    fits, use booleans if they give an answer, or else the first format that does.
    """
    case = question(caller, function, "masks", change)
    if case is None:
        return with_its_padding(caller, function, change)
    answer = caller(case)
    if is_near(caller, answer, expected(case)) or is_turned(caller, case, answer):
        return with_its_padding(caller, function, change)
    if answer.output is not None:
        added = replace(caller, masking=replace(caller.masking, kind="added"))
        adding = (replace(case.recipe, forbid=one) for one in added_as_is(case, caller.request.blocks))
        made = (predicted(recipe, case.given) for recipe in adding)
        if any(one is not None and is_near(caller, answer, one) for one in made):
            return with_its_padding(added if change else as_ones_and_zeros(added, "masking", case), function, change)
    right = expected(case)["output"]
    known = replace(caller.masking, attribute=caller.masking.attribute or attribute_of(answer.error))
    is_judged = answer.output is not None and answer.output.shape == right.shape
    keyed = list(of_keys_alone(caller, function, change))
    asked = {"booleans"}
    if is_judged and same_numbers(answer.output, caller(case.with_masks(case.recipe.rules.masks[:-1])).output):
        asked |= {"ones and zeros", "integers"}  # as a boolean, -inf is True: it may take only numbers
    others = [*((replace(caller, masking=one.like(known)), case) for one in MASKINGS), *keyed]
    found, answered = search_formats(
        [way for way in others if not is_judged or {way[0].masking.kind, way[0].padding.kind} <= asked]
    )
    found = found and as_ones_and_zeros(found, "masking", case)
    chosen = found or (caller if is_judged else answered) or caller
    return with_its_padding(chosen, function, change) if chosen.offer.takes("mask") else chosen


def as_ones_and_zeros(caller: Caller, role: str, case: Case) -> Caller:
    """Return a caller that passes ones and zeros if these have a tiny effect and -1e9 fails to hide keys.

    -inf hides a key even if the mask is multiplied before it is added; -1e9 hides it if the mask is added as it is.
    """
    way = getattr(caller, role)
    if way.kind != "added" or is_near(caller, replace(caller, **{role: replace(way, lowest=ADDED)})(case), case.right):
        return caller
    other = replace(caller, **{role: replace(way, kind="ones and zeros")})
    hidden, seen = other(case).output, other(case.with_masks(case.recipe.rules.masks[:-1])).output
    if hidden is None or seen is None or hidden.shape != seen.shape or np.array_equal(hidden, seen):
        return caller
    return other if np.allclose(hidden, seen) else caller


def added_as_is(case: Case, blocks: bool) -> Iterator[Step]:
    """Yield steps that add booleans to the logits as if they were numbers; with `blocks`, True means hidden.

    Masks before the last may be built into the function; these hide keys whatever is added to the logits.
    """

    def add(at: At, logits: Array, allowed: Array) -> Array:
        return np.asarray(logits + (~allowed if blocks else allowed))

    yield add
    others = case.recipe.rules.masks[:-1]
    if others:
        yield lambda at, logits, allowed: steps.forbid(
            at, add(at, logits, allowed), steps.allowed(replace(at, rules=replace(at.rules, masks=others)))
        )


def with_its_padding(caller: Caller, function: Bound, change: Change | None = None) -> Caller:
    case = question(caller, function, "padding", change) if caller.offer.takes("padding") else None
    answer = None if case is None else of_kept_queries(caller, case, caller(case))
    if case is None or answer is None or is_near(caller, answer, expected(case)) or is_turned(caller, case, answer):
        return caller
    ways = [(replace(caller, padding=replace(one, neutral=caller.padding.neutral)), case) for one in PADDINGS]
    found, answered = search_formats(ways)
    found = found and as_ones_and_zeros(found, "padding", case)
    return found or (caller if answer.output is not None else answered) or caller


def search_formats(ways: Ways) -> tuple[Caller | None, Caller | None]:
    """Return the first caller that is right in either polarity, and the first that answers at all.

    For the latter, answers of the right shape come first.
    """
    answered: list[Caller] = []
    odd: list[Caller] = []
    for caller, case in ways:
        answer = of_kept_queries(caller, case, caller(case))
        if is_near(caller, answer, expected(case)) or is_turned(caller, case, answer):
            return caller, caller
        if answer.output is not None:
            (answered if answer.output.shape == expected(case)["output"].shape else odd).append(caller)
    return None, next(iter([*answered, *odd]), None)


def is_turned(caller: Caller, case: Case, answer: Answer) -> bool:
    """Return whether an answer is right with inverted mask polarity; False if the request asks for that polarity."""
    if caller.request.blocks or answer.output is None:
        return False
    turned = predicted(replace(case.recipe, forbid=hide), case.given)
    if turned is None:
        return False
    seen = {**turned, "output": without_blind(turned["output"], turned)}  # rows without keys are open
    return is_near(caller, replace(answer, output=without_blind(answer.output, turned)), seen)


def hides(caller: Caller, function: Bound, change: Change | None = None) -> bool:
    """Return whether True means hidden in a function's masks, or in its padding masks."""
    roles = {"masks": "mask", "padding": "padding"}
    asked = (question(caller, function, rung, change) for rung, role in roles.items() if caller.offer.takes(role))
    return any(case is not None and is_turned(caller, case, caller(case)) for case in asked)


def with_one_opposite(caller: Caller, function: Bound) -> Caller:
    is_told = caller.offer.takes("mask") and caller.offer.takes("padding") and not caller.request.blocks
    if not is_told or "added" in (caller.masking.kind, caller.padding.kind):
        return caller
    turned = list[str]()
    for name, rung in (("masking", "masks"), ("padding", "padding")):
        case = question(caller, function, rung)
        answer = None if case is None else of_kept_queries(caller, case, caller(case))
        if case is None or answer is None:
            return caller
        if not is_near(caller, answer, expected(case)):
            turned += [name] if is_turned(caller, case, answer) else [name, name]
    way = getattr(caller, turned[0]) if len(turned) == 1 else None
    return caller if way is None else replace(caller, **{turned[0]: replace(way, opposite=True)})


def hide(at: Any, logits: Any, allowed: Any) -> Any:
    """Invert a mask: hide the keys that a query may attend to."""
    return np.where(allowed, -np.inf, logits)


def of_keys_alone(caller: Caller, function: Bound, change: Change | None = None) -> Iterator[tuple[Caller, Case]]:
    if caller.offer.takes("padding"):
        return
    keyed = replace(caller, offer=caller.offer.of_keys_alone())
    case = question(keyed, function, "padding", change)
    if case is not None:
        for one in PADDINGS:
            yield replace(keyed, padding=replace(one, neutral=caller.masking.neutral)), case


def question(caller: Caller, function: Bound, rung: str, change: Change | None = None) -> Case | None:
    """Return the first case of this kind, or None; `change` alters its expected recipe."""
    asked = next((case for case in cases(caller, function, quick=True) if case.rung == rung), None)
    asked = asked if asked is None or change is None else replace(asked, recipe=change(asked))
    return None if asked is None else rounded(asked, caller)
