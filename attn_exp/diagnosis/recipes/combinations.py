"""Mistakes with a fitted number, and several mistakes at once, at most one per part of attention.

A fill, a factor of the scores, or an epsilon in the softmax sum is fitted to an answer. A search for several mistakes
starts with heads and softmax, since only these show if all scores are equal; then come products and scale, and in
masked cases a mistake in masks. This finds four mistakes in hundreds of tries instead of millions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from time import process_time
from typing import Any

import numpy as np

from attn_exp import mistakes
from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import Answer, Asked, Case, Seen, differs, predicted
from attn_exp.diagnosis.asking.libraries import DIGITS
from attn_exp.diagnosis.recipes.candidates import Candidate, composed, everywhere, once
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


def is_implausible(made: object, number: float) -> bool:
    return is_no_factor(number) if made is factor_of_scores else number > PLACES[-1]


def is_no_factor(factor: float) -> bool:
    """Return whether a factor of the scores is 0, or 1 up to the rounding of a float32 square root."""
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
STEPS, RESIDUAL = 12, 1e-7


def fitted(case: Case, output: Array, made: Callable[[float], Candidate], starts: Sequence[float]) -> float | None:
    """Fit a candidate's number to an output by Gauss-Newton from the best start; None if the result does not fit."""

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
    return number if size(missed(number)) < RESIDUAL * max(float((output * output).sum()), 1e-300) else None


# What a mask fills in if there is no softmax

LOWEST = (float(np.finfo(np.float64).min), float(np.finfo(np.float32).min), float(np.finfo(np.float16).min))
FILLS = (-np.inf, *LOWEST, -1e4, -1e5, -1e6, -1e8, -1e9, -1e10, -1e12, -1e15, -1e18, -1e20, -1e30, 0.0)
"""Common fill values for hidden logits; a softmax would turn all but the last into weight 0."""


def use_raw_logits(number: float) -> Change:
    """Use logits as weights, with a number filled in at hidden keys.

    Nothing is exponentiated, so the fill value itself becomes the weight.
    """
    return together(late(number), instead(normalize=lambda at, masked: masked))


def divide_by_sum(number: float) -> Change:
    def normalize(at: At, masked: Array) -> Array:
        kept = np.where(np.isneginf(masked), number, masked)
        return np.asarray(kept / kept.sum(axis=-1, keepdims=True))

    return instead(normalize=normalize)


RAW = {"no_softmax": use_raw_logits, "sum_normalized": divide_by_sum}
ROUGH = DIGITS["float16"]


def fills_of_raw_logits(seen: Seen) -> Iterator[Candidate]:
    """Yield the mistakes without a softmax, with each fill value that reproduces the first masked answer."""
    masked = next((pair for pair in seen if pair[0].recipe.rules.masks and pair[1].output is not None), None)
    for (name, change), number in itertools.product(RAW.items(), FILLS if masked else ()):
        if masked is not None and reproduces(change(number), [masked], ROUGH):
            yield Candidate((name,), everywhere(change(number)), fitted=True)


# Logits clipped far above usual values

CLIPS = (32, 40, 50, 60, 64, 70, 75, 80, 85, 88, 90, 100, 128, 200, 250, 256, 500, 512, 600, 700, 709, 750, 800, 1000)
"""Limits at which people clip logits; only logits beyond them are wrong."""


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


# Several mistakes at once

PARTS = ("heads", "products", "scale", "softmax")
"""Groups of the catalogue, in the order in which their mistakes apply."""
LIKELY = frozenset(
    """
    heads_not_transposed heads_merged_wrong heads_by_stride entries_and_heads_mixed single_head
    tokens_not_transposed projection_diagonal weights_diagonal keys_viewed values_viewed queries_keys_swapped
    weights_transposed values_from_keys keys_from_queries queries_from_keys no_scale scale_by_d
    scale_by_sqrt_d_model scale_by_sqrt_heads scale_by_heads scale_by_batch scale_multiplied scale_twice
    scale_after_softmax scale_by_sqrt_keys scale_by_keys softmax_over_queries softmax_over_heads softmax_over_all
    keepdims_missing
    """.split()
)
"""Mistakes that the search combines with each other."""
INVERTED = "mask_inverted"
LARGE_FILL = Candidate((), everywhere(filled(-1e9)))
"""A common replacement for -inf: harmless alone, but not in combination with other mistakes."""
CLOSE = 1e-5
"""Relative tolerance that allows for float32 rounding."""


def group_by_part(single: Sequence[Candidate]) -> dict[str, list[Candidate]]:
    groups = {part: [Candidate((), lambda case: case.recipe)] for part in PARTS}
    for one in single:
        group = mistakes.mistake(one.names[0]).group
        if group in groups and not one.fitted and one.names[0] in LIKELY:
            groups[group].append(one)
    return groups


def combine(parts: Sequence[Candidate]) -> Candidate:
    made = parts[0]
    for other in parts[1:]:
        names = tuple(sorted({*made.names, *other.names}))
        made = Candidate(names, composed(made, other), made.fitted or other.fitted)
    return made


def in_several_parts(single: Sequence[Candidate], asked: Asked, equal: Asked | None) -> Iterator[Candidate]:
    """Yield combinations of mistakes in several parts that reproduce the answer to a case.

    They must also reproduce `equal`, the answer to a case with equal scores; without it, at most two are combined.
    """
    parts = group_by_part(single)
    late = [one for one in parts["scale"] if "scale_after_softmax" in one.names]
    before = [once(combine(pair)) for pair in itertools.product(parts["heads"], parts["products"])]
    for mixed, shared in itertools.product(before, [*parts["softmax"], *late]):
        if equal is None and count(mixed, shared) > 2:
            continue
        if equal is not None and not is_close(combine((mixed, shared)), *equal):
            continue
        for scaled in parts["scale"][: 1 if shared in late else None]:
            some = (mixed, scaled, shared)
            if count(*some) > 1 and (equal or count(*some) < 3) and is_close(made := combine(some), *asked):
                yield made


def count(*parts: Candidate) -> int:
    return len(set[str]().union(*[one.names for one in parts]))


def is_close(candidate: Candidate, case: Case, answer: Answer) -> bool:
    stages = predicted(candidate.change(case), case.given)
    if answer.output is None or stages is None or stages["output"].shape != answer.output.shape:
        return False
    gap, size = np.abs(stages["output"] - answer.output), np.abs(answer.output)
    return bool(gap.max(initial=0.0) < CLOSE * size.max(initial=0.0))


def of_masks(single: Sequence[Candidate]) -> list[Candidate]:
    return [one for one in single if mistakes.mistake(one.names[0]).group == "masks"]


# Processor time, so that a check on a busy machine tries as much as on an idle one

EXPLAINING = 8.0
"""Seconds of processor time after which a check tries no more combinations of mistakes."""


@dataclass
class Clock:
    """The start time of a check, and whether it skipped anything for lack of time."""

    start: float = field(default_factory=process_time)
    was_over: bool = False


CLOCK: ContextVar[Clock | None] = ContextVar("the clock of the current check", default=None)


@contextmanager
def start_clock() -> Iterator[Clock]:
    clock = Clock()
    token = CLOCK.set(clock)
    try:
        yield clock
    finally:
        CLOCK.reset(token)


def has_time() -> bool:
    """Return whether the current check may still try combinations of mistakes; if not, its clock records that."""
    clock = CLOCK.get()
    if clock is None or process_time() - clock.start <= EXPLAINING:
        return True
    clock.was_over = True
    return False
