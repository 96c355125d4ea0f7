"""What is wrong with functions of the user's own: each checked under the settings of the run, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from attn_exp.errors import first_line

if TYPE_CHECKING:
    from attn_exp.experiment.judging.verdict import Verdict
    from attn_exp.experiment.own_form import OwnForm
    from attn_exp.experiment.variant import Settled


def verdicts(variants: Sequence[Settled]) -> dict[str, Verdict]:
    """Return the verdict of a quick check on each variant whose form is the user's own function."""
    return {variant.name: verdict(variant, variant.own) for variant in variants if variant.own is not None}


def verdict(settled: Settled, own: OwnForm) -> Verdict:
    """Return the verdict of a quick check, or of a whole one where that explains nothing; where the settings fit no
    question, it says so."""
    from attn_exp.experiment.judging.check import check  # noqa: PLC0415 - most runs have no function of the user's own
    from attn_exp.experiment.judging.verdict import BROKEN, Finding, Verdict  # noqa: PLC0415

    heads = settled.heads
    asked = replace(
        own.asked,
        head=heads.query if heads.query > 1 else None,
        kv_head=None if heads.shared == heads.query else heads.shared,
    )
    try:
        quick = check(own.own, asked, quick=True)
        return quick if quick.passed or quick.mistakes else check(own.own, asked)  # more questions may name it
    except (ValueError, IndexError, ArithmeticError) as error:  # sizes that only this run's input has
        finding = Finding("it can be checked", BROKEN, first_line(error))
        return Verdict(own.own.name, False, (), "what could not be checked", (finding,), asked.words)
