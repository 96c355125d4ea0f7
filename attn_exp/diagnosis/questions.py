"""The questions to a function of heads or to a layer: shapes in which mistakes show, and inputs that tell them apart.

All sizes are different, so that no two can be mixed up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.case import Case
from attn_exp.diagnosis.offer import Offer
from attn_exp.diagnosis.request import Filler, Request
from attn_exp.forms.pipeline import Given, Recipe
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.document import Document
from attn_exp.rules.masks.mask import Mask
from attn_exp.rules.masks.padding import Padding
from attn_exp.rules.masks.window import Window
from attn_exp.rules.scores.alibi import Alibi
from attn_exp.rules.scores.sink import Sink
from attn_exp.rules.scores.softcap import Softcap

SPREAD = 1.4
"""Standard deviation of queries and keys: logits then reach about 6, where weights differ and none is all."""


def core_cases(request: Request, offer: Offer, layout: str, quick: bool) -> Iterator[Case]:
    """Yield the questions to a function of heads."""
    maker = Maker(request, layout)
    yield maker.case("values", 9, 9)
    yield maker.case("unequal lengths", 7, 11, optional=True)
    yield from keyword_cases(maker, offer)
    yield from ahead_cases(maker, offer)
    if maker.heads > 1:
        yield from shared_cases(maker, offer)
    yield maker.shaped("large inputs", 6, 6, lambda draw: draw * 300.0)
    yield maker.shaped("equal inputs", 8, 8, np.zeros_like)
    yield maker.shaped("tiny inputs", 6, 6, lambda draw: draw * 1e-6)
    yield maker.whole_numbers("whole numbers", 7, 7)
    yield maker.shaped("equal inputs", 7, 7, np.zeros_like)  # a half type holds 1/8, and rounds 1/7
    if not quick:
        yield maker.case("one token", 1, 1)
        for length in (19, 37, 67, 131):
            yield maker.case("off the block", length, length, optional=True)
        yield maker.case("on the block", 64, 64, optional=True)


def keyword_cases(maker: Maker, offer: Offer) -> Iterator[Case]:
    """Yield a question for each keyword that the function has and that nobody asked about by name."""
    request = maker.request
    kinds = {type(mask) for mask in request.masks}
    if offer.takes("mask") and Allowed not in kinds:
        for rows, keys in ((8, 8), (6, 10)):
            yield maker.case(
                "masks",
                rows,
                keys,
                masks=(*request.masks, maker.some_mask(rows, keys, request.pads)),
                optional=rows != keys,
            )
    if offer.takes("causal") and Causal not in kinds:
        yield maker.case("causal", 9, 9, masks=(*request.masks, Causal()))
        if request.leaks or "align" in request.said:  # only then is it known which query stands beside which key
            yield maker.case("causal, unequal lengths", 6, 10, masks=(*request.masks, Causal()), optional=True)
        if offer.takes("mask"):
            both = (*request.masks, Causal(), maker.some_mask(8, 8, first=True))
            yield maker.case("a mask beside causal", 8, 8, masks=both, optional=True)
    if offer.takes("window") and Window not in kinds:
        yield maker.case("window", 9, 9, masks=(*request.masks, *maker.causal(offer), Window(3, 0)))
    if (offer.takes("lengths") or offer.takes("padding")) and not {Padding, Filler} & kinds:
        lengths = (5, 8)[: maker.batch]
        yield maker.case("padding", 8, 8, masks=(*request.masks, Padding(lengths)))
    if offer.takes("scale") and request.scale is True:
        yield replace(maker.case("scale", 7, 7, scale=0.3), explicit_scale=True)
    yield from score_cases(maker, offer)


def ahead_cases(maker: Maker, offer: Offer) -> Iterator[Case]:
    """Yield a question for each mask in which hidden keys are far ahead of those that are seen."""
    request, rung = maker.request, "hidden keys far ahead"
    if not can_be_asked(request):
        return
    if request.masks:
        yield ahead(maker.case(rung, 8, 8))
    elif offer.takes("causal"):
        yield ahead(maker.case(rung, 8, 8, masks=(Causal(),)))
    if offer.takes("mask") and Allowed not in {type(mask) for mask in request.masks}:
        yield ahead(maker.case(rung, 8, 8, masks=(*request.masks, half_hidden(maker.rng, 8, 8, request.pads))))


def score_cases(maker: Maker, offer: Offer) -> Iterator[Case]:
    """Yield a question for each score rule that the function has a word for, alone and beside a mask."""
    request = maker.request
    for role, rule in (("softcap", Softcap(2.0)), ("alibi", Alibi()), ("sinks", Sink(maker.sinks()))):
        if offer.takes(role) and type(rule) not in {type(known) for known in request.scores}:
            yield maker.case(role, 7, 7, scores=(*request.scores, rule))
            if offer.takes("mask"):
                masks = (*request.masks, maker.some_mask(8, 8, request.pads))
                yield maker.case(
                    f"{role} beside a mask", 8, 8, scores=(*request.scores, rule), masks=masks, optional=True
                )


def shared_cases(maker: Maker, offer: Offer) -> Iterator[Case]:
    """Yield a question with shared key/value heads where the function says that it can have them."""
    if maker.request.kv_head is None and (offer.takes("shared") or offer.takes("kv_heads")):
        yield maker.case("shared heads", 7, 7, groups=2)
        yield maker.case("one key/value head", 6, 6, groups=1, optional=True)


class Maker:
    """Makes cases of what was asked, with random inputs from one seed."""

    def __init__(self, request: Request, layout: str) -> None:
        self.request = request
        self.rng = np.random.default_rng(np.random.SeedSequence([request.seed, 12]))
        self.batch = (request.entries if request.entries > 1 else 2) if layout in ("bhtd", "bthd", "btm") else 1
        self.heads = 1 if layout == "td" else request.head or (6 if request.kv_head is None else 3 * request.kv_head)
        self.groups = request.kv_head or self.heads
        self.wide = layout == "btm"
        self.size = 8

    def case(self, rung: str, rows: int, keys: int, *, optional: bool = False, **other: Any) -> Case:
        """Return a case of these sizes; `other` masks, scores, scale and groups stand for what was asked."""
        rows, keys, kept = self.fitted(other.get("masks", self.request.masks), rows, keys)
        rules = replace(self.request.rules(self.size, rows, keys), masks=kept)
        rules = replace(rules, **{name: other[name] for name in ("scores", "scale") if name in other})
        recipe = Recipe(rules, self.heads, other.get("groups", self.groups), self.request.positions, wide=self.wide)
        given = Given(self.draw(self.heads, rows), self.draw(recipe.groups, keys), self.values(recipe.groups, keys))
        return Case(rung, recipe, given, optional=optional, explicit_scale=not isinstance(self.request.scale, bool))

    def fitted(self, masks: tuple[Mask, ...], rows: int, keys: int) -> tuple[int, int, tuple[Mask, ...]]:
        """Return sizes that the masks fit: documents and written masks have sizes of their own."""
        for mask in masks:
            if isinstance(mask, Document):
                rows = keys = len(mask.ids)
            if isinstance(mask, Allowed) and mask.misfit(self.heads, rows, keys):
                rows, keys = mask.values.shape[-2:]
        return rows, keys, masks

    def draw(self, heads: int, length: int) -> Array:
        return self.rng.standard_normal((self.batch, heads, length, self.size)) * SPREAD

    def values(self, heads: int, length: int) -> Array:
        return self.rng.standard_normal((self.batch, heads, length, self.size))

    def shaped(self, rung: str, rows: int, keys: int, change: Any) -> Case:
        """Return a case whose queries are changed in size."""
        case = self.case(rung, rows, keys)
        return replace(case, given=replace(case.given, q=change(case.given.q), k=case.given.k))

    def whole_numbers(self, rung: str, rows: int, keys: int) -> Case:
        """Return a case of sparse small whole numbers, which every type holds exactly."""
        case = self.case(rung, rows, keys)
        q, k, v = (
            np.where(self.rng.random(side.shape) < 0.3, self.rng.integers(-2, 3, side.shape), 0.0)
            for side in (case.given.q, case.given.k, case.given.v)
            if side is not None
        )
        return replace(case, given=Given(q, k, v))

    def some_mask(self, rows: int, keys: int, first: bool = False) -> Allowed:
        """Return a random mask in which every query sees a key and misses one, and every key is seen and missed."""
        seen = self.rng.random((rows, keys)) < 0.6
        seen[np.arange(rows), np.arange(rows) % keys] = True
        seen[np.arange(rows), (np.arange(rows) + 1) % keys] = False
        seen[np.arange(keys) % rows, np.arange(keys)] = True
        seen[(np.arange(keys) + 1) % rows, np.arange(keys)] = False
        seen[:, 0] |= first
        return Allowed(seen)

    def causal(self, offer: Offer) -> tuple[Mask, ...]:
        """Return the causal mask where it can be asked for and was not yet."""
        known = any(isinstance(mask, Causal) for mask in self.request.masks)
        return (Causal(),) if offer.takes("causal") and not known else ()

    def sinks(self) -> list[float]:
        return [round(float(number), 3) for number in self.rng.standard_normal(self.heads)]


# To a function of x and a layer's matrices, or to a module that has them inside

LAYER_SIZE = 8


@dataclass(frozen=True)
class Inside:
    """What a module holds: its matrices as `x W` has them, and its heads."""

    arrays: Mapping[str, Array]
    heads: int
    groups: int


def layer_cases(request: Request, offer: Offer, quick: bool, inside: Inside | None = None) -> Iterator[Case]:
    """Yield the questions to a layer."""
    maker = LayerMaker(request, offer, inside)
    yield maker.case("values", 9)
    yield maker.case("another length", 7)
    if inside is None:
        yield maker.case("another width", 7, wider=5, optional=True)
    kinds = {type(mask) for mask in request.masks}
    if offer.takes("mask") and Allowed not in kinds:
        yield maker.case("masks", 8, masks=(*request.masks, maker.some_mask(8, request.pads)))
    if offer.takes("causal") and Causal not in kinds:
        yield maker.case("causal", 9, masks=(*request.masks, Causal()))
    if offer.takes("padding") and not {Padding, Filler} & kinds:
        yield maker.case("padding", 8, masks=(*request.masks, Padding((5,))))
    if offer.takes("scale") and request.scale is True:
        case = maker.case("scale", 7)
        yield replace(case, recipe=case.recipe.with_rules(scale=0.3), explicit_scale=True)
    if inside is None and can_be_asked(request):
        yield from layer_ahead_cases(maker)
    yield maker.case("large inputs", 6, size=60.0)
    yield maker.case("equal inputs", 8, size=0.0)
    yield maker.case("tiny inputs", 6, size=1e-6)
    yield maker.case("equal inputs", 7, size=0.0)  # a half type holds 1/8, and rounds 1/7
    if not quick:
        yield maker.case("one token", 1)
        for length in (19, 37, 67):
            yield maker.case("off the block", length, optional=True)
        yield maker.case("on the block", 64, optional=True)


def layer_ahead_cases(maker: LayerMaker) -> Iterator[Case]:
    """Yield a question for each mask in which hidden keys are far ahead of those that are seen."""
    request, offer, rung = maker.request, maker.offer, "hidden keys far ahead"
    if request.masks:
        yield ahead(maker.case(rung, 8))
    elif offer.takes("causal"):
        yield ahead(maker.case(rung, 8, masks=(Causal(),)))
    if offer.takes("mask") and Allowed not in {type(mask) for mask in request.masks}:
        yield ahead(maker.case(rung, 8, masks=(*request.masks, half_hidden(maker.rng, 8, 8, request.pads))))


class LayerMaker:
    """Makes cases of a layer, with random inputs from one seed; a module's own matrices stay."""

    def __init__(self, request: Request, offer: Offer, inside: Inside | None) -> None:
        self.request, self.offer, self.inside = request, offer, inside
        self.rng = np.random.default_rng(np.random.SeedSequence([request.seed, 13]))
        many = request.head or (3 if offer.takes("heads") else 1)
        self.heads = inside.heads if inside else many
        self.groups = inside.groups if inside else self.shared(many)

    def shared(self, heads: int) -> int:
        return self.request.kv_head if self.request.kv_head is not None and heads % self.request.kv_head == 0 else heads

    def case(
        self, rung: str, rows: int, *, masks: tuple[Mask, ...] | None = None, wider: int = 0, size: float = 1.0,
        optional: bool = False,
    ) -> Case:  # fmt: skip
        """Return a case of `rows` tokens; `wider` makes x wider than the heads side by side."""
        kept = self.request.masks if masks is None else masks
        for mask in kept:
            rows = len(mask.ids) if isinstance(mask, Document) else rows
            if isinstance(mask, Allowed) and mask.misfit(self.heads, rows, rows):
                rows = mask.values.shape[-1]
        arrays = self.inside.arrays if self.inside else self.drawn(wider)
        width = arrays["W_q"].shape[0]
        head = arrays["W_q"].shape[1] // self.heads
        rules = replace(self.request.rules(head, rows, rows), masks=kept, scores=self.request.scores)
        recipe = Recipe(rules, self.heads, self.groups, self.request.positions, output_projection="W_o" in arrays)
        batch = self.request.entries if self.request.entries > 1 else 1 if self.inside is None else 2
        x = self.rng.standard_normal((batch, rows, width)) * size
        return Case(rung, recipe, Given(x=x, arrays=arrays), "scale=" in " ".join(self.request.typed), optional)

    def drawn(self, wider: int) -> dict[str, Array]:
        """Return the matrices and biases that the function takes."""
        inner, shared = self.heads * LAYER_SIZE, self.groups * LAYER_SIZE
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


