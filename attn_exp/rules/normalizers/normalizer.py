"""The contract of a normalizer: two implementations of the same weights, and their properties."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from attn_exp.arrays import Array

Vector = Sequence[float]


@dataclass(frozen=True)
class Normalizer:
    """A function from masked logits to weights, and the properties that forms, checks and reports rely on.

    A file defines one as `NORMALIZER`; its setting name is the file name. Properties default to False.

    Attributes:
        weigh: returns the weights `[... s]` for logits `[... s]` and the extra logits of each row, `[... n]` or None.
            The function has the name of its file.
        twin: returns the same for one row of floats and a list of extra logits. It uses only `math`, and is derived
            independently. Without it nothing can be checked, and the run says so.
        slope: the directional derivative, `(weights, change of the logits) -> change of the weights`, all `[... s]`;
            None if it does not exist everywhere or is not implemented.
        takes_extra: an extra logit takes a part of the total weight of a row.
        sums_to_one: if a row sees any key, its weights sum to 1, minus the part of an extra logit.
        signed: weights can be negative, so they are not always shares of 1, even if they sum to 1.
        ignores_shift: adding a constant to every logit of a row changes nothing.
        exponential: the weights are `exp(l_j) / sum_j exp(l_j)`. So they can be computed with running sums over blocks
            of keys, their log-sum-exp has a meaning, and all other libraries compute the same.
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
        return self.weigh.__name__
