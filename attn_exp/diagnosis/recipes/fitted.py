"""Mistakes with a number fitted to an answer: a fill, a factor of the scores, or an epsilon in the softmax sum.

Without a softmax, a fill shows in the output, where it is mixed with the values, or in the sum.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import Answer, Case, Seen, differs, overflows, predicted
from attn_exp.diagnosis.recipes.candidates import Candidate, composed, everywhere
from attn_exp.forms.pipeline import At, Step
from attn_exp.mistakes.masks import added, filled, late
from attn_exp.mistakes.mistake import Change, around, instead, together
from attn_exp.mistakes.scale import fixed, times
from attn_exp.mistakes.softmax import with_epsilon

# A small fill, fitted to the answer


def fitted_fills(seen: Seen) -> Iterator[Candidate]:
    for case, answer in seen:
        number = fitted_logit(case, answer, np.zeros_like)
        if number is not None:
            yield Candidate(("mask_small_fill",), everywhere(filled(number)), fitted=True)
            penalty = fitted_logit(case, answer, lambda logits: logits)
            if penalty is not None:
                yield Candidate(("mask_small_fill",), everywhere(added(penalty)), fitted=True)
            return


def fitted_logit(case: Case, answer: Answer, hidden: Callable[[Array], Array]) -> float | None:
    """Return the fill f such that hidden keys have logits `f + hidden(logits)`: the output is linear in `z = e^f`.

    With A the sum of `e^l` over visible keys, N that of `e^l v`, n hidden keys and M the sum of their values:
    `o (A + n z) = N + z M`. z is the least-squares solution over the numbers of the answer.
    """
    if answer.output is None or case.given.x is not None or not case.recipe.rules.masks:
        return None
    stages = predicted(case.recipe, case.given)
    if stages is None or stages["output"].shape != answer.output.shape:
        return None
    open_places = np.isfinite(stages["masked"])
    if open_places.all():
        return None
    biased = np.where(open_places, stages["masked"], stages["capped"])
    shown = np.where(open_places, np.exp(biased), 0.0)
    kept_out = np.where(open_places, 0.0, np.exp(hidden(biased)))
    total, mixed = shown.sum(axis=-1, keepdims=True), shown @ stages["v"]
    count, values = kept_out.sum(axis=-1, keepdims=True), kept_out @ stages["v"]
    above, below = mixed - answer.output * total, answer.output * count - values
    clear = np.abs(below) > 1e-3 * np.abs(below).max(initial=0.0)
    with np.errstate(all="ignore"):
        share = float(np.sum((above * below)[clear]) / max(np.sum((below * below)[clear]), 1e-300))
    return float(np.log(share)) if np.isfinite(share) and share > 1e-30 else None


# Another fitted number: a factor of the scores, or an epsilon in the softmax sum


def fitted_numbers(seen: Seen, read_off: dict[object, float | None]) -> Iterator[Candidate]:
    """Yield the factor of the scores, and the epsilon in the sum, fitted to the first wrong answers.

    `read_off` caches fitted numbers.
    """
    for made, starts in ((factor_of_scores, FACTORS), (beside_the_sums, PLACES)):
        for case, answer in seen[:2]:
            if (key := (made, case, answer)) not in read_off:
                read_off[key] = None if answer.output is None else fitted(case, answer.output, made, starts)
            number = read_off[key]
            if number is not None and not is_implausible(made, number):
                yield made(number)
                yield from one_for_all_sizes(case, number) if made is factor_of_scores else ()
                break


def fitted_factors(first: Candidate, case: Case, output: Array) -> Iterator[Candidate]:
    def beside(number: float) -> Candidate:
        return beside_factor(factor_of_scores(number))

    def beside_factor(factor: Candidate) -> Candidate:
        names = tuple(sorted((*first.names, *factor.names)))
        return replace(factor, names=names, change=composed(first, factor))

    number = fitted(case, output, beside, FACTORS)
    if number is not None and not is_no_factor(number):
        yield beside(number)
        yield from map(beside_factor, one_for_all_sizes(case, number))


def is_implausible(made: object, number: float) -> bool:
    return is_no_factor(number) if made is factor_of_scores else number > PLACES[-1]


def is_no_factor(factor: float) -> bool:
    """Return whether a factor of the scores is 1 up to a float32 square root, or 0."""
    return abs(factor - 1.0) < 1e-5 or abs(factor) < 1e-6


def factor_of_scores(number: float) -> Candidate:
    said = f"They are {number:.6g} times what they should be"
    return Candidate(("scale_other",), everywhere(times(number)), True, said)


def one_for_all_sizes(case: Case, factor: float) -> Iterator[Candidate]:
    stages = predicted(case.recipe, case.given)
    if stages is not None and stages["scores"].size:
        place = np.unravel_index(np.abs(stages["scores"]).argmax(), stages["scores"].shape)
        number = factor * float(stages["logits"][place] / stages["scores"][place])
        if number:  # 0 is not a scale
            said = f"They are divided by {1 / number:.6g}"
            yield Candidate(("scale_fixed",), everywhere(fixed(number)), True, said)


def beside_the_sums(place: float) -> Candidate:
    number = 10.0**place
    return Candidate(("sum_epsilon",), everywhere(with_epsilon(number)), True, f"It is {number:.4g}")


FACTORS = tuple(sign * 2.0**power for sign in (1, -1) for power in np.arange(-5.5, 6.0, 0.5))
PLACES = tuple(np.arange(-11.0, 2.0))
STEPS, CLOSE = 12, 1e-7


def fitted(case: Case, output: Array, made: Callable[[float], Candidate], starts: Sequence[float]) -> float | None:
    """Return the number with which a candidate reproduces an output, by Gauss-Newton from the best start."""

    def missed(number: float) -> Array | None:
        stages = predicted(made(number).change(case), case.given)
        return None if stages is None or stages["output"].shape != output.shape else stages["output"] - output

    def size(gap: Array | None) -> float:
        return np.inf if gap is None or not np.isfinite(gap).all() else float((gap * gap).sum())

    number = min(starts, key=lambda start: size(missed(start)))
    for _ in range(STEPS):
        gap, step = missed(number), 1e-6 * max(abs(number), 1.0)
        near = missed(number + step)
        if gap is None or near is None or not np.isfinite(size(gap)) or not np.isfinite(size(near)):
            return None
        slope = (near - gap) / step
        before, number = number, number - float((slope * gap).sum() / max((slope * slope).sum(), 1e-300))
        if number == before:
            break  # converged
    return number if size(missed(number)) < CLOSE * max(float((output * output).sum()), 1e-300) else None


# What a mask fills in if there is no softmax

NO_SOFTMAX, BY_SUM = "no_softmax", "sum_normalized"
LOWEST = (float(np.finfo(np.float64).min), float(np.finfo(np.float32).min), float(np.finfo(np.float16).min))
FILLS = (-np.inf, *LOWEST, -1e4, -1e5, -1e6, -1e8, -1e9, -1e10, -1e12, -1e15, -1e18, -1e20, -1e30, 0.0)
"""Common fills that a softmax would turn into 0."""


def fills_of_raw_logits(seen: Seen) -> Iterator[Candidate]:
    """Yield raw logits as weights, and logits over their sum, with fills that reproduce the first masked answer."""
    for case, answer in seen:
        if answer.output is not None and hides_any(case):
            made = [
                (name, change(number))
                for name, change in ((NO_SOFTMAX, use_raw_logits), (BY_SUM, divide_by_sum))
                for number in FILLS
            ]
            yield from (Candidate((name,), everywhere(change), fitted=True)
                        for name, change in made if is_given(case, answer, change))  # fmt: skip
            return


def hides_any(case: Case) -> bool:
    stages = predicted(case.recipe, case.given) if case.recipe.rules.masks else None
    return stages is not None and bool(np.isneginf(stages["masked"]).any())


def is_given(case: Case, answer: Answer, change: Change) -> bool:
    stages = predicted(change(case.recipe), case.given)
    if stages is None or answer.output is None or stages["output"].shape != answer.output.shape:
        return False
    return bool(np.allclose(stages["output"], answer.output, rtol=1e-3, equal_nan=True)) or overflows(
        answer.output, stages["output"]
    )


def use_raw_logits(number: float) -> Change:
    """Use logits as weights, with a number filled in at hidden keys.

    The fill is applied after the missing softmax, because nothing is exponentiated.
    """
    return together(late(number), instead(normalize=lambda at, masked: masked))


def divide_by_sum(number: float) -> Change:
    def normalize(at: At, masked: Array) -> Array:
        kept = np.where(np.isneginf(masked), number, masked)
        return np.asarray(kept / kept.sum(axis=-1, keepdims=True))

    return instead(normalize=normalize)


# Logits clipped far above usual ones

CLIPS = (32, 40, 50, 60, 64, 70, 75, 80, 85, 88, 90, 100, 128, 200, 250, 256, 500, 512, 600, 700, 709, 750, 800, 1000)
"""Limits at which people clip logits, so that only large ones are wrong."""


def is_clipped(wrong: Seen, digits: int, ask: Callable[[], Seen]) -> bool:
    if not all(answer.output is not None and np.isfinite(answer.output).all() for _, answer in wrong):
        return False
    for number, step, sign in itertools.product(CLIPS, ("scaled", "score"), (-1.0, -np.inf)):
        change = around(step, partial(clip, least=sign * number, most=number))
        if reproduces(change, wrong[:1], digits) and reproduces(change, [*wrong, *ask()], digits):
            return True
    return False


def clip(step: Step, *given: Any, least: float, most: float) -> Any:
    return np.clip(step(*given), least, most)


def reproduces(change: Change, seen: Seen, digits: int) -> bool:
    made = [(predicted(change(case.recipe), case.given), answer.output) for case, answer in seen]
    return all(one is not None and own is not None and not differs(own, one, digits) for one, own in made)
