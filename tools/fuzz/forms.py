"""Every form against the scalar loops: python -m tools.fuzz --only forms

Each form's answer to a random problem is one answer. It must be as near to that of the loops as the rounding of its
type explains: an analytic bound for each row, from the sizes of its numbers.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

import attn_exp
from attn_exp import forms
from attn_exp.forms import blockwise
from attn_exp.forms._blocks import block, operands, plain, tasks
from attn_exp.forms.trace import Trace
from attn_exp.reference import oracle
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.rules import whole_grid
from tools.fuzz._cases import FEW, Array, Case, drawn

ROWS = 8
"""Rows that the loops compute of a problem that is not small."""

SMALL = ((tasks, "KEYS", 16), (tasks, "TILE_LOGITS", 512), (tasks, "SLIVER", 3), (operands, "ROWS", 8),
         (operands, "LEAST_ROWS", 4), (operands, "RELATIVE_FROM", 32), (block, "PIECE", 32),
         (plain, "ONE_THREAD_LOGITS", 64), (plain, "ONE_THREAD_PRODUCT", 64), (blockwise, "LEAST_KEYS_PER_PIECE", 8),
         (blockwise, "KEY_PIECES", 5))  # fmt: skip
"""Tiles so small that small problems have many."""


def attempt(seed: int) -> str | None:
    """Return what is wrong with the answers to the problem of that seed, or None where they agree."""
    return next((f"{form}: {wrong}" for form, wrong in answers(seed) if wrong), None)


def answers(seed: int) -> Iterator[tuple[str, str | None]]:
    case = drawn(seed)
    with warnings.catch_warnings(), tiles(small=seed % 2 == 0):
        warnings.simplefilter("error")
        for kernel in (False, True):
            able = [name for name in (*forms.NAMES, "auto") if takes_part(name, case, kernel)]
            rows = truth(case, "kernel" if kernel else "logits") if able else []
            for name in able:
                yield name, judged(name, case, rows, kernel)


@contextmanager
def tiles(small: bool) -> Iterator[None]:
    with ExitStack() as stack:
        for module, name, value in SMALL if small else ():
            stack.enter_context(patch.object(module, name, value))
        yield


def takes_part(name: str, case: Case, kernel: bool) -> bool:
    """Say whether a form computes the problem; `auto` is the public function, where its arguments can say it."""
    rules = case.rules
    if name == "auto":
        masks = rules.masks in ((), (Causal(),))
        said = masks and not (rules.scores or np.any(rules.offset) or rules.softmax_dtype or rules.bend_last)
        ordinary = rules.normalizer.exponential and case.given[0].ndim != 3 and case.given[0].dtype.itemsize > 2
        return not kernel and said and ordinary and not case.poisoned
    form = forms.form(name)
    if (form.reference == "kernel") != kernel or (case.poisoned and form.leaks):
        return False
    slow = name == "looped" and case.sizes.places > FEW
    return not slow and fits(form, case) and forms.refuses(name, rules) is None


def fits(form: forms.Form, case: Case) -> bool:
    """Say whether the type that a form computes in holds the numbers; kernels need some that do not underflow."""
    most = float(np.finfo(form.computed_in(case.given[0].dtype)).max)
    if form.reference == "kernel":
        ordinary = all(np.abs(array).max(initial=0) < 20 for array in case.clean[:2])
        return case.sizes.d > 0 and ordinary and np.abs(case.clean[2]).max(initial=0) <= np.sqrt(most)
    return all(np.abs(array).max(initial=0) < most for array in case.clean)


Row = tuple[tuple[int, int, int], Array, Array]
"""Entry, head and query of a row, its weights `[s]` and its context `[e]`."""


def truth(case: Case, kind: str) -> list[Row]:
    """Return rows of the answer as the scalar loops compute them: all of a small problem, some of a larger one."""
    sizes, weigh, rows = case.sizes, oracle.REFERENCES[kind], []
    places = list(np.ndindex(case.entries, sizes.h, sizes.t))
    if sizes.places > FEW:
        places = [places[int(place)] for place in np.linspace(0, len(places) - 1, ROWS)]
    for number, head, row in places:
        q, k, v = (side.astype(np.float64) for side in entry(case, number))
        rules, group = case.alone[number], head * sizes.g // sizes.h
        position = row + int(rules.offset)
        weights = weigh(q[head].tolist(), k[group].tolist(), sizes.h, head, row, position, rules) if sizes.s else []
        seen = [number for number, weight in enumerate(weights) if weight]
        found = [math.fsum(weights[number] * column[number] for number in seen) for column in v[group].T.tolist()]
        rows.append(((number, head, row), np.array(weights), np.array(found)))
    return rows


def entry(case: Case, number: int) -> tuple[Array, ...]:
    return case.clean if case.sizes.b is None else tuple(array[number] for array in case.clean)


def judged(name: str, case: Case, rows: list[Row], kernel: bool) -> str | None:
    try:
        trace = compute(name, case)
    except Exception as error:  # whatever is raised is what was looked for
        return f"raises {type(error).__name__}: {error}"
    context, kind = np.asarray(trace.context), case.given[0].dtype
    if context.dtype != kind or context.shape != (*case.given[0].shape[:-1], case.sizes.e):
        return f"answers {context.dtype} {context.shape}"
    for stage, found, at in (("context", trace.context, 2), ("weights", trace.weights, 1)):
        if found is not None and (wrong := compared(np.asarray(found), name, case, rows, at, kernel)):
            return f"{stage} {wrong}"
    return None


def compute(name: str, case: Case) -> Trace:
    """Compute a problem; the public function chooses by itself, and blocks also tell what their weights look like."""
    if name == "auto":
        q, k, v = case.given
        answer = attn_exp.attention(q, k, v, scale=case.rules.scale, is_causal=bool(case.rules.masks))
        return Trace(context=answer)
    form = forms.form(name)
    trace = form.attend(*case.given, case.rules)
    if form.complete is not None:
        trace = trace.replace(weights=form.complete(*case.given, case.rules).weights)
    return trace


def compared(found: Array, name: str, case: Case, rows: list[Row], at: int, kernel: bool) -> str | None:
    found = found if case.sizes.b is not None else found[None]
    for place, weights, context in rows:
        expected = (weights, context)[at - 1]
        value = entry(case, place[0])[2][place[1] * case.sizes.g // case.sizes.h].astype(np.float64)
        size = 1.0 if at == 1 else float(np.abs(value).max(initial=0))
        near = bound(name, case, place, weights, kernel) * size + lost(name, case, place) * max(case.sizes.s, 1)
        error = np.abs(found[place].astype(np.float64) - expected).max(initial=0)
        if not error <= near:
            return f"off by {error:.3g} at {place}, where rounding explains {near:.3g}"
    return None


def lost(name: str, case: Case, place: tuple[int, int, int]) -> float:
    """Return what may be lost of each key because it is too small for the type that a form computes in.

    A number that underflows is off by half of the smallest number. Where weights are divided by their total first, that
    is all. Where powers are summed first, up to four times is so little lost, by the power, by its product with the
    value and by two changes of the shift, and then divided by a total: one of at least `exp(-L)`, since no logit is
    below `-L`, and of at least eps, since blocks take a shift where it is less.
    """
    limits = np.finfo(computed_in(name, case))
    least = float(limits.smallest_subnormal)
    if name != "auto" and not forms.form(name).divides_last:
        return least
    return 2 * least * min(1 / float(limits.eps), float(np.exp(min(largest(case, place), 700.0))))


def computed_in(name: str, case: Case) -> Any:
    """Return the type that a form computes in: that of the loops at most, or of a coarser softmax."""
    own = case.given[0].dtype if name == "auto" else forms.form(name).computed_in(case.given[0].dtype)
    return min((own, np.dtype("f8"), np.dtype(case.rules.softmax_dtype or "f8")), key=lambda kind: kind.itemsize)


def bound(name: str, case: Case, place: tuple[int, int, int], weights: Array, kernel: bool) -> float:
    """Bound the error of a context, in units of its largest value.

    A logit of sums of size L is off by up to `(d + 8) eps L`; the weights of a softmax then by that factor, those of
    other normalizers by that much each. Kernels have no logits, and all their terms are positive.
    """
    sizes, eps = case.sizes, float(np.finfo(computed_in(name, case)).eps)
    if kernel:
        return 8 * (sizes.d + sizes.s + 8) * eps
    slip = (sizes.d + 8) * eps * largest(case, place)
    if case.rules.normalizer.exponential:
        return min(2.0, 2 * float(np.expm1(min(2 * slip, 2.0))) + 2 * (sizes.s + 8) * eps)
    return sizes.s * min(1.0, 4 * slip + 2 * (sizes.s + 8) * eps)


def largest(case: Case, place: tuple[int, int, int]) -> float:
    """Return the largest sum of sizes behind a logit of one row: its products, what is added to it, and what is not."""
    number, head, row = place
    q, k, _ = (array.astype(np.float64) for array in entry(case, number))
    rules, sizes = case.alone[number], case.sizes
    sums = abs(rules.scale) * np.abs(k[head * sizes.g // sizes.h]) @ np.abs(q[head, row])
    grid = whole_grid(rules, sizes.h, sizes.t, sizes.s)
    for rule in rules.scores:
        bias, extra = rule.bias(grid), rule.extra(head)
        sums = sums + (0 if bias is None else np.abs(np.broadcast_to(bias, (sizes.h, sizes.t, sizes.s))[head, row]))
        sums = sums + (0 if extra is None else abs(float(extra)))
    return 1.0 + float(sums.max(initial=0))
