"""How large a sweep may be: counted before anything is written out."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, prod

from attn_exp.errors import UserError, brief
from attn_exp.sweeps.space import Axis

MOST_POINTS = 50_000_000
"""A plan of so many points starts in seconds, and its table fills a disk."""

MOST_WRITTEN_OUT = 1_000_000
"""Values that are no even steps of whole numbers are held one by one."""

MOST_COMPOSED = 10_000
"""Each composition by Hydra takes hundredths of a second."""


def check_length(word: str, start: float, stop: float, step: float) -> None:
    """Refuse a range of more values than a sweep may have points, or than fit memory.

    Raises:
        UserError: how many values there would be.
    """
    count = max(0, ceil((Fraction(stop) - Fraction(start)) / Fraction(step)))
    whole = all(isinstance(end, int) for end in (start, stop, step))
    most = MOST_POINTS if whole else MOST_WRITTEN_OUT
    if count > most:
        kind = "values" if whole else "values that are no whole numbers"
        raise UserError(f"{brief(word)}: {amount(count)} {kind}; a sweep takes at most {most:,}")


def check_size(axes: Sequence[Axis], dimensions: Sequence[Sequence[int]]) -> None:
    """Refuse a sweep of too many points, or of too many compositions by Hydra.

    Raises:
        UserError: how many there would be.
    """
    lengths = [len(axes[together[0]].values) for together in dimensions]
    composed = [any(axes[place].composed for place in together) for together in dimensions]
    if prod(lengths) > MOST_POINTS:
        raise UserError(f"{amount(prod(lengths))} points; a sweep takes at most {MOST_POINTS:,}")
    compositions = prod(length for length, by_hydra in zip(lengths, composed, strict=True) if by_hydra)
    if compositions > MOST_COMPOSED:
        raise UserError(
            f"{amount(compositions)} choices of groups and of what other settings read; a sweep composes at most "
            f"{MOST_COMPOSED:,}"
        )


def amount(count: int) -> str:
    """Write a count in full, or as a power of ten where that would be long."""
    return f"{count:,}" if count < 10**15 else f"about 1e{len(str(count)) - 1 if count < 10**4000 else 4000}"
