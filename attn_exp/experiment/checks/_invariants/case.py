"""What an invariant is, and what it is tried on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from attn_exp.arrays import Array
from attn_exp.experiment.variant import Settled
from attn_exp.rules.picture import places
from attn_exp.rules.rules import Rules, whole_grid

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
