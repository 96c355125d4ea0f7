"""The document mask: when documents are packed into one sequence, a token sees only its own document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from attn_exp.arrays import Array
from attn_exp.config.kinds import at_least, list_of_numbers
from attn_exp.rules.example import Example
from attn_exp.rules.grid import Grid
from attn_exp.rules.masks.mask import Mask, Span


@dataclass(frozen=True)
class Document(Mask):
    """A query at position `i` sees key `j` iff `ids[i] == ids[j]`, where `ids` has the document number of each key.

    Source: Raffel et al. 2020, "Exploring the Limits of Transfer Learning", section 2.4 (packing); the mask as in
    Krell et al. 2021, "Efficient Sequence Packing without Cross-contamination".
    """

    one_sequence = True

    ids: Annotated[
        Sequence[int], list_of_numbers(at_least(0), "a list of whole numbers of at least 0, such as [0,0,1]")
    ]

    def misfit(self, heads: int, rows: int, keys: int) -> str | None:
        return None if len(self.ids) == keys else f"document: {len(self.ids)} ids, but there are {keys} keys"

    def allows(self, grid: Grid) -> Array | bool:
        ids, last = np.array(self.ids), len(self.ids) - 1
        is_in_sequence = (np.asarray(grid.query) >= 0) & (np.asarray(grid.query) <= last)
        return np.asarray((ids[np.clip(grid.query, 0, last)] == ids[grid.key]) & is_in_sequence)

    def span(self, batch: int, first: int, last: int, keys: int) -> Span:
        ids = np.array(self.ids)
        seen = np.flatnonzero(np.isin(ids, ids[max(first, 0) : max(last + 1, 0)]))
        # queries of different documents have no key in common
        return Span(int(seen[0]), int(seen[-1]) + 1, 0, 0) if len(seen) else Span(0, 0, 0, 0)


EXAMPLE = Example(
    settings={"ids": [0, 1, 1, 0]},
    outcome=("█··█", "·██·", "·██·", "█··█"),
    outside=Example(
        settings={"ids": [0, 0, 0, 1, 1, 2]},
        outcome=("███···", "███···", "███···", "···██·", "···██·", "·····█"),
        source="torchtune, `create_block_causal_mask`: the lower-triangular example for seq_lens [3, 2, 1], mirrored",
    ),
)
