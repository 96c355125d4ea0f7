"""Settings that code may assume although nobody typed them: a causal mask, a window, positions, polarity, no scale.

A function that is right under such settings is checked under them, and the verdict names them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np

from attn_exp.diagnosis.asking.case import (
    Answer,
    Case,
    differs,
    is_blind,
    is_far,
    predicted,
    tolerance,
    without_blind,
)
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.diagnosis.recipes.candidates import other_settings
from attn_exp.experiment.verdict import Verdict
from attn_exp.forms.pipeline import Recipe
from attn_exp.mistakes.mistake import Change, together
from attn_exp.mistakes.scores import sloped, up_to_8
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.window import Window

OF_MASKS = ("mask", "mask_join", "align")
RULES = {"mask": OF_MASKS, "convention": (*OF_MASKS, "convention"), "position": ("position", "score"),
         "scale": ("scale",)}  # fmt: skip
"""Settings that say what is computed, by kind; a kind is fixed if the user typed one of its settings."""
SAID_BY = {"causal": "causal", "window": "window", "alibi": "alibi"}
"""The keyword that requests a setting, by role; a function with that keyword is not assumed to have the setting."""
UNSCALED = "scale=1"
TWO_TO_THE = "head=4"
"""A number of heads for which all variants of ALiBi slopes agree."""
BOTTOM_RIGHT, BLOCKS, INVERTED = "align=bottom_right", "convention=torch_mha", "mask_inverted"
NEIGHBOURS = "position.rope.interleaved=true"


def are_open(request: Request, kind: str = "convention") -> bool:
    return not request.as_typed and not {word.partition(".")[0] for word in request.said} & set(RULES[kind])


def that_fit(caller: Caller, case: Case, answer: Answer, digits: int) -> list[str]:
    fits = [words for words, change in meant(caller, case) if gives(change(case.recipe), case, answer, digits)]
    return [*fits, *(f"{words} {BOTTOM_RIGHT}" for words in fits if "mask=" in words and caller.offer.core)]


def of_heads_inside(caller: Caller, case: Case) -> Iterator[tuple[str, Recipe]]:
    """Yield numbers of heads that a layer function may use internally, also with a causal mask, and their recipes."""
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


def with_its_window(words: str, case: Case, answer: Answer, digits: int) -> str:
    """Return causal settings with the window that a longer case reveals; unchanged if there is none."""
    if CAUSAL not in words.split() or gives(case.recipe, case, answer, digits):
        return words
    for left in range(SHOWN, case.given.keys):
        windowed = case.with_masks((*case.recipe.rules.masks, Window(left, -1)))
        if gives(windowed.recipe, case, answer, digits):
            return words.replace(CAUSAL, f"mask=[causal,window] mask.window.left={left}")
    return words


CAUSAL = "mask=causal"
SHOWN = 8
"""Windows at least this wide do not show in the first cases."""


def may_be_made(names: Collection[str], caller: Caller) -> bool:
    given = any(map(caller.offer.takes, ("mask", "padding", "lengths")))
    return given or not set(names) & {"mask_hides_all", "mask_of_first_entry", "mask_tiled_over_heads"}


def meant(caller: Caller, case: Case) -> list[tuple[str, Change]]:
    """Return the settings that may be assumed, with their changes of a recipe.

    Most ALiBi code has the paper's slopes only if the number of heads is a power of two, and is checked with one.
    """
    single = [(words, change) for words, change in other_settings(case.recipe) if is_meant(words, caller)]
    closed = [(f"{words} {TWO_TO_THE}", together(change, sloped(up_to_8))) for words, change in single
              if words == "score=alibi" and case.recipe.heads & (case.recipe.heads - 1)]  # fmt: skip
    masks, marks = (
        [one for one in (*single, *closed) if one[0].startswith("mask=") is masked] for masked in (True, False)
    )
    both = [(f"{words} {marked}", together(change, mark)) for words, change in masks for marked, mark in marks]
    return [*single, *closed, *both]


def gives(recipe: Recipe, case: Case, answer: Answer, digits: int) -> bool:
    """Return whether a recipe reproduces an answer, and logits are not so large that any recipe would."""
    stages = predicted(recipe, case.given)
    if answer.output is None or stages is None or is_far(answer.output, stages) or is_blind(stages):
        return False
    if not np.isfinite(answer.output).any():
        return False
    output = without_blind(answer.output, stages)  # rows without keys are not part of any rule
    stages = {**stages, "output": without_blind(stages["output"], stages)}
    is_any = bool(tolerance(stages, digits) > CLOSE * np.abs(output).max(initial=0.0))
    return not is_any and not differs(output, stages, digits)


CLOSE = 0.01
"""Relative to the largest number of an answer."""


def is_meant(words: str, caller: Caller) -> bool:
    """Return whether settings may be assumed: a mask or positions for which the function has no keyword."""
    kind = "mask" if words.startswith("mask=") else "position"
    known = words.startswith(("mask=", "position=", "score=alibi")) and are_open(caller.request, kind)
    return known and not any(part in words and caller.offer.takes(role) for part, role in SAID_BY.items())


def under(verdict: Verdict, request: Request, words: str) -> Verdict:
    said = f"attention with {words}, though the settings do not say so; that is no mistake"
    if verdict.passed:
        return replace(verdict, asked=request.words, right_under=words, computes=said)
    computes = f"with {words}, though the settings do not say so, {verdict.computes}"
    return replace(verdict, asked=request.words, computes=computes)


def read_otherwise(verdict: Verdict, words: str, passed: bool) -> Verdict:
    """Return the verdict on a function that differs only by inverted mask polarity.

    That is a bug as often as a convention; `passed`: its keyword is that of a library with this convention.
    """
    said = f"attention with {words}: True in its mask means hidden"
    if passed:
        return replace(verdict, passed=True, mistakes=(), alike=(), smallest=None, computes=said, right_under=words)
    return replace(verdict, mistakes=(), alike=((INVERTED,),), computes=said, right_under=words)
