"""Detect what a function does by convention, without any setting: causal masking, positions, mask format and polarity.

A function that is right with additional settings is checked with them, and the verdict names them.

This file has three parts:

1. Find the settings under which the first answer is right, such as "mask=causal".
2. Write the sentence about these settings in the verdict.
3. Find the format in which the function expects its masks, such as 0 and -inf with the axes `[b 1 t s]`.
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
from attn_exp.diagnosis.calling.ways_to_call import (
    accept_padding_queries,
    has_right_shape,
    is_near,
    list_cases,
    round_inputs,
)
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
"""Settings that change the result, by kind. If the user typed a setting, no other setting of its kind is assumed."""
WITH_KEYWORD = ("causal", "window", "alibi")
"""Roles of keywords. If a function has such a keyword, settings that contain the word are not assumed."""
UNSCALED = "scale=1"
TWO_TO_THE = "head=4"
"""A number of heads for which all variants of ALiBi slopes agree."""
BOTTOM_RIGHT, BLOCKS, INVERTED = "align=bottom_right", "convention=torch_mha", "mask_inverted"
NEIGHBOURS = "position.rope.interleaved=true"
CAUSAL = "mask=causal"
FULL_WIDTH = 8
"""Windows of at least this width hide nothing in the first cases, so these do not show the exact width."""
Formats = Sequence[tuple[Caller, Case]]
"""Callers that pass a mask in different formats, each with a case that shows whether its format is right."""


def are_open(request: Request, kind: str = "convention") -> bool:
    """Return whether settings of a kind may be assumed, because the user typed none of them."""
    return not request.as_typed and not {name.partition(".")[0] for name in request.names_typed} & set(RULES[kind])


def find_settings(caller: Caller, case: Case, answer: Answer, digits: int) -> list[str]:
    """Return the settings, such as "mask=causal", under which an answer would be right."""
    known = [(settings, change(case.recipe)) for settings, change in list_assumable_settings(caller, case)]
    possible = [*known, *list_other_widths(caller, case.recipe)]
    fitting = [settings for settings, recipe in possible if reproduces(recipe, case, answer, digits)]
    # the first case has as many queries as keys, so it does not show how a causal mask is aligned
    return [*fitting, *(f"{words} {BOTTOM_RIGHT}" for words in fitting if "mask=" in words and caller.offer.core)]


def list_other_widths(caller: Caller, recipe: Recipe) -> Iterator[tuple[str, Recipe]]:
    """Yield other widths for the windows of a recipe, with the changed recipes, unless the user set a width."""
    is_set = takes_window(caller) or any(setting.startswith("mask.window") for setting in caller.request.names_typed)
    for left in range(2, FULL_WIDTH + 1) if not (is_set or caller.request.as_typed) else ():
        masks = tuple(replace(mask, left=left) if isinstance(mask, Window) else mask for mask in recipe.rules.masks)
        if masks != recipe.rules.masks:
            yield f"mask.window.left={left}", recipe.with_rules(masks=masks)


def list_inner_heads(caller: Caller, case: Case) -> Iterator[tuple[str, Recipe]]:
    """Yield each number of heads into which a function of x may split its width, as a setting and a recipe.

    If a causal mask may be assumed too, each number is also yielded together with it.
    """
    offer, request, recipe = caller.offer, caller.request, case.recipe
    if offer.core or offer.takes("heads") or request.head is not None or recipe.heads > 1 or request.as_typed:
        return
    width = case.given.arrays["W_q"].shape[1]
    for count in (number for number in range(2, width) if width % number == 0):
        rules = request.rules(width // count, case.given.keys, case.given.keys)
        split = replace(recipe, heads=count, groups=count, rules=replace(rules, masks=recipe.rules.masks))
        yield f"head={count}", split
        if may_assume(CAUSAL, caller):
            yield f"{CAUSAL} head={count}", split.with_rules(masks=(*recipe.rules.masks, Causal()))


def find_width(settings: str, case: Case, answer: Answer, digits: int) -> str:
    """Return the settings with the window size that a longer case reveals, or unchanged if it reveals none."""
    widest = f"mask.window.left={FULL_WIDTH}"
    ambiguous = next((known for known in (*window_settings(FULL_WIDTH), widest, CAUSAL) if known in settings), "")
    if not ambiguous or reproduces(case.recipe, case, answer, digits):
        return settings
    others = tuple(mask for mask in case.recipe.rules.masks if not isinstance(mask, Causal | Window))
    for left in range(FULL_WIDTH, case.given.keys):
        for window, masks in window_settings(left).items():
            if reproduces(case.recipe.with_rules(masks=(*others, *masks)), case, answer, digits):
                return settings.replace(ambiguous, f"mask.window.left={left}" if ambiguous == widest else window)
    return settings


def can_make_mistakes(names: Collection[str], caller: Caller) -> bool:
    """Return whether a function can make these mistakes; some are possible only if it takes a mask."""
    takes_masks = any(map(caller.offer.takes, ("mask", "padding", "lengths")))
    return takes_masks or not set(names) & {"mask_hides_all", "mask_of_first_entry", "mask_tiled_over_heads"}


def list_assumable_settings(caller: Caller, case: Case) -> list[tuple[str, RecipeChange]]:
    """Return the settings that may be assumed, and how each of them changes the recipe.

    ALiBi is also listed with 4 heads: most code has the paper's slopes only if the number of heads is a power of 2.
    """
    single = [
        (settings, change) for settings, change in list_other_settings(case.recipe) if may_assume(settings, caller)
    ]
    if case.recipe.heads & (case.recipe.heads - 1):
        single += [(f"{settings} {TWO_TO_THE}", together(change, change_slopes(up_to_8))) for settings, change in single
                   if settings == "score=alibi"]  # fmt: skip
    masks = [(settings, change) for settings, change in single if settings.startswith("mask=")]
    others = [(settings, change) for settings, change in single if not settings.startswith("mask=")]
    return [
        *single,
        *((f"{mask} {other}", together(hide, change)) for (mask, hide), (other, change) in product(masks, others)),
    ]


def may_assume(settings: str, caller: Caller) -> bool:
    """Return whether a mask or positions may be assumed: the user set none, and the function has no keyword for it."""
    kind = "mask" if settings.startswith("mask=") else "position"
    is_open = settings.startswith(("mask=", "position=", "score=alibi")) and are_open(caller.request, kind)
    takes = {role: caller.offer.takes(role) for role in WITH_KEYWORD} | {"window": takes_window(caller)}
    return is_open and not any(taken and role in settings for role, taken in takes.items())


def takes_window(caller: Caller) -> bool:
    """Return whether a function takes a window and has none by default."""
    default = caller.offer.defaults.get("window")
    return caller.offer.takes("window") and not (type(default) is int and default > 0)


def report_under(verdict: Verdict, request: Request, settings: str) -> Verdict:
    """Return the verdict on a function that was checked with these settings, which the user did not type."""
    if not verdict.passed:
        computes = f"with {settings}, which you did not set: {verdict.computes}"
        return replace(verdict, asked=request.words, computes=computes)
    why = (
        "which fits; set the width to have it checked too"
        if settings.startswith("mask.window")
        else "though your settings do not include it; this is not a mistake"
    )
    computes = f"attention with {settings}, {why}"
    return replace(verdict, asked=request.words, right_under=settings, computes=computes)


def report_inverted(verdict: Verdict, settings: str, passed: bool) -> Verdict:
    """Return the verdict on a function that is right except for inverted mask polarity.

    This is a bug as often as a convention. With `passed`, it counts as a convention, because the name of the keyword
    comes from a library that has this convention.
    """
    computes = f"attention with {settings}: True in its mask means hidden"
    if passed:
        return replace(
            verdict, passed=True, mistakes=(), alike=(), smallest=None, computes=computes, right_under=settings
        )
    return replace(verdict, mistakes=(), alike=((INVERTED,),), computes=computes, right_under=settings)


# Mask formats: the one that gives the right answer to a case


def with_its_mask(caller: Caller, function: Bound, change: Change | None = None) -> Caller:
    """Return a caller with the format of masks and padding masks that the function expects.

    The first of these formats that applies is used:

    1. Booleans, if they give the right answer, in either polarity.
    2. An additive mask, if the function adds booleans to its logits.
    3. The first other format that gives the right answer, in either polarity; key masks `[b s]` come last. If booleans
       give an answer of the right shape, only booleans with other axes are tried, and numbers if booleans do nothing.
    4. Booleans, if they give an answer of the right shape, or else the first format that gives an answer.

    If the function has another mistake, `change` is that mistake, and answers with it count as right here.
    """
    case = find_case(caller, function, "masks", change)
    chosen = caller if case is None else find_mask_format(caller, function, case, change)
    is_key_mask = case is not None and not chosen.offer.takes("mask")  # the mask argument is a padding mask
    return chosen if is_key_mask else with_its_padding(chosen, function, change)


def find_mask_format(caller: Caller, function: Bound, case: Case, change: Change | None) -> Caller:
    """Return a caller with the mask format that fits one case, as `with_its_mask` describes."""
    answer = caller(case)
    if is_right_or_inverted(caller, case, answer):
        return caller
    if answer.output is not None and adds_booleans(caller, case, answer):
        added = replace(caller, masking=replace(caller.masking, kind="added"))
        return added if change else prefer_ones_and_zeros(added, "masking", case)
    formats = list_other_formats(caller, function, case, answer, change)
    return choose_format(caller, "masking", formats, has_right_shape(answer, case))


def adds_booleans(caller: Caller, case: Case, answer: Answer) -> bool:
    """Return whether a function adds booleans to its logits as if they were numbers."""
    recipes = (replace(case.recipe, forbid=step) for step in list_adding_steps(case, caller.request.blocks))
    predictions = (predicted(recipe, case.given) for recipe in recipes)
    return any(stages is not None and is_near(caller, answer, stages) for stages in predictions)


def list_other_formats(caller: Caller, function: Bound, case: Case, answer: Answer, change: Change | None) -> Formats:
    """Return the formats that are still possible after the `answer` to a boolean mask, which may be an error."""
    usual = replace(caller.masking, attribute=caller.masking.attribute or attribute_of(answer.error))
    formats = [(replace(caller, masking=masking.like(usual)), case) for masking in MASKINGS]
    formats += list_key_masks(caller, function, change)
    if not has_right_shape(answer, case):
        return formats
    kinds = {"booleans"}  # and no additive mask, because -inf converted to a boolean is True
    if same_numbers(answer.output, caller(case.with_masks(case.recipe.rules.masks[:-1])).output):
        kinds |= {"ones and zeros", "integers"}  # booleans have no effect: the function may expect numbers
    return [
        (other, other_case) for other, other_case in formats
        if {other.masking.kind, other.padding.kind} <= kinds
        # a format that changes nothing could be right only because few keys are hidden
        and not same_numbers(other(other_case).output, caller(other_case).output)
    ]  # fmt: skip


def prefer_ones_and_zeros(caller: Caller, role: str, case: Case) -> Caller:
    """Return a caller that passes ones and zeros, not an additive mask, if these have a tiny effect and -1e9 fails.

    Such a function multiplies its mask by a wrong fill value, such as 1e-9, before it adds the mask. Then -inf still
    hides keys, but -1e9 does not.
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


