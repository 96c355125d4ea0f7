"""What a score rule is: a rule that changes logits."""

from __future__ import annotations

from typing import Any

from attn_exp.rules.grid import Array, Grid
from attn_exp.rules.rule import Rule


class Score(Rule):
    """A rule that changes logits. They run in this order: `bend`, then `bias`; masks come after both."""

    def bend(self, logits: Any) -> Any:
        """Change each scaled logit, in an array or alone, by its own value, such as a soft-cap."""
        return logits

    def bound(self) -> float | None:
        """Return c where `bend` is `c tanh(logit / c)`, which other libraries know by that number, or None."""
        return None

    def bias(self, grid: Grid) -> Array | float | None:
        """Return what is added to the logits at these places, or None for nothing."""
        return None

    def extra(self, head: Array | int) -> Any:
        """Return one more logit per head that takes part in the normalizer and has no value, or None."""
        return None
