"""What must not change, tried on every variant: order of tokens, the future, poison, blocks, decoding, gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from attn_exp import forms
from attn_exp.arrays import Array
from attn_exp.config.schema import Config
from attn_exp.errors import OwnCodeError
from attn_exp.experiment.checks.check import Check
from attn_exp.experiment.executing import placed
from attn_exp.experiment.gradients import slope
from attn_exp.experiment.metrics.errors import largest_error
from attn_exp.experiment.number_types import limits
from attn_exp.experiment.sameness import SAME_FUNCTION
from attn_exp.experiment.variant import Settled
from attn_exp.problem.problem import Problem
from attn_exp.rules.masks.mask import AllOf
from attn_exp.rules.rules import Rules, places, whole_grid
from attn_exp.rules.scores.added import Added

Answer = tuple[Array, Array] | str
"""Two arrays that should be equal, or why the invariant does not apply."""


@dataclass(frozen=True)
class Case:
    """A variant's own q `[h t d]`, k `[g s d]`, v `[g s e]` and rules, ready to be changed and computed again."""

    settled: Settled
    q: Array
    k: Array
    v: Array
    rules: Rules

    def compute(self, **settings: int) -> Array:
        """Return the context `[h t e]`."""
        with np.errstate(all="ignore"):  # poison may complain where it is looked at
            context = self.settled.member.attend(self.q, self.k, self.v, self.rules, **settings).context
        assert context is not None
        return context

    def allowed(self) -> Array:
        """Return which places may attend, `[h t s]`."""
        rows, keys = self.q.shape[1], self.k.shape[1]
        return places(self.rules.masks, rows, keys, int(self.rules.offset), len(self.q))


@dataclass(frozen=True)
class Invariant:
    """Something that must not change: `attempt` returns what should be equal; `slopes` are known less exactly."""

    name: str
    attempt: Callable[[Case], Answer]
    slopes: bool = False


def looks_at_places(case: Case) -> bool:
    """Say whether a score rule gives different places different numbers."""
    grid = whole_grid(case.rules, len(case.q), case.q.shape[1], case.k.shape[1])
    biases = [bias for rule in case.rules.scores if (bias := rule.bias(grid)) is not None]
    return any(np.ptp(np.asarray(bias)) > 0 for bias in biases)


def looks_at_heads(case: Case) -> bool:
    """Say whether a rule gives different heads different numbers, or different sight."""
    shape = len(case.q), case.q.shape[1], case.k.shape[1]
    grid = whole_grid(case.rules, *shape)
    biases = [bias for rule in case.rules.scores if (bias := rule.bias(grid)) is not None]
    extras = [extra for rule in case.rules.scores if (extra := rule.extra(grid.head)) is not None]
    numbers = [np.broadcast_to(array, shape) for array in (*biases, *extras, case.allowed().astype(float))]
    return any(np.ptp(array, axis=0).any() for array in numbers)


def token_order(case: Case) -> Answer:
    """Tokens in another order give the same outputs in that order, where neither masks nor scores look at places."""
    if case.rules.masks or looks_at_places(case) or case.settled.positions:
        return "rules look at places"
    if case.q.shape[1] != case.k.shape[1]:
        return "queries and keys are not the same tokens"
    order = np.random.default_rng(0).permutation(case.q.shape[1])
    shuffled = replace(case, q=case.q[:, order], k=case.k[:, order], v=case.v[:, order])
    return shuffled.compute(), case.compute()[:, order]


def head_order(case: Case) -> Answer:
    """Heads in another order give the same outputs in that order, where no rule differs between heads."""
    if len(case.q) == 1:
        return "one head has no order"
    if len(case.q) != len(case.k):
        return "heads share keys and values"
    if looks_at_heads(case):
        return "rules differ between heads"
    turned = replace(case, q=case.q[::-1], k=case.k[::-1], v=case.v[::-1])
    return turned.compute(), case.compute()[::-1]


def block_size(case: Case) -> Answer:
    """The answer does not depend on how many queries a block holds."""
    if not case.settled.member.takes_rows:
        return "the form has no blocks"
    sizes = [size for size in (1, 2, 3, case.q.shape[1]) if size <= case.q.shape[1]]
    return np.stack([case.compute(rows=size) for size in sizes]), np.stack([case.compute()] * len(sizes))


