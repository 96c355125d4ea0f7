"""The questions to a function of x and a layer's matrices, or to a module that has them inside."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.ahead import ahead, can_be_asked, half_hidden
from attn_exp.diagnosis.asked import Asked
from attn_exp.diagnosis.case import Case
from attn_exp.diagnosis.filler import Filler
from attn_exp.diagnosis.offer import Offer
from attn_exp.forms.pipeline import Given, Recipe
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.document import Document
from attn_exp.rules.masks.mask import Mask
from attn_exp.rules.masks.padding import Padding

SIZE = 8


@dataclass(frozen=True)
class Inside:
    """What a module holds: its matrices as `x W` has them, and its heads."""

    arrays: Mapping[str, Array]
    heads: int
    groups: int


def layer_cases(asked: Asked, offer: Offer, quick: bool, inside: Inside | None = None) -> Iterator[Case]:
    """Yield the questions to a layer."""
    maker = LayerMaker(asked, offer, inside)
    yield maker.case("values", 9)
    yield maker.case("another length", 7)
    if inside is None:
        yield maker.case("another width", 7, wider=5, optional=True)
    kinds = {type(mask) for mask in asked.masks}
    if offer.takes("mask") and Allowed not in kinds:
        yield maker.case("masks", 8, masks=(*asked.masks, maker.some_mask(8, asked.pads)))
    if offer.takes("causal") and Causal not in kinds:
        yield maker.case("causal", 9, masks=(*asked.masks, Causal()))
    if offer.takes("padding") and not {Padding, Filler} & kinds:
        yield maker.case("padding", 8, masks=(*asked.masks, Padding((5,))))
    if offer.takes("scale") and asked.scale is True:
        case = maker.case("scale", 7)
        yield replace(case, recipe=case.recipe.with_rules(scale=0.3), explicit_scale=True)
    if inside is None and can_be_asked(asked):
        yield from ahead_cases(maker)
    yield maker.case("large inputs", 6, size=60.0)
    yield maker.case("equal inputs", 8, size=0.0)
    yield maker.case("tiny inputs", 6, size=1e-6)
    yield maker.case("equal inputs", 7, size=0.0)  # a half type holds 1/8, and rounds 1/7
    if not quick:
        yield maker.case("one token", 1)
        for length in (19, 37, 67):
            yield maker.case("off the block", length, optional=True)
        yield maker.case("on the block", 64, optional=True)


def ahead_cases(maker: LayerMaker) -> Iterator[Case]:
    """Yield a question for each mask in which hidden keys are far ahead of those that are seen."""
    asked, offer, rung = maker.asked, maker.offer, "hidden keys far ahead"
    if asked.masks:
        yield ahead(maker.case(rung, 8))
    elif offer.takes("causal"):
        yield ahead(maker.case(rung, 8, masks=(Causal(),)))
    if offer.takes("mask") and Allowed not in {type(mask) for mask in asked.masks}:
        yield ahead(maker.case(rung, 8, masks=(*asked.masks, half_hidden(maker.rng, 8, 8, asked.pads))))


class LayerMaker:
    """Makes cases of a layer, with random inputs from one seed; a module's own matrices stay."""

    def __init__(self, asked: Asked, offer: Offer, inside: Inside | None) -> None:
        self.asked, self.offer, self.inside = asked, offer, inside
        self.rng = np.random.default_rng(np.random.SeedSequence([asked.seed, 13]))
        many = asked.head or (3 if offer.takes("heads") else 1)
        self.heads = inside.heads if inside else many
        self.groups = inside.groups if inside else self.shared(many)

    def shared(self, heads: int) -> int:
        return self.asked.kv_head if self.asked.kv_head is not None and heads % self.asked.kv_head == 0 else heads

    def case(
        self, rung: str, rows: int, *, masks: tuple[Mask, ...] | None = None, wider: int = 0, size: float = 1.0,
        optional: bool = False,
    ) -> Case:  # fmt: skip
        """Return a case of `rows` tokens; `wider` makes x wider than the heads side by side."""
        kept = self.asked.masks if masks is None else masks
        for mask in kept:
            rows = len(mask.ids) if isinstance(mask, Document) else rows
            if isinstance(mask, Allowed) and mask.misfit(self.heads, rows, rows):
                rows = mask.values.shape[-1]
        arrays = self.inside.arrays if self.inside else self.drawn(wider)
        width = arrays["W_q"].shape[0]
        head = arrays["W_q"].shape[1] // self.heads
        rules = replace(self.asked.rules(head, rows, rows), masks=kept, scores=self.asked.scores)
        recipe = Recipe(rules, self.heads, self.groups, self.asked.positions, output_projection="W_o" in arrays)
        batch = self.asked.entries if self.asked.entries > 1 else 1 if self.inside is None else 2
        x = self.rng.standard_normal((batch, rows, width)) * size
        return Case(rung, recipe, Given(x=x, arrays=arrays), "scale=" in " ".join(self.asked.typed), optional)

    def drawn(self, wider: int) -> dict[str, Array]:
        """Return the matrices and biases that the function takes."""
        inner, shared = self.heads * SIZE, self.groups * SIZE
        width = inner + wider
        spread = 1.3 / math.sqrt(width)
        shapes = {"W_q": (width, inner), "W_k": (width, shared), "W_v": (width, shared), "W_o": (inner, width)}
        biases = {"b_q": inner, "b_k": shared, "b_v": shared, "b_o": width}
        arrays = {name: self.rng.standard_normal(shape) * spread for name, shape in shapes.items()}
        arrays |= {name: self.rng.standard_normal(length) * 0.7 for name, length in biases.items()}
        return {name: array for name, array in arrays.items() if self.offer.takes(name)}

    def some_mask(self, rows: int, first: bool = False) -> Allowed:
        """Return a random mask in which every query sees a key, with `first` the first key too."""
        seen = self.rng.random((rows, rows)) < 0.6
        seen[np.arange(rows), np.arange(rows)] = True
        seen[np.arange(rows), (np.arange(rows) + 1) % rows] = False
        seen[:, 0] |= first
        return Allowed(seen)
