"""The padding mask: keys past a sequence's own length are filler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attn_exp.rules.grid import Array, Grid
from attn_exp.rules.masks.mask import Mask, Span
from attn_exp.rules.settings import is_whole


@dataclass(frozen=True)
class Padding(Mask):
    """Every query of sequence `b` sees key `j` iff `j < lengths[b]`; one number serves every sequence.

    Source: ONNX operator `Attention`, input `nonpad_kv_seqlen`; PyTorch's `key_padding_mask` says the same with the
    opposite polarity (True = filler).
    """

    lengths: Sequence[int] | int

    def __post_init__(self) -> None:
        lengths = (self.lengths,) if isinstance(self.lengths, int) else tuple(self.lengths)
        if not lengths or not all(is_whole(each, 0) for each in lengths):
            raise ValueError(f"padding lengths={self.lengths}: expected whole numbers of at least 0")
        object.__setattr__(self, "lengths", lengths)

    def allows(self, grid: Grid) -> Array | bool:
        lengths = np.ravel(self.lengths)
        return np.asarray(grid.key < lengths[grid.batch if len(lengths) > 1 else 0])

    def span(self, batch: int, first: int, last: int, keys: int) -> Span:
        lengths = np.ravel(self.lengths)
        length = min(keys, int(lengths[batch if len(lengths) > 1 else 0]))
        return Span(0, length, 0, length)
