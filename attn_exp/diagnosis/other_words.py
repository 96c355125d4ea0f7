"""What was not asked for and is no mistake: a causal mask, a window or positions inside, a mask whose True hides.

A function that is right under such words, where nobody typed any, is held to them, and the verdict says them.
"""

from __future__ import annotations

from dataclasses import replace

from attn_exp.config.compose import composed
from attn_exp.diagnosis.call import Caller
from attn_exp.diagnosis.candidates import other_settings
from attn_exp.diagnosis.case import Answer, Case, differs, predicted
from attn_exp.diagnosis.request import Request, request_of
from attn_exp.experiment.verdict import Verdict
from attn_exp.mistakes.mistake import together

RULES = ("mask", "mask_join", "score", "position", "normalizer", "scale", "convention", "align")
"""Words that say what is computed: where one of them is typed, all are held as they are."""
SAID_BY = {"causal": "causal", "window": "window", "alibi": "alibi"}
"""Parts of the words, and the role of the keyword that says the same: a function that has it was not told to do it."""
BOTTOM_RIGHT, BLOCKS, INVERTED = "align=bottom_right", "convention=torch_mha", "mask_inverted"


def are_open(request: Request) -> bool:
    """Say whether other words than those of a request may be meant: nobody typed any rule."""
    return not request.as_typed and not {word.partition(".")[0] for word in request.said} & set(RULES)


def with_words(request: Request, words: str) -> Request:
    """Return the request as it is where somebody types these words too."""
    typed = [*sorted(request.typed), *words.split()]
    how = {name: getattr(request, name) for name in ("layout", "takes", "device", "dtype", "tell")}
    return request_of(composed(typed, []), typed, **how)


def that_fit(caller: Caller, case: Case, answer: Answer, digits: int) -> list[str]:
    """Return the words under which the answer to the first question is right: one of them, or masks and positions."""
    if answer.output is None or not are_open(caller.request):
        return []
    single = [(words, change) for words, change in other_settings(case.recipe) if is_meant(words, caller)]
    masks, marks = ([one for one in single if one[0].startswith("mask=") is masked] for masked in (True, False))
    both = [(f"{words} {marked}", together(change, mark)) for words, change in masks for marked, mark in marks]
    fits = []
    for words, change in (*single, *both):
        stages = predicted(change(case.recipe), case.given)
        if stages is not None and not differs(answer.output, stages, digits):
            fits.append(words)
    return [*fits, *(f"{words} {BOTTOM_RIGHT}" for words in fits if "mask=" in words and caller.offer.core)]


def is_meant(words: str, caller: Caller) -> bool:
    """Say whether words are no mistake where nobody asked for them: a mask or positions that nobody could say."""
    known = words.startswith(("mask=", "position=", "score=alibi"))
    return known and not any(part in words and caller.offer.takes(role) for part, role in SAID_BY.items())


def under(verdict: Verdict, request: Request, words: str) -> Verdict:
    """Return the verdict on a function under these words as one on what was asked without them."""
    said = f"attention with {words}, which was not asked for and is no mistake"
    if verdict.passed:
        return replace(verdict, asked=request.words, right_under=words, computes=said)
    return replace(verdict, asked=request.words, computes=f"with {words}, which was not asked for, {verdict.computes}")


def read_otherwise(verdict: Verdict, words: str, passed: bool) -> Verdict:
    """Return the verdict on a function that reads its masks the other way round, as a library does, and nothing else.

    A flipped mask is a bug as often as a convention, so it does not pass, unless its keyword is that of the library.
    """
    said = f"attention with {words}: True in its mask means that one may not attend"
    if passed:
        return replace(verdict, passed=True, mistakes=(), alike=(), smallest=None, computes=said, right_under=words)
    return replace(verdict, mistakes=(), alike=((INVERTED,),), computes=said, right_under=words)