def list_adding_steps(case: Case, blocks: bool) -> Iterator[Step]:
    """Yield steps that add booleans to the logits as if they were numbers; with `blocks`, True means hidden.

    The second step is for functions in which all masks but the last are built in. These masks hide keys as usual.
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
    answer = accept_padding_queries(caller, case, caller(case))
    if is_right_or_inverted(caller, case, answer):
        return caller
    formats = [(replace(caller, padding=replace(padding, neutral=caller.padding.neutral)), case)
               for padding in PADDINGS]  # fmt: skip
    return choose_format(caller, "padding", formats, answer.output is not None)


def choose_format(caller: Caller, role: str, formats: Formats, is_answering: bool) -> Caller:
    """Return the first caller whose answer is right, in either polarity.

    If none is right, return `caller` if `is_answering`, or else the first that answers, preferably with the right
    shape. An additive mask does not count as right if the user set what True means. `role` is the field of the caller
    that contains the format, "masking" or "padding".
    """
    answering, misshapen = list[Caller](), list[Caller]()
    for other, case in formats:
        answer = accept_padding_queries(other, case, other(case))
        is_added = "added" in (other.masking.kind, other.padding.kind)
        if is_right_or_inverted(other, case, answer) and not (is_added and "convention" in other.request.names_typed):
            return prefer_ones_and_zeros(other, role, case)
        if answer.output is not None:
            (answering if has_right_shape(answer, case) else misshapen).append(other)
    return caller if is_answering else next(iter((*answering, *misshapen)), caller)


def is_right_or_inverted(caller: Caller, case: Case, answer: Answer) -> bool:
    return is_near(caller, answer, expected(case)) or is_right_inverted(caller, case, answer)


def is_right_inverted(caller: Caller, case: Case, answer: Answer) -> bool:
    """Return whether an answer is right with inverted mask polarity; False if the request asks for that polarity."""
    if caller.request.blocks or answer.output is None:
        return False
    inverted = predicted(replace(case.recipe, forbid=hide_allowed), case.given)
    if inverted is None:
        return False
    # queries that see no key are not compared: functions return different things for them
    comparable = {**inverted, "output": without_blind(inverted["output"], inverted)}
    return is_near(caller, replace(answer, output=without_blind(answer.output, inverted)), comparable)


def expects_inverted_masks(caller: Caller, function: Bound, change: Change | None = None) -> bool:
    """Return whether True means hidden in a function's masks, or in its padding masks."""
    questions = [question for question, role in (("masks", "mask"), ("padding", "padding")) if caller.offer.takes(role)]
    cases = (find_case(caller, function, question, change) for question in questions)
    return any(case is not None and is_right_inverted(caller, case, caller(case)) for case in cases)


