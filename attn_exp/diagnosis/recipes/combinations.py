"""Mistakes with a fitted number, and combinations of several mistakes, at most one per part of attention.

The fitted number is the fill value of a mask, a factor of the scores, or an epsilon in the softmax sum.

The search for several mistakes starts with a case whose scores are all equal. Only mistakes in heads, products and
softmax show there, so combinations of these that do not reproduce it are ruled out. The others are tried with each
mistake in the scale. This takes hundreds of tries instead of millions.
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
from attn_exp.diagnosis.asking.case import Answer, Case, CaseAnswer, Seen, differs, predicted
from attn_exp.diagnosis.asking.libraries import DIGITS
from attn_exp.diagnosis.asking.offer import setup_of
from attn_exp.diagnosis.recipes.candidates import Candidate, cache_change, compose_changes, everywhere
from attn_exp.forms.pipeline import Setup, Step
from attn_exp.mistakes.masks import add_to_hidden, fill_hidden, mask_weights
from attn_exp.mistakes.mistake import Change, around, instead, together
from attn_exp.mistakes.scale import multiply_scale, use_constant
from attn_exp.mistakes.softmax import with_epsilon

FACTORS = tuple(sign * 2.0**power for sign in (1, -1) for power in np.arange(-5.5, 6.0, 0.5))
"""Factors of the scores from which the fit starts."""
EXPONENTS = tuple(np.arange(-11.0, 2.0))
"""Exponents of 10 from which the fit of the epsilon in the softmax sum starts."""
MAX_STEPS, MAX_RESIDUAL = 12, 1e-7
"""Maximum number of Gauss-Newton steps, and the largest relative squared error of a fit that is accepted."""
LOWEST_FLOATS = (float(np.finfo(np.float64).min), float(np.finfo(np.float32).min), float(np.finfo(np.float16).min))
FILLS = (-np.inf, *LOWEST_FLOATS, -1e4, -1e5, -1e6, -1e8, -1e9, -1e10, -1e12, -1e15, -1e18, -1e20, -1e30, 0.0)
"""Common fill values for hidden logits; a softmax would turn all but the last into weight 0."""
CLIPS = (32, 40, 50, 60, 64, 70, 75, 80, 85, 88, 90, 100, 128, 200, 250, 256, 500, 512, 600, 700, 709, 750, 800, 1000)
"""Limits at which people clip logits; smaller logits are not affected."""
PARTS = ("heads", "products", "scale", "softmax")
"""Parts of attention, in the order in which their mistakes are applied: groups of the catalogue of mistakes."""
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
"""The mask mistake to which a fill or a second mask mistake may be added."""
ROUND = 1e-4
"""A number counts as one with at most two decimals if 100 times the number is this close to an integer."""
LARGE_FILL = Candidate((), everywhere(fill_hidden(-1e9)))
"""A common replacement for -inf: harmless alone, but not in combination with other mistakes."""
CLOSE_TOLERANCE = 1e-5
"""Relative tolerance that allows for float32 rounding."""
MAX_SECONDS = 8.0
"""Seconds of processor time after which a check tries no more combinations of mistakes."""

# A small fill value, fitted to the answer


def fit_fills(seen: Seen) -> Iterator[Candidate]:
    """Yield masks with a small fill value, fitted to the first answer that allows it.

    The fill value may replace the logits of hidden keys, or be added to them.
    """
    for case, answer in seen:
        fill = fit_fill(case, answer, np.zeros_like)
        if fill is not None:
            yield Candidate(("mask_small_fill",), everywhere(fill_hidden(fill)), fitted=True)
            penalty = fit_fill(case, answer, lambda logits: logits)
            if penalty is not None:
                yield Candidate(("mask_small_fill",), everywhere(add_to_hidden(penalty)), fitted=True)
            return


def fit_fill(case: Case, answer: Answer, base: Callable[[Array], Array]) -> float | None:
    """Return the fill f with which hidden keys have logits `f + base(logits)`; None if no f can be fitted.

    With `z = e^f`, the output of a query is `o = (N + z M) / (A + z n)`:

    - A and N are the sums of `e^l` and `e^l v` over its visible keys with logits l.
    - n and M are the sums of `e^base` and `e^base v` over its hidden keys.

    So `N - o A = z (o n - M)`, which is linear in z. It is solved by least squares over all numbers of the answer.
    """
    if answer.output is None or case.given.x is not None or not case.recipe.rules.masks:
        return None
    stages = predicted(case.recipe, case.given)
    if stages is None or stages["output"].shape != answer.output.shape:
        return None
    is_visible = np.isfinite(stages["masked"])
    if is_visible.all():
        return None
    logits = np.where(is_visible, stages["masked"], stages["capped"])
    visible = np.where(is_visible, np.exp(logits), 0.0)
    hidden = np.where(is_visible, 0.0, np.exp(base(logits)))
    visible_sum = visible.sum(axis=-1, keepdims=True)
    hidden_sum = hidden.sum(axis=-1, keepdims=True)
    constant = visible @ stages["v"] - answer.output * visible_sum  # N - o A
    slope = answer.output * hidden_sum - hidden @ stages["v"]  # o n - M
    is_clear = np.abs(slope) > 1e-3 * np.abs(slope).max(initial=0.0)
    with np.errstate(all="ignore"):
        z = float(np.sum((constant * slope)[is_clear]) / max(np.sum((slope * slope)[is_clear]), 1e-300))
    return float(np.log(z)) if np.isfinite(z) and z > 1e-30 else None


# Another fitted number: a factor of the scores, or an epsilon in the softmax sum


def fit_numbers(seen: Seen, fitted: dict[object, float | None]) -> Iterator[Candidate]:
    """Yield mistakes with a factor of the scores or an epsilon in the softmax sum, fitted to the first wrong answers.

    `fitted` caches the numbers.
    """
    for make_candidate, starts in ((multiply_scores, FACTORS), (add_epsilon, EXPONENTS)):
        for case, answer in seen[:2]:
            key = (make_candidate, case, answer)
            if key not in fitted:
                fitted[key] = None if answer.output is None else fit_number(case, answer.output, make_candidate, starts)
            number = fitted[key]
            if number is not None and is_plausible(make_candidate, number):
                yield make_candidate(number)
                has_sizes = len({setup_of(case).size for case, _ in seen}) > 1
                yield from fit_fixed_scale(case, number, has_sizes) if make_candidate is multiply_scores else ()
                break


def is_plausible(make_candidate: object, number: float) -> bool:
    """Return whether a fitted number can be a mistake: an epsilon up to 10, or a factor that is not nearly 0 or 1."""
    if make_candidate is add_epsilon:
        return number <= EXPONENTS[-1]
    return abs(number - 1.0) >= 1e-5 and abs(number) >= 1e-6


def multiply_scores(factor: float) -> Candidate:
    return Candidate(
        ("scale_other",), everywhere(multiply_scale(factor)), True, f"They are {factor:.6g} times what they should be"
    )


def add_epsilon(exponent: float) -> Candidate:
    epsilon = 10.0**exponent
    return Candidate(("sum_epsilon",), everywhere(with_epsilon(epsilon)), True, f"It is {epsilon:.4g}")


def fit_fixed_scale(case: Case, factor: float, has_sizes: bool) -> Iterator[Candidate]:
    """Yield the mistake of a constant scale: `factor` times the right scale at the head size of this case.

    If all cases have one head size, the divisor or its square must have at most two decimals, as people write it.
    """
    stages = predicted(case.recipe, case.given)
    if stages is not None and stages["scores"].size:
        largest = np.unravel_index(np.abs(stages["scores"]).argmax(), stages["scores"].shape)
        scale = factor * float(stages["logits"][largest] / stages["scores"][largest])
        hundreds = [100 * number for number in (1 / scale, scale**-2.0)] if scale else []  # 0 is not a scale
        if has_sizes or any(abs(number - round(number)) < ROUND for number in hundreds):
            yield Candidate(
                ("scale_fixed",), everywhere(use_constant(scale)), True, f"They are divided by {1 / scale:.6g}"
            )


def fit_number(
    case: Case, output: Array, make_candidate: Callable[[float], Candidate], starts: Sequence[float]
) -> float | None:
    """Return the number with which a candidate reproduces an output, found by Gauss-Newton; None if none does."""

    def find_errors(number: float) -> Array | None:
        stages = predicted(make_candidate(number).change(case), case.given)
        return None if stages is None or stages["output"].shape != output.shape else stages["output"] - output

    def sum_squares(errors: Array | None) -> float:
        return np.inf if errors is None or not np.isfinite(errors).all() else float((errors * errors).sum())

    number = min(starts, key=lambda start: sum_squares(find_errors(start)))
    for _ in range(MAX_STEPS):
        errors, step = find_errors(number), 1e-6 * max(abs(number), 1.0)
        errors_after = find_errors(number + step)
        if errors is None or errors_after is None or np.inf in (sum_squares(errors), sum_squares(errors_after)):
            return None
        slope = (errors_after - errors) / step
        previous = number
        number = number - float((slope * errors).sum() / max((slope * slope).sum(), 1e-300))
        if number == previous:
            break  # converged
    return number if sum_squares(find_errors(number)) < MAX_RESIDUAL * max(sum_squares(output), 1e-300) else None


# Attention without a softmax, with the fill value of its mask


def use_raw_logits(number: float) -> Change:
    """Use logits as weights, with a number filled in at hidden keys.

    Nothing is exponentiated, so the fill value itself becomes the weight.
    """
    return together(mask_weights(number), instead(normalize=lambda setup, masked: masked))


def divide_by_sum(number: float) -> Change:
    """Divide logits by their sum, with a number filled in at hidden keys."""

    def normalize(setup: Setup, masked: Array) -> Array:
        logits = np.where(np.isneginf(masked), number, masked)
        return np.asarray(logits / logits.sum(axis=-1, keepdims=True))

    return instead(normalize=normalize)


WITHOUT_SOFTMAX = {"no_softmax": use_raw_logits, "sum_normalized": divide_by_sum}


def raw_logit_fills(seen: Seen) -> Iterator[Candidate]:
    """Yield the mistakes without a softmax, with each fill value that reproduces the first masked answer."""
    masked = [(case, answer) for case, answer in seen if case.recipe.rules.masks and answer.output is not None]
    for (name, make_change), fill in itertools.product(WITHOUT_SOFTMAX.items(), FILLS if masked else ()):
        if reproduces(make_change(fill), masked[:1], DIGITS["float16"]):
            yield Candidate((name,), everywhere(make_change(fill)), fitted=True)


# Logits clipped far above usual values


def is_clipped(wrong: Seen, digits: int, ask: Callable[[], Seen]) -> bool:
    """Return whether clipping logits, on both sides or above only, reproduces the wrong answers.

    The same limit must also reproduce the further answers that `ask` returns.
    """
    if not all(answer.output is not None and np.isfinite(answer.output).all() for _, answer in wrong):
        return False
    changes = (around(step, partial(clip, least=sign * limit, most=limit))
               for limit, step, sign in itertools.product(CLIPS, ("scaled", "score"), (-1.0, -np.inf)))  # fmt: skip
    return any(
        reproduces(change, wrong[:1], digits) and reproduces(change, [*wrong, *ask()], digits) for change in changes
    )


def clip(step: Step, *inputs: Any, least: float, most: float) -> Any:
    return np.clip(step(*inputs), least, most)


def reproduces(change: Change, seen: Seen, digits: int) -> bool:
    predictions = ((predicted(change(case.recipe), case.given), answer.output) for case, answer in seen)
    return all(
        stages is not None and output is not None and not differs(output, stages, digits)
        for stages, output in predictions
    )


# Several mistakes at once


def group_by_part(single: Sequence[Candidate]) -> dict[str, list[Candidate]]:
    """Return the likely mistakes of each part; each list starts with a candidate that changes nothing."""
    groups = {part: [Candidate((), lambda case: case.recipe)] for part in PARTS}
    for candidate in single:
        group = mistakes.mistake(candidate.names[0]).group
        if group in groups and not candidate.fitted and candidate.names[0] in LIKELY:
            groups[group].append(candidate)
    return groups


def combine(candidates: Sequence[Candidate]) -> Candidate:
    """Return one candidate that makes the changes of all these candidates, in this order."""
    combined = candidates[0]
    for candidate in candidates[1:]:
        names = tuple(sorted({*combined.names, *candidate.names}))
        combined = Candidate(names, compose_changes(combined, candidate), combined.fitted or candidate.fitted)
    return combined


def combine_parts(
    single: Sequence[Candidate], asked: CaseAnswer, equal_scores: CaseAnswer | None
) -> Iterator[Candidate]:
    """Yield combinations of mistakes in different parts that reproduce `asked`, a case with its answer.

    They must also reproduce `equal_scores`, a case whose scores are all equal; if it is None, at most two mistakes are
    combined. A scale before the softmax has no effect on equal scores. So combinations without one are tested on
    `equal_scores` first, and only those that reproduce it are tried with each scale.
    """
    parts = group_by_part(single)
    late_scales = [candidate for candidate in parts["scale"] if "scale_after_softmax" in candidate.names]
    before_scores = [cache_change(combine(pair)) for pair in itertools.product(parts["heads"], parts["products"])]
    for before_softmax, softmax in itertools.product(before_scores, [*parts["softmax"], *late_scales]):
        if equal_scores is not None and not is_close(combine((before_softmax, softmax)), *equal_scores):
            continue
        # after a mistake in a late scale, only the first scale is tried: it changes nothing
        for scale in parts["scale"][: 1 if softmax in late_scales else None]:
            chosen = (before_softmax, scale, softmax)
            names = set[str]().union(*(candidate.names for candidate in chosen))
            if len(names) > 1 and (equal_scores is not None or len(names) <= 2) and is_close(combine(chosen), *asked):
                yield combine(chosen)


def is_close(candidate: Candidate, case: Case, answer: Answer) -> bool:
    """Return whether a candidate gives an answer up to float32 rounding."""
    stages = predicted(candidate.change(case), case.given)
    if answer.output is None or stages is None or stages["output"].shape != answer.output.shape:
        return False
    error, size = np.abs(stages["output"] - answer.output), np.abs(answer.output)
    return bool(error.max(initial=0.0) < CLOSE_TOLERANCE * size.max(initial=0.0))


# Processor time, so that a check on a busy machine tries as much as on an idle one


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
    if clock is None or process_time() - clock.start <= MAX_SECONDS:
        return True
    clock.was_over = True
    return False
