"""Names what is wrong: by what a function does between calls, by its numbers, or as half precision."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from attn_exp import mistakes
from attn_exp.diagnosis.ask import Seen, failing
from attn_exp.diagnosis.case import Answer
from attn_exp.diagnosis.diagnose import Diagnosis, diagnose, of_another_setting
from attn_exp.diagnosis.precision import half_mistake, only_rounded, representable
from attn_exp.diagnosis.properties import unexplained
from attn_exp.diagnosis.tails import tail_dropped
from attn_exp.experiment.verdict import BROKEN, Finding

SINGLE = 24
"""Bits of float32."""


def named(
    seen: Seen, wrong: Seen, behaved: Sequence[tuple[Finding, str]], digits: int, kept: int
) -> tuple[Diagnosis, str]:
    """Return what explains the answers, and what the function computes, in words; `kept` bits are in its inputs."""
    if not wrong:
        return Diagnosis(), "attention as it was asked for"
    unsteady = [
        name for finding, name in behaved if finding.state == BROKEN and name in ("dropout_on", "not_deterministic")
    ]
    if unsteady:
        return Diagnosis((unsteady[0],)), words_of((unsteady[0],))
    lost = {id(case) for case, _ in wrong}
    diagnosis = by_numbers(wrong + [pair for pair in seen if id(pair[0]) not in lost], digits, kept)
    mixed = [name for finding, name in behaved if finding.state == BROKEN and name == "batch_mixed"]
    if not diagnosis.names and mixed:
        diagnosis = Diagnosis((mixed[0],))
    if diagnosis.names:
        return diagnosis, words_of(diagnosis.names)
    if diagnosis.setting:
        return diagnosis, of_another_setting(diagnosis.setting)
    return Diagnosis(), unexplained(seen, wrong)


def by_numbers(seen: Seen, digits: int, kept: int) -> Diagnosis:
    """Return what explains the numbers: exactly, to a half type, or as half precision where more was given."""
    diagnosis = exactly(seen, digits)
    if diagnosis.found:
        return diagnosis
    kind = representable([answer for _, answer in seen[:4]])
    coarse = {"float16": 11, "bfloat16": 8}.get(kind, 0)
    diagnosis = diagnose(seen, SINGLE, pairs=False) if digits > SINGLE else diagnosis
    if coarse and not diagnosis.found:
        diagnosis = exactly(seen, coarse)
    if diagnosis.names not in ((), OVERFLOWS) or diagnosis.setting:
        return diagnosis
    name = as_half_precision(seen, kind, coarse) if kept >= SINGLE else ""
    return Diagnosis((name,)) if name else diagnosis


def as_half_precision(seen: Seen, kind: str, coarse: int) -> str:
    """Return the name of the half-precision mistake that gives the numbers, which may be rounded to a half type too."""
    plain = [pair for pair in seen if pair[0].rung in FEW]
    if failing(plain, coarse or 8) or (coarse and only_rounded(plain, coarse)):
        return ""
    return half_mistake(plain, kind)


OVERFLOWS = ("no_max_subtraction",)


def exactly(seen: Seen, digits: int) -> Diagnosis:
    """Return what explains the numbers: one mistake; one that overflows besides; a tail; then two mistakes."""
    diagnosis = diagnose(seen, digits, pairs=False)
    if diagnosis.found:
        return diagnosis
    if any(case.rung == LARGE and overflowed(answer) for case, answer in seen):
        diagnosis = diagnose(without_large(seen), digits, pairs=False)
        if diagnosis.names:
            return diagnosis
    if tail_dropped(without_large(seen), digits):
        return Diagnosis(("tail_dropped",))
    return diagnose(seen, digits, pairs=True)


LARGE = "large inputs"
FEW = ("values", "unequal lengths", "another length", "equal inputs", "whole numbers", "one token")
"""Questions of few tokens: sums in half precision stay near the right ones."""


def overflowed(answer: Answer) -> bool:
    return answer.output is not None and not bool(np.isfinite(answer.output).all())


def without_large(seen: Seen) -> Seen:
    """Return the questions whose logits are small enough for any type."""
    return [(case, answer) for case, answer in seen if case.rung != LARGE]


def words_of(names: Iterable[str]) -> str:
    """Return what mistakes do, in one line."""
    return "attention with " + " and ".join(names) + ": " + " ".join(mistakes.mistake(name).says for name in names)
