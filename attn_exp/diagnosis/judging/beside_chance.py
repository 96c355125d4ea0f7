"""What else is wrong with a function that answers otherwise in each call, once chance is stopped."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from attn_exp.diagnosis.asking.chance import without_chance
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.calling.behaviour import TWICE
from attn_exp.diagnosis.inside import other_words
from attn_exp.diagnosis.inside.weights_inside import DROPPED
from attn_exp.errors import UserError
from attn_exp.experiment.verdict import BROKEN, Verdict
from attn_exp.mistakes import mistake


def beside_chance(request: Request, check: Callable[[], Verdict]) -> Verdict:
    """Return the verdict of a check, on a function that answers otherwise in each call with what else is wrong.

    That shows once chance is stopped: of answers that are others each time no numbers tell anything.
    """
    verdict = check()
    twice = [one for one in verdict.findings if one.rung in (TWICE, DROPPED) and one.state == BROKEN]
    by_chance = tuple(name for name in verdict.mistakes if name in BY_CHANCE)
    if not twice or not by_chance:
        return verdict
    with suppress(UserError), without_chance():
        again = check()
        if again.right_under and not again.mistakes:
            changed = other_words.under(replace(verdict, mistakes=by_chance), request, again.right_under)
            return replace(changed, alike=tuple((*by_chance, *names) for names in again.alike))
        more = [name for name in again.mistakes if name not in by_chance and not mistake(name).remark]
        if more and not again.passed:
            names = (*by_chance, *more)
            return replace(again, mistakes=names, findings=(*twice, *again.findings), unexplained=False, stage="",
                           computes=f"attention with {' and '.join(names)}")  # fmt: skip
    return verdict


BY_CHANCE = ("dropout_on", "not_deterministic")