MOST_POISONED = 16
"""Of more hidden keys than this, evenly spaced ones are tried, each in a computation of its own."""


def future(case: Case) -> Answer:
    """What comes after a query cannot change its output."""
    allowed = case.allowed()
    rows, keys = allowed.shape[1:]
    later = np.arange(keys) > np.arange(rows)[:, None] + int(case.rules.offset)
    if (allowed & later).any():
        return "no mask hides the future"
    cut = rows // 2
    stop = max(cut + int(case.rules.offset) + 1, 0)
    changed = replace(case, k=after(case.k, stop, 3.0), v=after(case.v, stop, 3.0))
    return changed.compute()[:, : cut + 1], case.compute()[:, : cut + 1]


def poison(held: float) -> Callable[[Case], Answer]:
    """Return the attempt in which keys and values that a query may not see hold this number."""

    def attempt(case: Case) -> Answer:
        allowed = case.allowed()
        hidden = np.flatnonzero(~allowed.all(axis=(0, 1)))
        if not len(hidden):
            return "every query sees every key"
        clean, poisoned, expected = case.compute(), [], []
        for key in hidden[np.linspace(0, len(hidden) - 1, min(len(hidden), MOST_POISONED)).astype(int)]:
            k, v = case.k.copy(), case.v.copy()
            k[:, key], v[:, key] = held, held
            blind = ~allowed[:, :, key]
            poisoned.append(replace(case, k=k, v=v).compute()[blind])
            expected.append(clean[blind])
        return np.concatenate(poisoned), np.concatenate(expected)

    return attempt


def decoding(case: Case) -> Answer:
    """All queries at once give what they give one by one, each with the keys up to its own.

    A query that has no key yet is left out: decoding starts with a key.
    """
    if refusal := forms.refuses("decode", case.rules):
        return refusal if case.settled.form != "decode" else "the form decodes already"
    rows, keys, offset = case.q.shape[1], case.k.shape[1], int(case.rules.offset)
    if any(rule.misfit(len(case.q), 1, keys - 1) for rule in (*case.rules.masks, *case.rules.scores)):
        return "a rule has numbers for the whole problem"
    if rows != keys and offset not in (keys - rows, AllOf(case.rules.masks).unpadded(keys) - rows):
        return "the last query does not stand beside the last key, as in decoding"
    steps, first = [], max(-offset, 0)
    if first >= rows:
        return "no query has a key"
    for row in range(first, rows):
        stop = min(keys, row + offset + 1)
        rules = replace(case.rules, offset=row + offset)
        step = replace(case, q=case.q[:, row : row + 1], k=case.k[:, :stop], v=case.v[:, :stop], rules=rules)
        steps.append(step.compute())
    return np.concatenate(steps, axis=1), case.compute()[:, first:]


def after(array: Array, start: int, number: float) -> Array:
    """Return the array with another number in every token from `start` on."""
    changed = array.copy()
    changed[:, start:] = number
    return changed


def logit_shift(case: Case) -> Answer:
    """A constant added to every logit changes nothing, where weights share a sum.

    It is so large, and so small, that no power of e holds it: who forgets to take the largest logit off is found out.
    """
    if not case.rules.normalizer.ignores_shift or any(rule.extra(0) is not None for rule in case.rules.scores):
        name = case.rules.normalizer.name
        return f"{name} is moved by it" if case.rules.normalizer.signed else "weights do not share a sum of 1"
    if case.rules.bend_last and case.rules.scores:
        return "logits are bent after the shift"
    beyond = 1.1 * float(np.log(limits(case.settled.computed_in).max))
    answers = []
    for shift in (beyond, -beyond):
        shifted = replace(case.rules, scores=(*case.rules.scores, Added(np.array([[shift]]))))
        if refusal := forms.refuses(case.settled.form, shifted):
            return refusal
        answers.append(replace(case, rules=shifted).compute())
    return np.stack(answers), np.stack([case.compute()] * 2)


