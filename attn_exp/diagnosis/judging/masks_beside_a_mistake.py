"""Mask conventions of a function that is also wrong without masks, which changes the expected masked outputs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from attn_exp.diagnosis.asking.request import with_words
from attn_exp.diagnosis.calling.call import Caller
from attn_exp.diagnosis.explaining.evidence import evidence_of
from attn_exp.diagnosis.explaining.explanations import explained
from attn_exp.diagnosis.explaining.precision import bits_to_judge_by
from attn_exp.diagnosis.finding import other_words, ways_to_call, ways_to_mask
from attn_exp.diagnosis.finding.ways_to_call import Tried, failing
from attn_exp.diagnosis.judging.judge_answers import Tell, verdict_on_answers
from attn_exp.diagnosis.recipes.candidates import Explained
from attn_exp.experiment.verdict import Verdict
from attn_exp.mistakes import mistake
from attn_exp.own_code import OwnFunction


def with_masks_beside_a_mistake(own: OwnFunction, caller: Caller, tried: Tried, quick: bool, tell: Tell) -> Verdict:
    """Run all cases; if nothing explains the answers, detect the mask convention again.

    A mistake that shows without a mask changes the expected output with one.
    """
    verdict = verdict_on_answers(own, caller, tried, quick, tell)
    masks = [role for role in ("mask", "padding") if caller.offer.takes(role)]
    if verdict.passed or not masks or not may_be_written_otherwise(verdict):
        return verdict
    known = mistake_without_masks(caller, tried, masks)
    if known is None or known.change is None:
        return verdict
    masked = ways_to_mask.with_its_mask(caller, tried.function, known.change)
    is_less = caller.offer.takes("mask") and not masked.offer.takes("mask")  # a padding mask alone tells less
    if verdict.mistakes and (masked == caller or is_less):
        return verdict
    request = caller.request
    words = other_words.BLOCKS if other_words.are_open(request) and ways_to_mask.hides(
        masked, tried.function, known.change
    ) else ""  # fmt: skip
    if words:
        masked = replace(masked, request=with_words(request, words))
    again = verdict_on_answers(own, masked, tried, quick, tell)
    if not again.mistakes or (verdict.mistakes and not set(again.mistakes) < set(verdict.mistakes)):
        return verdict
    if not words:
        return again
    inverted = (*again.mistakes, other_words.INVERTED)
    return replace(other_words.under(again, request, words), alike=(inverted, *again.alike))


def may_be_written_otherwise(verdict: Verdict) -> bool:
    """Return whether the mask convention may be misdetected: no mistake is named, or a mask mistake among others.

    Booleans added to the logits look like a small fill next to any other mistake.
    """
    if not verdict.mistakes:
        return True
    of_masks = {name for name in verdict.mistakes if mistake(name).group == "masks"}
    return bool(of_masks) and of_masks != set(verdict.mistakes)


def mistake_without_masks(caller: Caller, tried: Tried, masks: Collection[str]) -> Explained | None:
    """Return the mistakes without a mask (or with one that hides nothing, if a mask is required), or None."""
    needed = {role for role in masks if role not in caller.offer.defaults}
    parameters = {role: word for role, word in caller.offer.parameters.items() if role in needed or role not in masks}
    bare = replace(caller, offer=replace(caller.offer, parameters=parameters))
    asked = ways_to_call.ask_every_question(bare, tried.function, quick=True)
    seen = [(case, answer) for case, answer in asked if not needed or not case.recipe.rules.masks]
    if all(answer.output is None for _, answer in seen):
        return None
    digits, _ = bits_to_judge_by(bare, seen)
    wrong = failing(seen, digits)
    found = explained(evidence_of(bare, tried, seen, wrong, digits=digits)) if wrong else Explained()
    return found if found.names else None