def with_one_opposite(caller: Caller, function: Bound) -> Caller:
    """Return a caller that inverts the mask or the padding mask, if the function is right with just one inverted."""
    takes_both = caller.offer.takes("mask") and caller.offer.takes("padding")
    if not takes_both or caller.request.blocks or "added" in (caller.masking.kind, caller.padding.kind):
        return caller
    inverted_roles = list[str]()
    for role, question in (("masking", "masks"), ("padding", "padding")):
        case = find_case(caller, function, question)
        answer = None if case is None else accept_padding_queries(caller, case, caller(case))
        if case is None or answer is None or not is_right_or_inverted(caller, case, answer):
            return caller
        inverted_roles += [] if is_near(caller, answer, expected(case)) else [role]
    inverted = {role: replace(getattr(caller, role), opposite=True) for role in inverted_roles}
    return replace(caller, **inverted) if len(inverted_roles) == 1 else caller


def hide_allowed(setup: Any, logits: Any, allowed: Any) -> Any:
    """Invert a mask: hide the keys that a query may attend to."""
    return np.where(allowed, -np.inf, logits)


def list_key_masks(caller: Caller, function: Bound, change: Change | None = None) -> Formats:
    """Return the formats in which the mask argument may be a padding mask; none if there is another padding mask."""
    of_keys = replace(caller, offer=caller.offer.as_padding())
    case = None if caller.offer.takes("padding") else find_case(of_keys, function, "padding", change)
    if case is None:
        return []
    return [(replace(of_keys, padding=replace(padding, neutral=caller.masking.neutral)), case) for padding in PADDINGS]


def find_case(caller: Caller, function: Bound, question: str, change: Change | None = None) -> Case | None:
    """Return the first case with this question, or None; `change` is applied to its recipe."""
    found = (case for case in list_cases(caller, function, quick=True) if case.question == question)
    changed = (replace(case, recipe=change(case)) if change else case for case in found)
    return next((round_inputs(case, caller) for case in changed), None)