def rope_shift(case: Case) -> Answer:
    """Queries and keys moved by the same distance attend as before."""
    if case.rules.pairing is not None:
        return "scores are no products"
    relative = [position for position in case.settled.positions if position.relative]
    if not relative:
        return "no rotary positions"
    q, k = case.q, case.k
    for position in relative:  # a constant turn on top of the positions moves every token by that many places
        q, k = position.turn(q, np.full(q.shape[1], 7)), position.turn_key(k, np.full(k.shape[1], 7))
    return replace(case, q=q, k=k).compute(), case.compute()


def gradients(case: Case) -> Answer:
    """The slope along a random direction, from the formula, is that of finite differences."""
    if case.settled.member.reference != "logits":
        return "the formula is that of normalized logits"
    if case.rules.pairing is not None:
        return "scores are no products"
    if case.rules.normalizer.slope is None:
        return f"{case.rules.normalizer.name} has corners, or no formula here"
    if case.settled.computed_in != np.float64:
        return f"{case.settled.computed_in.name} is too coarse for finite differences"
    rng, step = np.random.default_rng(0), 1e-5
    along = [rng.standard_normal(array.shape) for array in (case.q, case.k, case.v)]
    ends = []
    for sign in (1, -1):
        q, k, v = (array + sign * step * way for array, way in zip((case.q, case.k, case.v), along, strict=True))
        ends.append(replace(case, q=q, k=k, v=v).compute())
    return (ends[0] - ends[1]) / (2 * step), slope(case.q, case.k, case.v, case.rules, along)


TOLERANCE = 1e-9
"""Differences up to this, relative to the largest output, are rounding; those of finite differences up to its root.

Where a form computes in a coarser type than float64, `SAME_FUNCTION` units of that are."""

INVARIANTS = (
    Invariant("token order", token_order),
    Invariant("no leak from the future", future),
    Invariant("poison NaN", poison(float("nan"))),
    Invariant("poison 1e30", poison(1e30)),
    Invariant("logit shift", logit_shift),
    Invariant("rope shift", rope_shift),
    Invariant("block size", block_size),
    Invariant("prefill against decode", decoding),
    Invariant("head order", head_order),
    Invariant("gradients", gradients, slopes=True),
)


@dataclass(frozen=True)
class Record:
    """One invariant of one variant.

    `largest` is the largest difference relative to the largest output; `holds` is yes, no, or - where `note` says why
    the invariant does not apply.
    """

    variant: str
    invariant: str
    holds: str
    largest: float
    note: str


def examine(config: Config, problem: Problem, variants: Sequence[Settled]) -> Iterator[Record]:
    """Try every invariant on every variant."""
    for settled in variants:
        q, k, v = placed(settled, problem)
        for invariant in INVARIANTS:
            if q is None or k is None or v is None:
                yield judged(settled, invariant, "the problem has no queries, keys and values")
            else:
                yield judged(settled, invariant, attempted(invariant, Case(settled, q, k, v, settled.rules)))


def attempted(invariant: Invariant, case: Case) -> Answer:
    """Try one invariant; where the user's own code gives no answer, its error says why."""
    try:
        return invariant.attempt(case)
    except OwnCodeError as error:
        return str(error)


def judged(settled: Settled, invariant: Invariant, answer: Answer) -> Record:
    """Return the record of one attempt."""
    if isinstance(answer, str):
        return Record(settled.name, invariant.name, "-", float("nan"), answer)
    array, expected = answer
    size = float(np.abs(expected).max(initial=0.0)) or 1.0
    largest = largest_error(array, expected) / size
    rounding = max(TOLERANCE, SAME_FUNCTION * float(limits(settled.computed_in).eps))
    tolerance = rounding**0.5 if invariant.slopes else rounding
    return Record(settled.name, invariant.name, "yes" if largest <= tolerance else "no", largest, "")


def sentence(records: Sequence[Record]) -> str:
    """Say how many invariants hold and which do not."""
    applied = [record for record in records if record.holds != "-"]
    broken = [f"{record.invariant} of {record.variant}" for record in applied if record.holds == "no"]
    count = f"{len(applied) - len(broken)} of {len(applied)} invariants hold"
    return f"{count}; broken: {', '.join(broken)}." if broken else f"{count}."


CHECK = Check(
    record=Record,
    columns=("variant", "invariant", "holds", "largest", "note"),
    examine=examine,
    sentence=sentence,
)
