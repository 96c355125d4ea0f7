"""How a layer wants its mask: the axes that its own code asks for, found by calling it with masks that hide nothing."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from attn_exp.diagnosis.asking.offer import role_of
from attn_exp.diagnosis.calling.neutral_of_layers import Filled, candidates
from attn_exp.diagnosis.calling.search_of_ways import HERE, trouble
from attn_exp.diagnosis.calling.way import Way
from attn_exp.diagnosis.matrices.bound import Layer

USUAL = ("t s", "b 1 t s", "b t s")
"""Axes that a question itself can write."""
OF_ENTRY = "s"
KEYS_FIRST = "s b"
OF_KEYS = ("b s", "b 1 s", "b 1 1 s", OF_ENTRY, KEYS_FIRST)
KINDS = (True, 1.0, 0.0, False)


@dataclass(frozen=True)
class MaskForm:
    """What becomes of a mask before a layer gets it: its role, its axes, and whether it holds ones and zeros."""

    role: str = "mask"
    axes: str = ""
    numbers: bool = False

    def write(self, mask: Any) -> Any:
        """Return a mask `[t s]`, or of keys `[b s]`, as the layer wants it."""
        if not self.axes:
            return mask
        shape = tuple(mask.shape)
        if self.axes == OF_ENTRY:
            return mask * 1.0 if self.numbers else mask
        if self.axes == KEYS_FIRST:
            mask = mask.swapaxes(0, 1)
            return mask * 1.0 if self.numbers else mask
        laid = mask.reshape((shape[0], *(1 for _ in self.axes.split()[2:]), shape[-1]))
        return laid * 1.0 if self.numbers else laid


def accepts(layer: Layer, way: Way, word: str, axes: str, value: float | bool) -> bool:
    """Say whether a layer takes a mask of that name with these axes that holds one value."""
    given: Mapping[str, Any] = {**way.given, word: Filled(axes, value)}
    return not trouble(layer, replace(way, given=given), layer.lent, way.width, way.tokens or HERE)[0]


def takes_keys(layer: Layer, way: Way, word: str) -> bool:
    """Say whether a layer takes a mask of keys alone under a name, with no other mask beside it."""
    return any(accepts(layer, way, word, axes, value) for axes in OF_KEYS for value in (True, 1.0))


def takes(layer: Layer, way: Way, word: str) -> bool:
    """Say whether a layer takes any mask that hides nothing."""
    return any(accepts(layer, way, word, axes, value) for axes in (*USUAL, *OF_KEYS) for value in KINDS)


def word_of(way: Way, forward: Sequence[inspect.Parameter]) -> str:
    """Return a layer's word for a mask that it can do without."""
    words = (one.name for one in forward if role_of(one.name) == "mask")
    return next((word for word in words if word not in (*way.sides, *way.given)), "")


def takes_no_mask(layer: Layer, way: Way, forward: Sequence[inspect.Parameter]) -> bool:
    """Say whether a layer has a word for a mask and refuses all that hide nothing."""
    word = word_of(way, forward)
    return bool(word) and not takes(layer, way, word)


def taking_masks(layer: Layer, way: Way, forward: Sequence[inspect.Parameter], head: int) -> Way:
    """Return the way with another argument otherwise, where a layer refuses all masks as it is called.

    Places of tokens may pick rows of a mask, say, and do so for all entries at once.
    """
    notes = {given.name: str(given.annotation) for given in forward}
    word = word_of(way, forward)
    if not way.given or not takes_no_mask(layer, way, forward):
        return way
    others = (replace(way, given={**way.given, name: make}) for name in way.given
              for make in candidates(name, notes.get(name, ""), head))  # fmt: skip
    return next((one for one in others if takes(layer, one, word)), way)


def mask_form(layer: Layer, way: Way, word: str) -> MaskForm:
    """Return how a layer wants the mask of that name; as the questions write it, where it takes that."""
    if any(accepts(layer, way, word, axes, value) for axes in USUAL for value in KINDS):
        return MaskForm()
    return padding_form(layer, way, word) or MaskForm()


def padding_form(layer: Layer, way: Way, word: str) -> MaskForm | None:
    """Return how a layer wants a mask of keys of that name, or None where it takes none."""
    every = ((axes, value) for axes in OF_KEYS for value in (True, False, 1.0))  # True hides all keys of some
    found = next((one for one in every if accepts(layer, way, word, *one)), None)
    return None if found is None else MaskForm("padding", found[0], not isinstance(found[1], bool))
