"""Several mistakes at once, at most one per part of attention: heads, products, scale, softmax, masks.

If all scores are equal, only mistakes of heads and softmax show: they are found first, then those of products and
scale, and on masked cases one of masks. This finds four mistakes in some hundreds of tries, where all combinations of
four would be millions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import process_time

import numpy as np

from attn_exp import mistakes
from attn_exp.diagnosis.asking.case import Answer, Asked, Case, predicted
from attn_exp.diagnosis.recipes.candidates import Candidate, composed, everywhere, once
from attn_exp.diagnosis.recipes.fitted import fitted_factors
from attn_exp.mistakes.masks import filled

PARTS = ("heads", "products", "scale", "softmax")
"""Groups of the catalogue, in the order in which their mistakes apply."""
LIKELY = frozenset((
    "heads_not_transposed", "heads_merged_wrong", "heads_by_stride", "entries_and_heads_mixed", "single_head",
    "tokens_not_transposed", "projection_diagonal", "weights_diagonal", "keys_viewed", "values_viewed",
    "queries_keys_swapped", "weights_transposed", "values_from_keys",
    "keys_from_queries", "queries_from_keys", "no_scale", "scale_by_d", "scale_by_sqrt_d_model",
    "scale_by_sqrt_heads", "scale_by_heads", "scale_by_batch", "scale_multiplied", "scale_twice",
    "scale_after_softmax", "scale_by_sqrt_keys", "scale_by_keys", "softmax_over_queries", "softmax_over_heads",
    "softmax_over_all", "keepdims_missing",
))  # fmt: skip
"""Mistakes that are tried together."""
INVERTED = "mask_inverted"
LARGE_FILL = Candidate((), everywhere(filled(-1e9)))
"""A common replacement for -inf: harmless alone, but not next to other mistakes."""
CLOSE = 1e-5
"""Relative tolerance of about float32."""


def group_by_part(single: Sequence[Candidate]) -> dict[str, list[Candidate]]:
    groups = {part: [Candidate((), lambda case: case.recipe)] for part in PARTS}
    for one in single:
        group = mistakes.mistake(one.names[0]).group
        if group in groups and not one.fitted and one.names[0] in LIKELY:
            groups[group].append(one)
    return groups


def together(parts: Sequence[Candidate]) -> Candidate:
    made = parts[0]
    for other in parts[1:]:
        names = tuple(sorted({*made.names, *other.names}))
        made = Candidate(names, composed(made, other), made.fitted or other.fitted)
    return made


def in_several_parts(single: Sequence[Candidate], asked: Asked, equal: Asked | None) -> Iterator[Candidate]:
    """Yield mistakes of several parts that reproduce a case, and one with equal scores (`equal`).

    Without `equal`, at most two parts are combined. Last, a factor of the scores is fitted for combinations that
    reproduce `equal`.
    """
    parts = group_by_part(single)
    late = [one for one in parts["scale"] if "scale_after_softmax" in one.names]
    unscaled = list[Candidate]()
    before = [once(together(pair)) for pair in itertools.product(parts["heads"], parts["products"])]
    for mixed, shared in itertools.product(before, [*parts["softmax"], *late]):
        if equal is None and count(mixed, shared) > 2:
            continue
        first = together((mixed, shared))
        if equal is not None and not is_close(first, *equal):
            continue
        after = shared in late
        unscaled += [first] if first.names and equal is not None and not after else []
        for scaled in parts["scale"][: 1 if after else None]:
            some = (mixed, *((shared,) if after else (scaled, shared)))
            if count(*some) > 1 and (equal or count(*some) < 3) and is_close(made := together(some), *asked):
                yield made
    case, answer = asked
    for first in keep_distinct_outputs(unscaled, case) if answer.output is not None else ():
        yield from fitted_factors(first, case, answer.output)  # type: ignore[arg-type]


def count(*parts: Candidate) -> int:
    return len(set[str]().union(*[one.names for one in parts]))


def keep_distinct_outputs(several: Sequence[Candidate], case: Case) -> Iterator[Candidate]:
    seen = set[bytes]()
    for one in several:
        stages = predicted(one.change(case), case.given)
        key = b"" if stages is None else np.round(stages["output"], ALIKE).tobytes()
        if key not in seen:
            seen.add(key)
            yield one


ALIKE = 9
"""Decimals to which two outputs are compared."""


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
"""Seconds after which a check tries no more combinations of mistakes."""


@dataclass
class Clock:
    """When a check began, and whether it skipped anything for lack of time."""

    start: float = field(default_factory=process_time)
    was_over: bool = False


CLOCK: ContextVar[Clock | None] = ContextVar("the clock of the check that is at work", default=None)


@contextmanager
def start_clock() -> Iterator[Clock]:
    clock = Clock()
    token = CLOCK.set(clock)
    try:
        yield clock
    finally:
        CLOCK.reset(token)


def has_time() -> bool:
    """Return whether the check that is at work may still try combinations of mistakes; the clock records a no."""
    clock = CLOCK.get()
    if clock is None or process_time() - clock.start <= EXPLAINING:
        return True
    clock.was_over = True
    return False
