"""How long a run will take, said before it starts: from its sizes, and from how fast small parts of it are."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import TextIO

import numpy as np

from attn_exp.errors import UserError
from attn_exp.experiment.variant import Settled
from attn_exp.patience import spoken, spoken_time
from attn_exp.problem.problem import Problem
from attn_exp.reference import oracle
from attn_exp.rules.rules import Rules

PATIENCE = 10.0
"""Seconds that a run may take without a word before it."""

MANY = 100_000
"""Places `[h t s]` of which even Python's loops compute as many in seconds: runs of fewer are not asked about."""

LENGTHS, ENOUGH = (8, 16, 32, 64, 128, 256, 512, 1024), 0.02
"""Tokens of the samples, each timed until one takes this many seconds."""

KEPT = 1.2e-7
"""Seconds that a place of weights which are kept takes beside its form: compared, measured, and written."""

LOOPED = 8e-8
"""Seconds that the reference takes for a product of two numbers."""

SIZE = 16
"""The widest head of a sample; wider ones take longer in proportion."""


def seconds_of(variants: Sequence[Settled], problem: Problem, weights: str = "auto") -> dict[str, float]:
    """Return about how many seconds each variant takes, and the reference; nothing where all of it is short.

    A variant of code of the user's own is left out: how fast it is nobody knows before it has run.
    """
    rows, keys = len(problem.tokens), problem.keys
    chosen = [variant for variant in variants if not variant.refused and variant.own is None]
    if max((variant.head for variant in chosen), default=0) * rows * keys < MANY:
        return {}
    times = {}
    for variant in chosen:
        places = variant.head * rows * keys
        kept = KEPT if variant.member.matrices and weights != "blocks" else 0.0
        times[variant.name] = places * (seconds_of_a_place(variant, problem, places, weights) + kept)
    width = sum(side.shape[1] for side in (problem.q, problem.k, problem.v) if side is not None) or 1
    asked = sum(not oracle.silent(variant.question) for variant in chosen)
    times["the reference"] = asked * LOOPED * len(oracle.checked_rows(rows, problem)) * keys * width
    return times


def seconds_of_a_place(variant: Settled, problem: Problem, places: int, weights: str) -> float:
    """Return about how long a form takes for one more query and key, timed on a few tokens.

    The fewer they are, the more of the time goes into the call itself: what is short all the same is timed no further.
    """
    sizes = [side.shape[1] // variant.head for side in (problem.q, problem.v) if side is not None]
    size = max(1, min(SIZE, max(sizes, default=1)))
    wider = max(1.0, max(sizes, default=1) / (8 * SIZE))  # a few more numbers cost nothing beside all else
    rate, before = 0.0, 0.0
    for length in LENGTHS:
        taken = min(timed(variant, length, size, weights) for _ in range(2))  # the first of them may load something
        rate = max(taken - before, taken / 4) / (length**2 * (0.75 if before else 1.0))
        if taken > ENOUGH or places * rate < PATIENCE / 10:
            break
        before = taken
    return rate * wider


def timed(variant: Settled, length: int, size: int, weights: str) -> float:
    """Return the seconds that the form of a variant takes for one head of so many tokens."""
    q, k, v = (np.full((1, length, size), 0.5) for _ in range(3))
    attend = variant.member.keeping(weights)
    start = perf_counter()
    try:
        attend(q, k, v, variant.rules)
    except Exception:  # a rule that is made for these very tokens; the plain function is about as fast
        start = perf_counter()
        attend(q, k, v, Rules(scale=variant.rules.scale))
    return perf_counter() - start


def tell(variants: Sequence[Settled], problem: Problem, weights: str, stream: TextIO | None = None) -> None:
    """Say on stderr about how long a run will take, where that is long."""
    try:
        times = seconds_of(variants, problem, weights)
    except (UserError, ArithmeticError, ValueError, TypeError):  # then the run says what is wrong
        return
    if sum(times.values()) >= PATIENCE:
        print(said(times, problem), file=stream or sys.stderr, flush=True)
        spoken()


def said(times: Mapping[str, float], problem: Problem) -> str:
    """Return the line: the whole, and what most of it goes into."""
    whole = sum(times.values())
    long = sorted((name for name in times if times[name] > whole / 10), key=lambda name: -times[name])
    parts = ", ".join(f"{name} {spoken_time(times[name])}" for name in long)
    tokens = f"{len(problem.tokens):,} tokens"
    tokens += f" with {problem.keys:,} keys" if problem.keys != len(problem.tokens) else ""
    return f"attn_exp: {tokens} take about {spoken_time(whole)} ({parts}); Ctrl-C ends it"
