"""Test invariants of every variant, for example that decoding matches prefill and that hidden keys have no effect.

Each invariant is a function that takes a `Case`, computes attention in two ways and returns both results; they should
be equal. It raises `NotApplicableError` if the invariant does not apply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from attn_exp import forms
from attn_exp.arrays import Array
from attn_exp.config.schema import Config
from attn_exp.errors import OwnCodeError
from attn_exp.experiment.checks.check import Check
from attn_exp.experiment.executing import float_info, prepare_heads
from attn_exp.experiment.measuring import SAME_FUNCTION
from attn_exp.experiment.metrics.errors import largest_error
from attn_exp.experiment.metrics.logits import gradient
from attn_exp.experiment.variant import Settled
from attn_exp.problem.problem import Problem
from attn_exp.rules.masks.mask import AllOf
from attn_exp.rules.rules import Rules, allowed_entries, whole_grid
from attn_exp.rules.scores.added import Added

Answer = tuple[Array, Array]
"""Two arrays that should be equal. The first may also be a stack of arrays that should all equal the second."""


class NotApplicableError(Exception):
    """An invariant does not apply to a variant; the message gives the reason."""


@dataclass(frozen=True)
class Case:
    """A variant with its q `[h t d]`, k `[g s d]`, v `[g s e]` and rules; an invariant changes some and recomputes."""

    settled: Settled
    q: Array
    k: Array
    v: Array
    rules: Rules

    def compute(self, **settings: int) -> Array:
        """Return the context `[h t e]`."""
        with np.errstate(all="ignore"):  # NaN and huge numbers may cause warnings
            context = self.settled.member.attend(self.q, self.k, self.v, self.rules, **settings).context
        assert context is not None
        return context

    @property
    def shape(self) -> tuple[int, int, int]:
        """The number of heads, queries and keys."""
        return len(self.q), self.q.shape[1], self.k.shape[1]

    @property
    def offset(self) -> int:
        """The position of the first query among the keys."""
        return int(self.rules.offset)

    def allowed(self) -> Array:
        heads, rows, keys = self.shape
        return allowed_entries(self.rules.masks, rows, keys, self.offset, heads)

    def biases(self) -> list[Array]:
        grid = whole_grid(self.rules, *self.shape)
        return [np.asarray(bias) for rule in self.rules.scores if (bias := rule.bias(grid)) is not None]


def refuse_if(*reasons: tuple[bool, str]) -> None:
    # the first text whose condition is true
    for text in (text for holds, text in reasons if holds):
        raise NotApplicableError(text)


def token_order(case: Case) -> Answer:
    """Permuting the tokens permutes the outputs, unless masks or scores depend on positions."""
    _, rows, keys = case.shape
    uses_positions = bool(case.rules.masks or case.settled.positions) or any(np.ptp(bias) > 0 for bias in case.biases())
    reason = "queries and keys are different tokens"
    refuse_if((uses_positions, "rules depend on positions"), (rows != keys, reason))
    order = np.random.default_rng(0).permutation(rows)
    shuffled = replace(case, q=case.q[:, order], k=case.k[:, order], v=case.v[:, order])
    return shuffled.compute(), case.compute()[:, order]


def head_order(case: Case) -> Answer:
    """Permuting the heads permutes the outputs, unless a rule differs between heads."""
    head = whole_grid(case.rules, *case.shape).head
    extras = [np.asarray(extra) for rule in case.rules.scores if (extra := rule.extra(head)) is not None]
    arrays = [np.broadcast_to(array, case.shape) for array in (*case.biases(), *extras, case.allowed().astype(float))]
    refuse_if(
        (len(case.q) == 1, "there is only one head"),
        (len(case.q) != len(case.k), "heads share keys and values"),
        (any(np.ptp(array, axis=0).any() for array in arrays), "rules differ between heads"),
    )
    reversed_heads = replace(case, q=case.q[::-1], k=case.k[::-1], v=case.v[::-1])
    return reversed_heads.compute(), case.compute()[::-1]


def block_size(case: Case) -> Answer:
    """The output does not depend on the number of queries per block."""
    refuse_if((not case.settled.member.takes_rows, "the form has no blocks"))
    sizes = [size for size in (1, 2, 3, case.q.shape[1]) if size <= case.q.shape[1]]
    return np.stack([case.compute(rows=size) for size in sizes]), case.compute()


MOST_POISONED = 16
"""Maximum number of hidden keys to poison, one at a time. If there are more, evenly spaced ones are chosen."""


def future(case: Case) -> Answer:
    """Later tokens cannot change the output of a query."""
    _, rows, keys = case.shape
    later = np.arange(keys) > np.arange(rows)[:, None] + case.offset  # `[t s]`
    refuse_if((bool((case.allowed() & later).any()), "no mask hides the future"))
    early_rows = slice(rows // 2 + 1)
    is_later = np.arange(keys)[:, None] > rows // 2 + case.offset
    k, v = (np.where(is_later, side.dtype.type(3), side) for side in (case.k, case.v))
    return replace(case, k=k, v=v).compute()[:, early_rows], case.compute()[:, early_rows]


def poison(case: Case, number: float) -> Answer:
    """Hidden keys and values do not change the output of a query, whatever numbers they contain."""
    allowed = case.allowed()
    hidden = np.flatnonzero(~allowed.all(axis=(0, 1)))
    refuse_if((not len(hidden), "every query sees every key"))
    clean, poisoned, expected = case.compute(), [], []
    for key in hidden[np.linspace(0, len(hidden) - 1, min(len(hidden), MOST_POISONED)).astype(int)]:
        k, v = case.k.copy(), case.v.copy()
        k[:, key] = v[:, key] = number
        is_hidden = ~allowed[:, :, key]
        poisoned.append(replace(case, k=k, v=v).compute()[is_hidden])
        expected.append(clean[is_hidden])
    return np.concatenate(poisoned), np.concatenate(expected)


def decoding(case: Case) -> Answer:
    """Computing all queries at once gives the same outputs as decoding them one by one.

    A decoding step has only the keys up to its own position. Queries before the first key are left out.
    """
    heads, rows, keys = case.shape
    refusal, first_row = forms.refuses("decode", case.rules) or "", max(-case.offset, 0)
    is_aligned = rows == keys or case.offset in (keys - rows, AllOf(case.rules.masks).unpadded(keys) - rows)
    refuse_if(
        (bool(refusal), refusal if case.settled.form != "decode" else "this form already decodes one query at a time"),
        (
            any(rule.misfit(heads, 1, keys - 1) for rule in (*case.rules.masks, *case.rules.scores)),
            "a rule has an array with the shape of the whole problem",
        ),
        (not is_aligned, "decoding aligns the last query with the last key, but this run does not"),
        (first_row >= rows, "no query has a key"),
    )
    steps = []
    for row in range(first_row, rows):
        stop = min(keys, row + case.offset + 1)
        rules = replace(case.rules, offset=row + case.offset)
        step = replace(case, q=case.q[:, row : row + 1], k=case.k[:, :stop], v=case.v[:, :stop], rules=rules)
        steps.append(step.compute())
    return np.concatenate(steps, axis=1), case.compute()[:, first_row:]


def logit_shift(case: Case) -> Answer:
    """Adding a constant to every logit changes nothing if the weights of a row sum to 1.

    There are two constants: the `exp` of one overflows, and the `exp` of the other underflows. So code that does not
    subtract the largest logit fails.
    """
    normalizer = case.rules.normalizer
    is_shift_dependent = not normalizer.ignores_shift or any(rule.extra(0) is not None for rule in case.rules.scores)
    reason = f"{normalizer.name} is not invariant to shifts" if normalizer.signed else "weights do not sum to 1"
    overflow = 1.1 * float(np.log(float_info(case.settled.computed_in).max))
    shifted_rules = [
        replace(case.rules, scores=(*case.rules.scores, Added(np.array([[shift]])))) for shift in (overflow, -overflow)
    ]
    refusal = forms.refuses(case.settled.form, shifted_rules[0]) or ""
    bends_later = case.rules.bend_last and bool(case.rules.scores)
    refuse_if(
        (is_shift_dependent, reason),
        (bends_later, "score rules change logits after the shift"),
        (bool(refusal), refusal),
    )
    return np.stack([replace(case, rules=rules).compute() for rules in shifted_rules]), case.compute()


NO_DOT_PRODUCTS = "scores are not dot products"


def rope_shift(case: Case) -> Answer:
    """Shifting queries and keys by the same distance changes nothing."""
    relative = [position for position in case.settled.positions if position.relative]
    refuse_if((case.rules.pairing is not None, NO_DOT_PRODUCTS), (not relative, "no rotary positions"))
    q, k = case.q, case.k
    for position in relative:  # rotating every token by the angles of position 7 shifts it by 7 positions
        q, k = position.turn(q, np.full(q.shape[1], 7)), position.turn_key(k, np.full(k.shape[1], 7))
    return replace(case, q=q, k=k).compute(), case.compute()


def gradients(case: Case) -> Answer:
    """The analytic derivative along a random direction matches finite differences."""
    dtype, normalizer = case.settled.computed_in, case.rules.normalizer
    refuse_if(
        (case.settled.member.reference != "logits", "the formula assumes normalized logits"),
        (case.rules.pairing is not None, NO_DOT_PRODUCTS),
        (normalizer.slope is None, f"{normalizer.name} is not differentiable, or its derivative is not implemented"),
        (dtype != np.float64, f"{dtype.name} is too coarse for finite differences"),
    )
    rng, step = np.random.default_rng(0), 1e-5
    sides = (case.q, case.k, case.v)
    directions = [rng.standard_normal(side.shape) for side in sides]
    received, outcomes = rng.standard_normal((*case.q.shape[:2], case.v.shape[-1])), []
    for sign in (1, -1):
        q, k, v = (side + sign * step * direction for side, direction in zip(sides, directions, strict=True))
        outcomes.append((received * replace(case, q=q, k=k, v=v).compute()).sum())
    gradients_qkv = gradient(*sides, case.rules, received)
    expected = sum((direction * slope).sum() for direction, slope in zip(directions, gradients_qkv, strict=True))
    return np.array([(outcomes[0] - outcomes[1]) / (2 * step)]), np.array([expected])


TOLERANCE = 1e-9
"""Differences of up to this fraction of the largest output count as rounding.

