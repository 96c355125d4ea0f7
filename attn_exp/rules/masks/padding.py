"""The padding mask: keys past a sequence's own length are filler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from attn_exp.config.kinds import at_least
from attn_exp.config.several import one_or_several
from attn_exp.rules.example import Example
from attn_exp.rules.grid import Array, Grid
from attn_exp.rules.masks.mask import Mask, Span


@dataclass(frozen=True)
class Padding(Mask):
    """Every query of sequence `b` sees key `j` iff `j < lengths[b]`; one number serves every sequence.

    Source: ONNX operator `Attention`, input `nonpad_kv_seqlen`; PyTorch's `key_padding_mask` says the same with the
    opposite polarity (True = filler).
    """

    lengths: Annotated[Sequence[int] | int, one_or_several(at_least(0), "whole numbers of at least 0")]

    def unpadded(self, keys: int) -> int:
        return min(keys, int(np.ravel(self.lengths)[0]))

    def misfit(self, heads: int, rows: int, keys: int) -> str | None:
        count = np.size(self.lengths)
        return None if count == 1 else f"padding: {count} lengths, but a run has one sequence; give one number"

    def allows(self, grid: Grid) -> Array | bool:
        lengths = np.ravel(self.lengths)
        return np.asarray(grid.key < lengths[grid.batch if len(lengths) > 1 else 0])

    def span(self, batch: int, first: int, last: int, keys: int) -> Span:
        lengths = np.ravel(self.lengths)
        length = min(keys, int(lengths[batch if len(lengths) > 1 else 0]))
        return Span(0, length, 0, length)

    def looks_ahead(self, offset: Array | int) -> bool:
        lengths = np.ravel(self.lengths)
        return bool(np.any((lengths > 0) & (lengths - 1 > np.asarray(offset))))


EXAMPLE = Example(
    settings={"lengths": 2},
    outcome=("██··", "██··", "██··"),
    outside=Example(
        settings={"lengths": [8, 19]},
        outcome=("████████···········",),
        source="Transformers, glossary, 'attention mask': a sentence of 8 tokens beside one of 19",
    ),
)
