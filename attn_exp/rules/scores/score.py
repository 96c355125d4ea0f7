"""What a score rule is: a rule that changes logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from attn_exp.arrays import Array
from attn_exp.rules.grid import Grid, Rule


class Score(Rule):
    """A rule that changes logits. They run in this order: `bend`, then `bias`; masks come after both.

    A rule that `pairs` says what the scores are in the first place, where they are no products of queries and keys.
    """

    pairs: ClassVar[bool] = False

    def pair(self, q: Array, k: Array, head: Array | int) -> Array:
        """Return the scores `[... t s]` of queries `[... t d]` and keys `[... s d]`; forms ask it where `pairs`."""
        raise NotImplementedError

    def pair_twin(self, query: Sequence[float], key: Sequence[float], head: int) -> float:
        """Return the score of one query and one key in pure `math`, derived another way: what the reference asks."""
        raise NotImplementedError

    def misfit_size(self, size: int) -> str | None:
        """Say why the rule does not fit heads of that size, in the user's words, or None where it does."""
        return None

    def bend(self, logits: Any) -> Any:
        """Change each scaled logit, in an array or alone, by its own value, such as a soft-cap."""
        return logits

    def bound(self) -> float | None:
        """Return c where `bend` is `c tanh(logit / c)`, which other libraries know by that number, or None."""
        return None

    def bends_as_known(self) -> bool:
        """Say whether the rule leaves each logit as it is, or caps it by a tanh."""
        return type(self).bend is Score.bend or self.bound() is not None

    def bias(self, grid: Grid) -> Array | float | None:
        """Return what is added to the logits at these places, or None for nothing."""
        return None

    def extra(self, head: Array | int) -> Any:
        """Return one more logit per head that takes part in the normalizer and has no value, or None."""
        return None