For a form that computes in a coarser dtype than float64, the limit is `SAME_FUNCTION` ulp of that dtype. Gradients are
compared with finite differences, so their limit is the square root of this."""

INVARIANTS: dict[str, Callable[[Case], Answer]] = {
    "token order": token_order,
    "no leak from the future": future,
    "poison NaN": partial(poison, number=float("nan")),
    "poison 1e30": partial(poison, number=1e30),
    "logit shift": logit_shift,
    "rope shift": rope_shift,
    "block size": block_size,
    "prefill against decode": decoding,
    "head order": head_order,
    "gradients": gradients,
}


@dataclass(frozen=True)
class Record:
    """One invariant of one variant.

    `holds`: `yes`, `no`, or `-` if the invariant does not apply.
    `largest`: the largest difference between the two results, divided by the largest output.
    `note`: why the invariant does not apply.
    """

    variant: str
    invariant: str
    holds: str
    largest: float
    note: str


def examine(config: Config, problem: Problem, variants: Sequence[Settled]) -> Iterator[Record]:
    for settled in variants:
        q, k, v = prepare_heads(settled, problem)
        rounding = max(TOLERANCE, SAME_FUNCTION * float(float_info(settled.computed_in).eps))
        for name, compute_both in INVARIANTS.items():
            try:
                if q is None or k is None or v is None:
                    raise NotApplicableError("the problem has no queries, keys and values")
                actual, expected = compute_both(Case(settled, q, k, v, settled.rules))
            except (NotApplicableError, OwnCodeError) as error:
                yield Record(settled.name, name, "-", float("nan"), str(error))
                continue
            largest = largest_error(actual, expected) / (float(np.abs(expected).max(initial=0.0)) or 1.0)
            holds = largest <= (rounding**0.5 if name == "gradients" else rounding)
            yield Record(settled.name, name, "yes" if holds else "no", largest, "")


def sentence(records: Sequence[Record]) -> str:
    applied = [record for record in records if record.holds != "-"]
    broken = [f"{record.invariant} of {record.variant}" for record in applied if record.holds == "no"]
    count = f"{len(applied) - len(broken)} of {len(applied)} invariants hold"
    return f"{count}; broken: {', '.join(broken)}." if broken else f"{count}."


CHECK = Check(record=Record, examine=examine, sentence=sentence)
