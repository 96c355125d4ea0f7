"""Filler among the keys of a check, which chooses its own lengths: the pattern that was asked for, over and over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from attn_exp.arrays import Array
from attn_exp.config.schema import Config
from attn_exp.rules import masks
from attn_exp.rules.grid import Grid
from attn_exp.rules.masks._holes import Holes
from attn_exp.rules.masks.mask import AnyOf, Mask


@dataclass(frozen=True)
class Filler(Mask):
    """Every query sees key `j` iff `kept[j % len(kept)]`."""

    kept: tuple[bool, ...]

    def unpadded(self, keys: int) -> int:
        return max((place + 1 for place in range(keys) if self.kept[place % len(self.kept)]), default=0)

    def allows(self, grid: Grid) -> Array | bool:
        seen: Array = np.asarray(self.kept)[np.asarray(grid.key) % len(self.kept)]
        return seen

    def looks_ahead(self, offset: Array | int) -> bool:
        return any(self.kept)


def masks_of(config: Config, blocks: bool) -> tuple[Mask, ...]:
    """Return the masks that a configuration asks for, of any number of keys; tokens are those that it names."""
    made = masks(config.mask, config.mask_join, blocks, named(config))
    return tuple(map(of_any_length, made))


def named(config: Config) -> Sequence[str]:
    """Return the names of the tokens, as far as the settings say them."""
    if config.embeddings.text is not None:
        from attn_exp.problem.sources import words  # noqa: PLC0415 - few checks have words

        return words.listed(config.embeddings.text)
    return config.embeddings.tokens if isinstance(config.embeddings.tokens, tuple) else ()


def of_any_length(mask: Mask) -> Mask:
    """Return a mask that names keys by their places as one of any number of keys."""
    if isinstance(mask, AnyOf):
        return replace(mask, masks=tuple(map(of_any_length, mask.masks)))
    if not isinstance(mask, Holes) or not mask.kept:
        return mask
    first = mask.kept.index(True) if any(mask.kept) else 0  # one token alone must see itself
    return Filler((*mask.kept[first:], *mask.kept[:first]))
