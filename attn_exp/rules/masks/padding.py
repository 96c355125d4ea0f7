"""The padding mask: no query sees padding keys, which lie beyond a length, or are named in the settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from attn_exp.arrays import Array
from attn_exp.config.kinds import FLAG, WORDS, at_least, list_of, one_or_several, optional
from attn_exp.errors import UserError, brief, shown
from attn_exp.rules.example import Example
from attn_exp.rules.grid import Grid
from attn_exp.rules.masks.mask import Holes, Mask, Span


@dataclass(frozen=True)
class Padding(Mask):
    """Every query of sequence `b` sees key `j` iff `j < lengths[b]`; a single number applies to every sequence.

    Instead of `lengths`, `tokens` may name the padding tokens, such as [PAD], or `keys` may have one boolean per key
    (false = padding). Padding may then also be before or inside the sequence.

    Source: ONNX operator `Attention`, input `nonpad_kv_seqlen`; PyTorch's `key_padding_mask` has the opposite polarity
    (True = padding).
    """

    lengths: Annotated[Sequence[int] | int, one_or_several(at_least(0), "whole numbers of at least 0")]
    tokens: Annotated[tuple[str, ...], WORDS] = ()
    keys: Annotated[tuple[bool, ...] | None, optional(list_of(FLAG))] = None

    instead: ClassVar[Mapping[str, tuple[str, ...]]] = {"lengths": ("tokens", "keys")}

    def with_tokens(self, tokens: Sequence[str]) -> Mask:
        if self.keys is not None:
            return Holes(self.keys)
        unknown = [token for token in self.tokens if token not in tokens]
        if unknown:
            choices = ", ".join(dict.fromkeys(tokens)) or "keys without names"
            raise UserError(
                f"mask.padding.tokens={brief(shown(unknown))}: no key has that name; the keys are {brief(choices)}"
            )
        return Holes(tuple(token not in self.tokens for token in tokens)) if self.tokens else self

    def inverted(self) -> Mask:
        return self if self.keys is None else replace(self, keys=tuple(not kept for kept in self.keys))

    def unpadded(self, keys: int) -> int:
        return min(keys, int(np.ravel(self.lengths)[0]))

    def misfit(self, heads: int, rows: int, keys: int) -> str | None:
        count = np.size(self.lengths)
        if count == 1:
            return None
        return f"padding: {count} lengths, but a run has one sequence; give one number, or sweep over them with -m"

    def allows(self, grid: Grid) -> Array | bool:
        lengths = np.ravel(self.lengths)
        return np.asarray(grid.key < lengths[grid.batch if len(lengths) > 1 else 0])

    def span(self, batch: int, first: int, last: int, keys: int) -> Span:
        lengths = np.ravel(self.lengths)
        length = min(keys, int(lengths[batch if len(lengths) > 1 else 0]))
        return Span(0, length, 0, length)


EXAMPLE = Example(
    settings={"lengths": 2},
    outcome=("██··", "██··", "██··"),
    outside=Example(
        settings={"lengths": [8, 19]},
        outcome=("████████···········",),
        source="Transformers, glossary, 'attention mask': a sentence of 8 tokens next to one of 19",
    ),
)
