"""What a normalizer is: two ways to compute the same weights, and what is known of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from attn_exp.arrays import Array

Vector = Sequence[float]


@dataclass(frozen=True)
class Normalizer:
    """What turns masked logits into weights, and what forms, checks and reports may know of it.

    A file holds one, as `NORMALIZER`; users write the name of the file. What is not said is taken not to hold.

    Attributes:
        weigh: weights `[... s]` of logits `[... s]`, with extra logits of each row `[... n]`, or None; the function
            has the name of its file.
        twin: the same for one row of floats and a list of extra ones, in pure `math`, derived in another way. Without
            one nothing can be checked, and the run says so.
        slope: how weights change along a change of the logits, `(weights, change) -> change of the weights`, all
            `[... s]`; None where the derivative has corners, or nobody wrote it.
        takes_extra: an extra logit takes its share of the weights.
        sums_to_one: the weights of a row that sees any key sum to 1, up to what an extra logit takes.
        signed: weights can be below zero, so that a row of them may be no shares of 1 even where it sums to 1.
        ignores_shift: a constant added to every logit of a row changes nothing.
        exponential: the weights are `exp(l_j) / sum_j exp(l_j)`. They can be computed by running sums over blocks of
            keys, their log-sum-exp means something, and they are those of every other library.
    """

    weigh: Callable[[Array, Array | None], Array]
    twin: Callable[[Vector, Vector], list[float]] | None = None
    slope: Callable[[Array, Array], Array] | None = None
    takes_extra: bool = False
    sums_to_one: bool = False
    signed: bool = False
    ignores_shift: bool = False
    exponential: bool = False

    @property
    def name(self) -> str:
        """What a user calls it."""
        return self.weigh.__name__
