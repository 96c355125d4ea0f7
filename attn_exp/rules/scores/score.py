"""The contract of a score rule: a rule that changes logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from attn_exp.arrays import Array
from attn_exp.rules.grid import Grid, Rule


class Score(Rule):
    """A rule that changes logits: first by `bend`, then by `bias`; masks come last.

    A rule with `pairs` computes the scores itself, in place of the products of queries and keys.
    """

    pairs: ClassVar[bool] = False

    def pair(self, q: Array, k: Array, head: Array | int) -> Array:
        """Return the scores `[... t s]` of queries `[... t d]` and keys `[... s d]`; needed if `pairs` is set."""
        raise NotImplementedError

    def pair_twin(self, query: Sequence[float], key: Sequence[float], head: int) -> float:
        """Return the score of one query and one key in pure `math`, derived independently for the reference."""
        raise NotImplementedError

    def misfit_size(self, size: int) -> str | None:
        """Return a message for the user if the rule does not fit heads of that size, else None."""
        return None

    def bend(self, logits: Any) -> Any:
        """Transform scaled logits elementwise, for example with a soft-cap; `logits` is an array or a number."""
        return logits

    def bound(self) -> float | None:
        """Return c if `bend` is `c tanh(logit / c)`, the soft-cap that other libraries support, else None."""
        return None

    def bias(self, grid: Grid) -> Array | float | None:
        """Return the bias that is added to the logits of the grid, or None if there is none."""
        return None

    def extra(self, head: Array | int) -> Any:
        """Return an extra logit per head, or None; the normalizer counts it, but it has no key and no value."""
        return None
