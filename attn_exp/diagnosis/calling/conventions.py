"""Detect conventions that code follows without any setting: mask format and polarity, a causal mask, positions.

A function that is right with such settings is checked with them, and the verdict names them.

In three parts: the settings under which the first answer is right, such as "mask=causal"; the sentence about them in
the verdict; and the format in which the function expects its masks, such as 0 and -inf with the axes `[b 1 t s]`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import product
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
from attn_exp.diagnosis.calling.ways_to_call import cases, has_right_shape, is_near, of_kept_queries, rounded
from attn_exp.diagnosis.recipes.candidates import Change, list_other_settings, reproduces, window_settings
from attn_exp.experiment.verdict import Verdict
from attn_exp.forms import steps
from attn_exp.forms.pipeline import Recipe, Setup, Step
from attn_exp.mistakes.mistake import Change as RecipeChange
from attn_exp.mistakes.mistake import together
from attn_exp.mistakes.scores import change_slopes, up_to_8
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.window import Window

OF_MASKS = ("mask", "mask_join", "align")
RULES = {"mask": OF_MASKS, "convention": (*OF_MASKS, "convention"), "position": ("position", "score"),
         "scale": ("scale",)}  # fmt: skip
"""Settings that change the result, by kind; a kind is fixed if the user typed one of its settings."""
WITH_KEYWORD = ("causal", "window", "alibi")
"""Settings with a keyword of the same role: if a function has the keyword, the setting is not assumed."""
UNSCALED = "scale=1"
TWO_TO_THE = "head=4"
"""A number of heads for which all variants of ALiBi slopes agree."""
BOTTOM_RIGHT, BLOCKS, INVERTED = "align=bottom_right", "convention=torch_mha", "mask_inverted"
NEIGHBOURS = "position.rope.interleaved=true"
CAUSAL = "mask=causal"
SHOWN = 8
"""Windows of at least this width have no effect in the first cases."""
Ways = Sequence[tuple[Caller, Case]]
"""Ways to pass a mask, each with a case that shows whether it is right."""


def are_open(request: Request, kind: str = "convention") -> bool:
    """Return whether the user left the settings of a kind open, so that others may be assumed."""
    return not request.as_typed and not {name.partition(".")[0] for name in request.names_typed} & set(RULES[kind])


def find_settings(caller: Caller, case: Case, answer: Answer, digits: int) -> list[str]:
    """Return the settings, such as "mask=causal", under which an answer would be right."""
    known = [(settings, change(case.recipe)) for settings, change in list_assumable_settings(caller, case)]
    possible = [*known, *list_other_widths(caller, case.recipe)]
    fitting = [settings for settings, recipe in possible if reproduces(recipe, case, answer, digits)]
    return [*fitting, *(f"{words} {BOTTOM_RIGHT}" for words in fitting if "mask=" in words and caller.offer.core)]


def list_other_widths(caller: Caller, recipe: Recipe) -> Iterator[tuple[str, Recipe]]:
    """Yield windows wider than the default, with their recipes, if the user did not set a width."""
    is_set = takes_window(caller) or any(setting.startswith("mask.window") for setting in caller.request.names_typed)
    for left in range(2, SHOWN + 1) if not (is_set or caller.request.as_typed) else ():
        masks = tuple(replace(mask, left=left) if isinstance(mask, Window) else mask for mask in recipe.rules.masks)
        if masks != recipe.rules.masks:
            yield f"mask.window.left={left}", recipe.with_rules(masks=masks)


def of_heads_inside(caller: Caller, case: Case) -> Iterator[tuple[str, Recipe]]:
    """Yield settings and recipe for each head count that may be used internally, plus causal ones where allowed."""
    offer, request, recipe = caller.offer, caller.request, case.recipe
    if offer.core or offer.takes("heads") or request.head is not None or recipe.heads > 1 or request.as_typed:
        return
    width = case.given.arrays["W_q"].shape[1]
    for count in (number for number in range(2, width) if width % number == 0):
        rules = request.rules(width // count, case.given.keys, case.given.keys)
        split = replace(recipe, heads=count, groups=count, rules=replace(rules, masks=recipe.rules.masks))
        yield f"head={count}", split
        if is_meant(CAUSAL, caller):
            yield f"{CAUSAL} head={count}", split.with_rules(masks=(*recipe.rules.masks, Causal()))


def find_width(settings: str, case: Case, answer: Answer, digits: int) -> str:
    """Return the settings with the true window size, as a longer case reveals it, or unchanged if it reveals none."""
    widest = f"mask.window.left={SHOWN}"
    ambiguous = next((known for known in (*window_settings(SHOWN), widest, CAUSAL) if known in settings), "")
    if not ambiguous or reproduces(case.recipe, case, answer, digits):
        return settings
    others = tuple(mask for mask in case.recipe.rules.masks if not isinstance(mask, Causal | Window))
    for left in range(SHOWN, case.given.keys):
        for window, masks in window_settings(left).items():
            if reproduces(case.recipe.with_rules(masks=(*others, *masks)), case, answer, digits):
                return settings.replace(ambiguous, f"mask.window.left={left}" if ambiguous == widest else window)
    return settings


def may_be_made(names: Collection[str], caller: Caller) -> bool:
    """Return whether a function can make these mistakes: some of them require that it takes a mask."""
    takes_masks = any(map(caller.offer.takes, ("mask", "padding", "lengths")))
    return takes_masks or not set(names) & {"mask_hides_all", "mask_of_first_entry", "mask_tiled_over_heads"}


def list_assumable_settings(caller: Caller, case: Case) -> list[tuple[str, RecipeChange]]:
    """Return the settings that may be assumed, and how each of them changes the recipe.

    Most ALiBi code has the paper's slopes only if the number of heads is a power of 2, so the check may use 4 heads.
    """
    single = [(settings, change) for settings, change in list_other_settings(case.recipe) if is_meant(settings, caller)]
    if case.recipe.heads & (case.recipe.heads - 1):
        single += [(f"{settings} {TWO_TO_THE}", together(change, change_slopes(up_to_8))) for settings, change in single
                   if settings == "score=alibi"]  # fmt: skip
    masks = [(settings, change) for settings, change in single if settings.startswith("mask=")]
    others = [(settings, change) for settings, change in single if not settings.startswith("mask=")]
    return [
        *single,
        *((f"{mask} {other}", together(hide, change)) for (mask, hide), (other, change) in product(masks, others)),
    ]


def is_meant(settings: str, caller: Caller) -> bool:
    """Return whether settings may be assumed: a mask or positions for which the function has no keyword."""
    kind = "mask" if settings.startswith("mask=") else "position"
    is_open = settings.startswith(("mask=", "position=", "score=alibi")) and are_open(caller.request, kind)
    takes = {role: caller.offer.takes(role) for role in WITH_KEYWORD} | {"window": takes_window(caller)}
    return is_open and not any(taken and role in settings for role, taken in takes.items())


def takes_window(caller: Caller) -> bool:
    """Return whether a function takes a window and has none by default."""
    default = caller.offer.defaults.get("window")
    return caller.offer.takes("window") and not (type(default) is int and default > 0)


def under(verdict: Verdict, request: Request, settings: str) -> Verdict:
    """Return the verdict on a function that was checked with these settings, which the user did not type."""
    if not verdict.passed:
        computes = f"with {settings}, which you did not set: {verdict.computes}"
        return replace(verdict, asked=request.words, computes=computes)
    why = (
        "which fits; to have the width checked too, set it"
        if settings.startswith("mask.window")
        else "though your settings do not include it; this is not a mistake"
    )
    computes = f"attention with {settings}, {why}"
    return replace(verdict, asked=request.words, right_under=settings, computes=computes)


def read_otherwise(verdict: Verdict, settings: str, passed: bool) -> Verdict:
    """Return the verdict on a function that is right except for inverted mask polarity.

    That is a bug as often as a convention; `passed` means that its keyword comes from a library with this convention.
    """
    computes = f"attention with {settings}: True in its mask means hidden"
    if passed:
        return replace(
            verdict, passed=True, mistakes=(), alike=(), smallest=None, computes=computes, right_under=settings
        )
    return replace(verdict, mistakes=(), alike=((INVERTED,),), computes=computes, right_under=settings)


# Mask formats: the one that gives the right answer to a case


def with_its_mask(caller: Caller, function: Bound, change: Change | None = None) -> Caller:
    """Return a caller with the mask format that the function expects; `change` is another mistake of the function.

    Use booleans if they give the right answer, or an additive mask if the function adds booleans to its logits.
    Otherwise, use the first format that gives the right answer in either polarity; key masks `[b s]` come last. If
    booleans give the right shape, try only other axes, and also ones and zeros if booleans have no effect. If nothing
    fits, use booleans if they give an answer, or else the first format that does.
    """
    case = find_case(caller, function, "masks", change)
    chosen = caller if case is None else find_mask_format(caller, function, case, change)
    is_padding = case is not None and not chosen.offer.takes("mask")  # its format was found among the key masks
    return chosen if is_padding else with_its_padding(chosen, function, change)


def find_mask_format(caller: Caller, function: Bound, case: Case, change: Change | None) -> Caller:
    """Return a caller with the mask format that fits one case, as `with_its_mask` describes."""
    answer = caller(case)
    if is_right_or_inverted(caller, case, answer):
        return caller
    if answer.output is not None and adds_booleans(caller, case, answer):
        added = replace(caller, masking=replace(caller.masking, kind="added"))
        return added if change else as_ones_and_zeros(added, "masking", case)
    formats = list_other_formats(caller, function, case, answer, change)
    return choose_format(caller, "masking", formats, has_right_shape(answer, case))


def adds_booleans(caller: Caller, case: Case, answer: Answer) -> bool:
    """Return whether a function adds booleans to its logits as if they were numbers."""
    recipes = (replace(case.recipe, forbid=step) for step in added_as_is(case, caller.request.blocks))
    stages = (predicted(recipe, case.given) for recipe in recipes)
    return any(made is not None and is_near(caller, answer, made) for made in stages)


def list_other_formats(caller: Caller, function: Bound, case: Case, answer: Answer, change: Change | None) -> Ways:
    """Return the formats that an answer to booleans leaves possible; `answer` may be an error."""
    usual = replace(caller.masking, attribute=caller.masking.attribute or attribute_of(answer.error))
    formats = [(replace(caller, masking=masking.like(usual)), case) for masking in MASKINGS]
    formats += of_keys_alone(caller, function, change)
    if not has_right_shape(answer, case):
        return formats
    kinds = {"booleans"}
    if same_numbers(answer.output, caller(case.with_masks(case.recipe.rules.masks[:-1])).output):
        kinds |= {"ones and zeros", "integers"}  # as a boolean, -inf is True: it may take only numbers
    return [
        (other, asked) for other, asked in formats
        if {other.masking.kind, other.padding.kind} <= kinds  # and it is not right only because few keys are hidden
        and not same_numbers(other(asked).output, caller(asked).output)
    ]  # fmt: skip


def as_ones_and_zeros(caller: Caller, role: str, case: Case) -> Caller:
    """Return a caller that passes ones and zeros if these have a tiny effect and -1e9 fails to hide keys.

    -inf hides a key even if the mask is multiplied before it is added; -1e9 hides it if the mask is added as it is.
    """
    masking = getattr(caller, role)
    with_lowest = replace(caller, **{role: replace(masking, lowest=ADDED)})
    if masking.kind != "added" or is_near(caller, with_lowest(case), case.right):
        return caller
    with_ones = replace(caller, **{role: replace(masking, kind="ones and zeros")})
    hidden = with_ones(case).output
    seen = with_ones(case.with_masks(case.recipe.rules.masks[:-1])).output
    if hidden is None or seen is None or hidden.shape != seen.shape or np.array_equal(hidden, seen):
        return caller
    return with_ones if np.allclose(hidden, seen) else caller


def added_as_is(case: Case, blocks: bool) -> Iterator[Step]:
    """Yield steps that add booleans to the logits as if they were numbers; with `blocks`, True means hidden.

    Masks before the last may be built into the function; these hide keys whatever is added to the logits.
    """

    def add(setup: Setup, logits: Array, allowed: Array) -> Array:
        return np.asarray(logits + (~allowed if blocks else allowed))

    yield add
    others = case.recipe.rules.masks[:-1]
    if others:
        yield lambda setup, logits, allowed: steps.forbid(
            setup, add(setup, logits, allowed), steps.allowed(replace(setup, rules=replace(setup.rules, masks=others)))
        )


def with_its_padding(caller: Caller, function: Bound, change: Change | None = None) -> Caller:
    """Return a caller with the format of padding masks that the function expects, as in `with_its_mask`."""
    case = find_case(caller, function, "padding", change) if caller.offer.takes("padding") else None
    if case is None:
        return caller
    answer = of_kept_queries(caller, case, caller(case))
    if is_right_or_inverted(caller, case, answer):
        return caller
    ways = [(replace(caller, padding=replace(padding, neutral=caller.padding.neutral)), case) for padding in PADDINGS]
    return choose_format(caller, "padding", ways, answer.output is not None)


def choose_format(caller: Caller, role: str, formats: Ways, is_answering: bool) -> Caller:
    """Return the first caller that is right in either polarity.

    If none is, return `caller` if it gives a usable answer, or else the first that answers, preferably with the right
    shape. `role` is the field of the caller whose formats are tried. If the user said what True means in masks, they
    are not additive.
    """
    answering, misshapen = list[Caller](), list[Caller]()
    for other, case in formats:
        answer = of_kept_queries(other, case, other(case))
        is_added = "added" in (other.masking.kind, other.padding.kind)
        if is_right_or_inverted(other, case, answer) and not (is_added and "convention" in other.request.names_typed):
            return as_ones_and_zeros(other, role, case)
        if answer.output is not None:
            (answering if has_right_shape(answer, case) else misshapen).append(other)
    return caller if is_answering else next(iter((*answering, *misshapen)), caller)


def is_right_or_inverted(caller: Caller, case: Case, answer: Answer) -> bool:
    return is_near(caller, answer, expected(case)) or is_right_inverted(caller, case, answer)


def is_right_inverted(caller: Caller, case: Case, answer: Answer) -> bool:
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
    questions = [question for question, role in (("masks", "mask"), ("padding", "padding")) if caller.offer.takes(role)]
    cases = (find_case(caller, function, question, change) for question in questions)
    return any(case is not None and is_right_inverted(caller, case, caller(case)) for case in cases)


def with_one_opposite(caller: Caller, function: Bound) -> Caller:
    """Return a caller that inverts the mask or the padding mask, if the function is right with just one inverted."""
    takes_both = caller.offer.takes("mask") and caller.offer.takes("padding")
    if not takes_both or caller.request.blocks or "added" in (caller.masking.kind, caller.padding.kind):
        return caller
    turned = list[str]()
    for role, question in (("masking", "masks"), ("padding", "padding")):
        case = find_case(caller, function, question)
        answer = None if case is None else of_kept_queries(caller, case, caller(case))
        if case is None or answer is None or not is_right_or_inverted(caller, case, answer):
            return caller
        turned += [] if is_near(caller, answer, expected(case)) else [role]
    opposite = {role: replace(getattr(caller, role), opposite=True) for role in turned}
    return replace(caller, **opposite) if len(turned) == 1 else caller


def hide(setup: Any, logits: Any, allowed: Any) -> Any:
    """Invert a mask: hide the keys that a query may attend to."""
    return np.where(allowed, -np.inf, logits)


def of_keys_alone(caller: Caller, function: Bound, change: Change | None = None) -> Ways:
    """Return the ways to pass the mask argument as a padding mask."""
    keyed = replace(caller, offer=caller.offer.as_padding())
    case = None if caller.offer.takes("padding") else find_case(keyed, function, "padding", change)
    if case is None:
        return []
    return [(replace(keyed, padding=replace(padding, neutral=caller.masking.neutral)), case) for padding in PADDINGS]


def find_case(caller: Caller, function: Bound, question: str, change: Change | None = None) -> Case | None:
    """Return the first case of this kind, or None; `change` alters its expected recipe."""
    found = (case for case in cases(caller, function, quick=True) if case.question == question)
    changed = (replace(case, recipe=change(case)) if change else case for case in found)
    return next((rounded(case, caller) for case in changed), None)