# Hidden keys whose logits and values are far larger: they show a small fill in a type of few digits

SEEN, HIDDEN = -9.0, -1.0
"""Logits of the first half of the keys and of the others. Those of one half are equal, so a half type shares evenly."""
LARGER = 16.0
"""How much larger the values of the other half are."""


def can_be_asked(request: Request) -> bool:
    """Say whether logits can be chosen: nothing but the scale changes them."""
    return not request.positions and not request.scores and request.normalizer.exponential and bool(request.scale)


def ahead(case: Case) -> Case:
    """Return the case of heads or of a layer with chosen logits: each is `scale q k`, or `scale x W_q (x W_k)`."""
    given = case.given
    if given.x is not None:
        return replace(case, given=replace(given, x=marked(case, given.x), arrays=picking(given.arrays)))
    assert given.q is not None and given.k is not None and given.v is not None
    keys = logits(given.k.shape[2]) / (case.recipe.rules.scale * given.q.shape[-1])
    k = np.broadcast_to(keys[:, None], given.k.shape).copy()
    return replace(case, given=replace(given, q=np.ones_like(given.q), k=k, v=given.v * sizes(given.k.shape[2])))


def logits(keys: int) -> Array:
    """Return the logit of each key, whatever the query."""
    return np.where(np.arange(keys) < keys // 2, SEEN, HIDDEN)


def sizes(keys: int) -> Array:
    """Return by what the values of each key are multiplied, `[s 1]`."""
    return np.where(np.arange(keys) < keys // 2, 1.0, LARGER)[:, None]


def marked(case: Case, x: Array) -> Array:
    """Return x with 1 as its first number and what makes the logit as its second."""
    length, size = x.shape[1], case.given.arrays["W_q"].shape[1] // case.recipe.heads
    x = x * sizes(length)
    x[..., 0], x[..., 1] = 1.0, logits(length) / (case.recipe.rules.scale * size)
    return x


def picking(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return a layer's matrices, whose queries are the first number of x and whose keys the second."""
    chosen = {name: np.zeros_like(arrays[name]) for name in ("W_q", "W_k", "b_q", "b_k") if name in arrays}
    chosen["W_q"][0], chosen["W_k"][1] = 1.0, 1.0
    return dict(arrays) | chosen


def half_hidden(rng: np.random.Generator, rows: int, keys: int, first: bool = False) -> Allowed:
    """Return a mask that hides the other half of the keys from every query, and of the first half all but some.

    With `first` every query sees the first key, which masks beside this one leave too.
    """
    seen = rng.random((rows, keys)) < 0.6
    seen[:, keys // 2 :] = False
    seen[np.arange(rows), np.arange(rows) % (keys // 2)] = True
    seen[:, 0] |= first
    return Allowed(seen)
