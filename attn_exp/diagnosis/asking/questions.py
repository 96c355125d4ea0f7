"""Test cases for a function of q, k and v or for a layer: shapes and inputs that expose mistakes.

All sizes differ, so that no two axes can be confused. `core_cases` or `layer_cases` yields the cases, the simplest
first. A `HeadsMaker` or `LayerMaker` makes each case from a name, a number of queries and a number of keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from attn_exp.arrays import Array, Arrays, Shape
from attn_exp.diagnosis.asking.case import Case, expected
from attn_exp.diagnosis.asking.offer import Offer, cuts_heads, has_batch, has_heads, is_joined
from attn_exp.diagnosis.asking.request import Filler, Gap, Request
from attn_exp.experiment import long_runs
from attn_exp.experiment.library_conventions import sees_nothing
from attn_exp.forms.pipeline import Around, Given, Recipe
from attn_exp.forms.steps import share, share_in_turns
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.document import Document
from attn_exp.rules.masks.mask import Mask
from attn_exp.rules.masks.padding import Padding
from attn_exp.rules.masks.window import Window
from attn_exp.rules.scores.added import Added
from attn_exp.rules.scores.alibi import Alibi
from attn_exp.rules.scores.sink import Sink
from attn_exp.rules.scores.softcap import Softcap

SIZE = 8
"""Head size."""
LONGEST, MIDDLE = 131, 11
"""Number of tokens in the longest case, and in the longest case of a quick check."""
CROSS, SHARED = "keys of another input", "fewer key/value heads"
"""The case whose keys come from a second input, and the case in which query heads share key/value heads."""
PADDED = ("padding", "padding of each example")
"""Cases with padding. The second one is for modules only: each example has its own length."""
ABOUT_MASKS = ("masks", *PADDED, "causal", "window", "large hidden logits")
"""Cases that can fail because of how a function reads its mask."""
WIDTH = "another width"
"""The case whose x is narrower than all heads together."""
ANOTHER_BATCH = "another batch"
"""The case that replaces `another head size` if an object accepts only one head size."""
INDIVIDUAL_MASKS = ("a mask for each example", "a mask for each head")
"""The cases whose mask has a batch axis, or batch and head axes."""
ZERO_TOKEN, ADDED = "a token of zeros", "an additive bias"
TOGETHER = " together with "
"""Part of the name of a case that passes two arguments at once, such as "`mask` together with `scale`"."""
UNPADDED = (5, 8)
"""Numbers of tokens that are not padding, one for each of two examples."""
EXTREME_QUERIES = (("large inputs", 6, 300.0), ("equal inputs", 8, 0.0), ("tiny inputs", 6, 1e-6))
"""Cases with queries multiplied by a factor: name, number of tokens, factor."""
EXTREME_INPUTS = (
    ("large inputs", 6, 60.0),
    ("equal inputs", 8, 0.0),
    ("tiny inputs", 6, 1e-6),
    ("equal inputs", 7, 0.0),
)
"""The same for a layer: x is multiplied, which changes both queries and keys."""
STAGES, MATRICES = 12, 4
"""Maximum numbers of `[b h t s]` and `[m m]` arrays in memory at once: for a case, its answer and a mistake to try."""
VISIBLE_LOGIT, HIDDEN_LOGIT = -9.0, -1.0
"""Logits of the first and the second half of the keys. Equal logits get equal weights even in half precision."""
VALUE_FACTOR = 16.0
"""Factor for the values of the second half of the keys: if a query attends to any of them, the output shows it."""
SPREAD = 1.4
"""Standard deviation of queries and keys: logits reach about 6, so weights differ and none is near 1."""


def core_cases(
    request: Request, offer: Offer, layout: str, quick: bool, *, returns: str = "", only_head_size: int = 0
) -> Iterator[Case]:  # fmt: skip
    """Yield the cases for a function of q, k and v; `returns` is the layout of its output, if it is not `layout`.

    `only_head_size` is the head size of an object that may accept no other, or 0.
    """
    maker = HeadsMaker(request, offer, layout, returns or layout, only_head_size)
    refuse_large_cases(maker, quick)
    yield maker.case("values", 9, 9)
    yield maker.case("unequal lengths", 7, 11, optional=True)
    yield from other_sizes(maker)
    yield from keyword_cases(maker)
    if can_choose_logits(request):
        yield from hidden_logit_cases(maker)
    if maker.heads > 1 and request.kv_head is None and (offer.takes("shared") or offer.takes("kv_heads")):
        yield maker.case("shared heads", 7, 7, groups=2)
        yield maker.case("one key/value head", 6, 6, groups=1, optional=True)
    elif maker.heads % 2 == 0 and maker.heads > 2 and maker.groups == maker.heads and not maker.joined:
        yield maker.case(SHARED, 7, 7, groups=2, unpromised=True)  # 7 is prime, so no reshape can split the keys
    yield from (maker.make_multiplied(*settings) for settings in EXTREME_QUERIES)
    yield maker.make_sparse_integers("whole numbers", 7)
    yield maker.make_multiplied("equal inputs", 7, 0.0)  # half precision holds 1/8 exactly, and rounds 1/7
    if not quick:
        yield from length_cases(maker, (19, 37, 67, LONGEST))
        yield from paired_cases(maker)


def other_sizes(maker: HeadsMaker) -> Iterator[Case]:
    """Yield cases with another head size, another batch size, and very different lengths.

    Cases that would leave a query without keys are skipped, because such queries are tested separately.
    """
    cases = [
        maker.case(
            ANOTHER_BATCH if maker.only_head_size else "another head size", 6, 6, size=4, batch=5, optional=True
        ),
        maker.case("few queries, many keys", 2, 29, size=16, optional=True),
        maker.case("many queries, few keys", 23, 3, size=6, batch=1, heads=1, optional=True),
    ]
    chosen = cases[1:2] if maker.request.few else cases
    yield from (case for case in chosen if not sees_nothing(expected(case)["masked"]).any())


def layer_cases(request: Request, offer: Offer, quick: bool, inside: Inside | None = None) -> Iterator[Case]:
    maker = LayerMaker(request, offer, inside)
    refuse_large_cases(maker, quick)
    yield maker.case("values", 9, 9)
    yield maker.case("another length", 7, 7, batch=3)
    if inside is None:
        # x is narrower than all heads together: code that divides its width by the heads gets a wrong head size
        yield maker.case(WIDTH, 7, 7, wider=-5, unpromised=True)
        yield maker.case("another head size", 6, 6, size=4, optional=True)
    if offer.takes("memory") and not request.masks and not request.positions:
        yield maker.case(CROSS, 5, 9, memory=True, optional=True)
        yield maker.case(CROSS, 6, 6, memory=True, optional=True)  # some layers need as many keys as queries
    yield from keyword_cases(maker)
    if inside is None and can_choose_logits(request):
        yield from hidden_logit_cases(maker)
    yield from (maker.make_multiplied(*settings) for settings in EXTREME_INPUTS)
    if not quick:
        yield from length_cases(maker, (19, 37, 67))
        yield from paired_cases(maker)
    if inside is not None and not {"b_q", "b_k"} & inside.arrays.keys():
        yield zero_one_token(maker.case(ZERO_TOKEN, 9, 9, optional=True))


def zero_one_token(case: Case) -> Case:
    """Return the case with one token of zeros; without biases, all scores of this token are 0."""
    assert case.given.x is not None
    x = case.given.x.copy()
    x[:, 4] = 0.0
    memory = x if case.given.memory is case.given.x else case.given.memory
    return replace(case, given=replace(case.given, x=x, memory=memory))


def length_cases(maker: Maker, lengths: Sequence[int]) -> Iterator[Case]:
    yield maker.case("one token", 1, 1)
    for length in lengths[-1:] if maker.request.few else lengths:
        yield maker.case("off the block", length, length, optional=True)
    yield maker.case("on the block", 64, 64, optional=True)


def keyword_cases(maker: Maker) -> Iterator[Case]:
    """Yield a case for each keyword of the function that the request does not use yet.

    A layer gets fewer cases: it has as many keys as queries, and few layers have a keyword for a window or a score.
    """
    request, offer = maker.request, maker.offer
    mask_types = {type(mask) for mask in request.masks}
    if offer.takes("mask") and Allowed not in mask_types:
        for rows, keys in ((8, 8), (6, 10)) if offer.core else ((8, 8),):
            masks = (*request.masks, maker.draw_mask(rows, keys, request.needs_first_key))
            yield maker.case("masks", rows, keys, masks=masks, optional=rows != keys)
        yield from individual_mask_cases(maker)
    if offer.takes("causal") and Causal not in mask_types:
        yield from causal_cases(maker)
    if offer.core and offer.takes("window") and Window not in mask_types:
        causal = (Causal(),) if offer.takes("causal") and Causal not in mask_types else ()
        yield maker.case("window", 9, 9, masks=(*request.masks, *causal, choose_window(offer)))
    if (offer.takes("padding") or offer.takes("lengths")) and not {Padding, Filler} & mask_types:
        yield from padded_cases(maker, Gap if Causal in mask_types and not offer.takes("lengths") else Padding)
    if offer.takes("scale") and request.scale is True:
        case = maker.case("scale", 7, 7)
        yield replace(case, recipe=case.recipe.with_rules(scale=0.3), explicit_scale=True)
    if isinstance(maker, HeadsMaker):
        yield from score_cases(maker)


def choose_window(offer: Offer) -> Window:
    """Return a window of three keys before the query; after it two, or as many as the number for both sides says."""
    return Window(3, 2 if offer.counted is None else 3 * offer.counted.both_sides)


def paired_cases(maker: Maker) -> Iterator[Case]:
    """Yield a case for each pair of arguments that the function takes: code may ignore one of them if it gets both."""
    request, offer = maker.request, maker.offer
    padding = Padding(UNPADDED[: maker.batch])
    masks = {"mask": maker.draw_mask(8, 8, shows_first_key=True), "causal": Causal(), "padding": padding,
             "lengths": padding, "window": choose_window(offer)}  # fmt: skip
    scores = {"softcap": Softcap(2.0), "alibi": Alibi(), "sinks": Sink([0.5] * maker.heads)}
    requested = {type(rule) for rule in (*request.masks, *request.scores)}
    roles = [role for role, rule in {**masks, **scores, "scale": None, "shared": None}.items()
             if offer.takes(role) and type(rule) not in requested]  # fmt: skip
    for both in combinations(roles, 2):
        case = maker.case(
            TOGETHER.join(f"`{offer.parameters[role]}`" for role in both), 8, 8, optional=True,
            masks=(*request.masks, *(mask for role, mask in masks.items() if role in both)),
            scores=(*request.scores, *(score for role, score in scores.items() if role in both)),
            groups=maker.groups // 2 if "shared" in both and maker.groups % 2 == 0 else maker.groups,
        )  # fmt: skip
        if "scale" in both:
            case = replace(case, recipe=case.recipe.with_rules(scale=0.3), explicit_scale=True)
        if not sees_nothing(expected(case)["masked"]).any():
            yield case


def causal_cases(maker: Maker) -> Iterator[Case]:
    """Yield cases with the causal keyword: alone, with more keys than queries, and together with a mask array."""
    request, offer = maker.request, maker.offer
    causal = (*request.masks, Causal())
    yield maker.case("causal", 9, 9, masks=causal)
    if offer.core and (request.leaks or "align" in request.names_typed):  # else the alignment is unknown
        yield maker.case("causal, unequal lengths", 6, 10, masks=causal, optional=True)
    if offer.core and offer.takes("mask"):
        yield maker.case(
            "a mask with causal", 8, 8, masks=(*causal, maker.draw_mask(8, 8, shows_first_key=True)), optional=True
        )


def padded_cases(maker: Maker, kind: type[Padding]) -> Iterator[Case]:
    """Yield a case with padding and, for a module, one with a separate length for each example."""
    masks = maker.request.masks
    yield maker.case(PADDED[0], 8, 8, masks=(*masks, kind(UNPADDED[: maker.batch])))
    if isinstance(maker, LayerMaker) and maker.inside is not None and maker.request.batch <= 1:
        yield maker.case(PADDED[1], 8, 8, masks=(*masks, kind(UNPADDED)), batch=len(UNPADDED), unpromised=True)


def refuse_large_cases(maker: Maker, quick: bool) -> None:
    """Refuse numbers of heads for which the longest case would not fit in memory.

    Raises:
        UserError: the case would not fit; the message gives its size, the free memory, and a remedy.
    """
    longest = MIDDLE if quick else LONGEST
    rows, keys = maker.fit_sizes(maker.request.masks, longest, longest)
    layer_size = 0 if maker.offer.core else MATRICES * (maker.heads * SIZE) ** 2
    byte_count = long_runs.FLOAT_BYTES * (STAGES * maker.examples * maker.heads * rows * (keys + SIZE) + layer_size)
    is_kv_head_typed = maker.request.kv_head is not None and "head" not in maker.request.names_typed
    setting = f"kv_head={maker.request.kv_head}" if is_kv_head_typed else f"head={maker.heads}"
    long_runs.refuse_too_large(
        [long_runs.Estimate(byte_count, setting, f"for test cases of {longest} tokens", "choose fewer heads")]
    )


def individual_mask_cases(maker: Maker) -> Iterator[Case]:
    """Yield a case with a random mask for each example, and one with a random mask for each head of each example."""
    if isinstance(maker, HeadsMaker) and maker.batch == 1:
        return
    rows, keys = maker.fit_sizes(maker.request.masks, 7, 7)
    for name, mask_heads in zip(INDIVIDUAL_MASKS, sorted({1, maker.heads}), strict=False):
        masks = [
            maker.draw_mask(rows, keys, maker.request.needs_first_key).values
            for _ in range(maker.examples * mask_heads)
        ]
        allowed = Allowed(np.reshape(masks, (maker.examples, mask_heads, *np.shape(masks[0]))))
        yield maker.case(name, rows, keys, masks=(*maker.request.masks, allowed), batch=maker.examples, unpromised=True)


def hidden_logit_cases(maker: Maker) -> Iterator[Case]:
    """Yield cases in which hidden keys have the largest logits: with the requested masks, and with a mask array."""
    request, offer, name = maker.request, maker.offer, "large hidden logits"
    masks = request.masks or ((Causal(),) if offer.takes("causal") else ())
    if masks:
        yield with_largest_hidden(maker.case(name, 8, 8, masks=masks))
    if offer.takes("mask") and Allowed not in {type(mask) for mask in request.masks}:
        rows, keys = maker.fit_sizes(request.masks, 8, 8)
        half_hidden = make_half_hidden_mask(maker.rng, rows, keys, request.needs_first_key)
        yield with_largest_hidden(maker.case(name, 8, 8, masks=(*request.masks, half_hidden)))


def score_cases(maker: HeadsMaker) -> Iterator[Case]:
    request, offer = maker.request, maker.offer
    score_types = {type(score) for score in request.scores}
    sinks = [round(float(number), 3) for number in maker.rng.standard_normal(maker.heads)]
    for role, rule in (("softcap", Softcap(2.0)), ("alibi", Alibi()), ("sinks", Sink(sinks))):
        if offer.takes(role) and type(rule) not in score_types:
            scores = (*request.scores, rule)
            yield maker.case(role, 7, 7, scores=scores)
            if offer.takes("mask"):
                masks = (*request.masks, maker.draw_mask(8, 8, request.needs_first_key))
                yield maker.case(f"{role} with a mask", 8, 8, scores=scores, masks=masks, optional=True)
    if offer.takes("added") and Added not in score_types:
        sizes = maker.fit_sizes(request.masks, 7, 7)
        added_scores = Added(maker.rng.standard_normal((maker.heads, *sizes) if maker.heads > 1 else sizes))
        yield maker.case(ADDED, *sizes, scores=(*request.scores, added_scores), optional=True)


# Making cases for a request: of heads, or of a layer


class Maker:
    """Makes the cases of a request, with random inputs from one seed.

    `stream` makes the random numbers of heads and layers differ. `batch` is the number of examples in a case of heads.

    `case` makes a case of `rows` queries and `keys` keys, unless its rules require other numbers. `question` names it
    in the report. `changes` overrides the request: `masks`, `scores`, `batch`, `size` (of a head), `heads`, `groups`
    (key/value heads), `memory` (keys from another input) or `unpromised`.
    """

    stream: int
    heads: int
    groups: int
    batch: int = 1

    def __init__(self, request: Request, offer: Offer) -> None:
        self.request, self.offer = request, offer
        self.share = share_in_turns if request.tiled else share
        self.rng = np.random.default_rng(np.random.SeedSequence([request.seed, self.stream]))

    @property
    def examples(self) -> int:
        """The number of examples in cases with a separate mask for each example."""
        return max(2, self.request.batch)

    def case(self, question: str, rows: int, keys: int, *, optional: bool = False, **changes: Any) -> Case:
        raise NotImplementedError

    def fit_sizes(self, masks: tuple[Mask, ...], rows: int, keys: int) -> tuple[int, int]:
        """Return these numbers of queries and keys, or others that the rules require.

        Document masks and explicit arrays have fixed sizes.
        """
        if self.request.few and 1 < max(rows, keys) <= MIDDLE:
            rows, keys = (9, 9) if rows == keys else (7, 11)
        for mask in masks:
            if isinstance(mask, Document):
                rows = keys = len(mask.ids)
            if isinstance(mask, Allowed) and mask.misfit(self.heads, rows, keys):
                rows, keys = np.atleast_2d(mask.values).shape[-2:]
        for score in self.request.scores:
            if isinstance(score, Added) and score.misfit(self.heads, rows, keys):
                rows, keys = np.atleast_2d(score.values).shape[-2:]
        return rows, keys

    def draw_mask(self, rows: int, keys: int, shows_first_key: bool = False) -> Allowed:
        """Return a random mask: each query sees at least one key, and another key is hidden from it.

        For a function of q, k and v, each key is also visible to one query and hidden from another. In a layer, the
        last query sees every key. With `shows_first_key`, all queries see the first key. If the requested masks have a
        fixed size, this mask has the same size.
        """
        rows, keys = self.fit_sizes(self.request.masks, rows, keys)
        is_visible = self.rng.random((rows, keys)) < 0.6
        is_visible[np.arange(rows), np.arange(rows) % keys] = True
        is_visible[np.arange(rows), (np.arange(rows) + 1) % keys] = False
        if self.offer.core:
            is_visible[np.arange(keys) % rows, np.arange(keys)] = True
            is_visible[(np.arange(keys) + 1) % rows, np.arange(keys)] = False
        else:
            is_visible[-1] = True
        is_visible[:, 0] |= shows_first_key
        return Allowed(is_visible)


class HeadsMaker(Maker):
    stream = 12

    def __init__(self, request: Request, offer: Offer, layout: str, returns: str, only_head_size: int) -> None:
        super().__init__(request, offer)
        self.only_head_size = only_head_size
        self.batch = (request.batch if request.batch > 1 else 2) if has_batch(layout) else 1
        usual_heads = 6 if request.kv_head is None else 3 * request.kv_head
        self.heads = request.head or usual_heads if has_heads(layout) else 1
        self.groups = request.kv_head or self.heads if has_heads(layout) else 1
        self.joined, self.wide = is_joined(layout), cuts_heads(layout) or cuts_heads(returns)

    def case(self, question: str, rows: int, keys: int, *, optional: bool = False, **changes: Any) -> Case:
        """Return a case of normal random numbers; q and k have the standard deviation `SPREAD`."""
        request, masks = self.request, changes.get("masks", self.request.masks)
        rows, keys = self.fit_sizes(masks, rows, keys)
        size = self.only_head_size or changes.get("size", SIZE)
        size = SIZE if any(position.misfit(size) for position in request.positions) else size
        has_fixed_heads = request.head or request.kv_head or request.scores or self.heads == 1
        heads = self.heads if has_fixed_heads else changes.get("heads", self.heads)
        groups = changes.get("groups", self.groups if heads == self.heads else heads)
        has_fixed_batch = request.batch > 1 or self.batch == 1
        batch = self.batch if has_fixed_batch else changes.get("batch", self.batch)
        rules = replace(request.rules(size, rows, keys), masks=masks, scores=changes.get("scores", request.scores))
        recipe = Recipe(rules, heads, groups, request.positions, wide=self.wide, share=self.share)
        shapes = ((batch, heads, rows, size), (batch, groups, keys, size), (batch, groups, keys, size))
        q, k, v = (self.rng.standard_normal(shape) for shape in shapes)
        passes_scale = not isinstance(request.scale, bool)
        unpromised = changes.get("unpromised", False)
        return Case(
            question, recipe, Given(q * SPREAD, k * SPREAD, v), passes_scale, optional or unpromised, unpromised
        )

    def make_multiplied(self, question: str, length: int, factor: float) -> Case:
        """Return a case whose queries, which determine the logits, are multiplied by a factor."""
        case = self.case(question, length, length)
        assert case.given.q is not None
        return replace(case, given=replace(case.given, q=case.given.q * factor + 0.0))  # + 0.0 turns -0.0 into 0.0

    def make_sparse_integers(self, question: str, length: int) -> Case:
        """Return a case of sparse small integers, which every dtype represents exactly."""
        case = self.case(question, length, length)
        q, k, v = (
            np.where(self.rng.random(side.shape) < 0.3, self.rng.integers(-2, 3, side.shape), 0.0)
            for side in (case.given.q, case.given.k, case.given.v)
            if side is not None
        )
        return replace(case, given=Given(q, k, v))


@dataclass(frozen=True)
class Inside:
    """What a module contains: its matrices as in `x W`, its heads, and what surrounds its attention.

    `tokens` is the only number of tokens that it accepts, or 0 if it accepts any.
    """

    arrays: Arrays
    heads: int
    groups: int
    around: Around | None = None
    tokens: int = 0


class LayerMaker(Maker):
    """Makes cases of x and a layer's matrices; a module keeps its own matrices."""

    stream = 13

    def __init__(self, request: Request, offer: Offer, inside: Inside | None) -> None:
        super().__init__(request, offer)
        self.inside = inside
        self.heads = inside.heads if inside else request.head or (3 if offer.takes("heads") else 1)
        shared = self.heads if request.kv_head is None or self.heads % request.kv_head else request.kv_head
        self.groups = inside.groups if inside else shared

    def fit_sizes(self, masks: tuple[Mask, ...], rows: int, keys: int) -> tuple[int, int]:
        fixed = self.inside.tokens if self.inside else 0
        return super().fit_sizes(masks, fixed or rows, fixed or keys)

    def case(
        self, question: str, rows: int, keys: int, *, optional: bool = False, wider: int = 0, factor: float = 1.0,
        **changes: Any,
    ) -> Case:  # fmt: skip
        """Return a case of these sizes; x is `wider` columns wider than all heads, and multiplied by `factor`."""
        request, masks = self.request, changes.get("masks", self.request.masks)
        rows, keys = self.fit_sizes(masks, rows, keys)
        rows = rows if changes.get("memory") else keys  # in self-attention, tokens are both queries and keys
        arrays = self.inside.arrays if self.inside else self.draw_matrices(wider, changes.get("size", SIZE))
        width, inner_width = arrays["W_q"].shape
        rules = replace(request.rules(inner_width // self.heads, rows, keys), masks=masks)
        recipe = Recipe(
            rules, self.heads, self.groups, request.positions, output_projection="W_o" in arrays, share=self.share
        )
        batch = request.batch if request.batch > 1 else changes.get("batch", 2) if self.inside else 1
        x = self.rng.standard_normal((batch, rows, width)) * factor
        memory = self.draw_memory(x, (batch, keys, len(arrays["W_k"])), is_other=bool(changes.get("memory")))
        given = Given(x=x, memory=memory, arrays=arrays, around=self.inside.around if self.inside else None)
        passes_scale = "scale=" in " ".join(request.typed)
        unpromised = changes.get("unpromised", False)
        return Case(question, recipe, given, passes_scale, optional or unpromised, unpromised)

    def draw_memory(self, x: Array, shape: Shape, is_other: bool) -> Array | None:
        """Return the memory: random if it is another input or has another width than x, else x itself or None."""
        if is_other or shape[-1] != x.shape[-1]:
            return self.rng.standard_normal(shape)
        is_normed = self.inside is not None and self.inside.around is not None  # the layer may norm only x
        return x if is_normed and self.offer.takes("memory") else None

    def make_multiplied(self, question: str, length: int, factor: float) -> Case:
        """Return a case with x multiplied by a factor; for 0, set all tokens equal, since zeros may mean padding."""
        case = self.case(question, length, length, factor=factor or 1.0)
        assert case.given.x is not None
        return case if factor else replace(case, given=replace(case.given, x=case.given.x * 0.0 + case.given.x[:1, :1]))

    def draw_matrices(self, wider: int, size: int) -> dict[str, Array]:
        inner, shared = self.heads * size, self.groups * size
        width = inner + wider
        shapes = {"W_q": (width, inner), "W_k": (width, shared), "W_v": (width, shared), "W_o": (inner, width)}
        biases = {"b_q": inner, "b_k": shared, "b_v": shared, "b_o": width}
        arrays = {name: self.rng.standard_normal(shape) * (1.3 / math.sqrt(width)) for name, shape in shapes.items()}
        arrays |= {name: self.rng.standard_normal(length) * 0.7 for name, length in biases.items()}
        return {name: array for name, array in arrays.items() if self.offer.takes(name)}


# Hidden keys with far larger logits and values: they expose a small fill value in a low-precision dtype


def can_choose_logits(request: Request) -> bool:
    """Return whether logits can be chosen freely: nothing but the scale changes them."""
    return not request.positions and not request.scores and request.normalizer.exponential and bool(request.scale)


def with_largest_hidden(case: Case) -> Case:
    """Return the case with inputs that give the first half of the keys low logits, and the second half high ones.

    A logit is `scale q k`, or `scale (x W_q) (x W_k)` in a layer.
    """
    given = case.given
    if given.x is not None:
        return replace(
            case, given=replace(given, x=mark_tokens(case, given.x), arrays=select_marked_columns(given.arrays))
        )
    assert given.q is not None and given.k is not None and given.v is not None
    length = given.k.shape[2]
    keys = make_halves(length, VISIBLE_LOGIT, HIDDEN_LOGIT) / (case.recipe.rules.scale * given.q.shape[-1])
    k = np.broadcast_to(keys, given.k.shape).copy()
    return replace(
        case, given=replace(given, q=np.ones_like(given.q), k=k, v=given.v * make_halves(length, 1.0, VALUE_FACTOR))
    )


def make_halves(length: int, first: float, second: float) -> Array:
    """Return a column `[t 1]` with one number for the first half of the tokens and another for the second."""
    return np.where(np.arange(length) < length // 2, first, second)[:, None]


def mark_tokens(case: Case, x: Array) -> Array:
    """Set the first column of x to 1, and the second to the wanted logits divided by the scale and the head size."""
    length, size = x.shape[1], case.given.arrays["W_q"].shape[1] // case.recipe.heads
    x = x * make_halves(length, 1.0, VALUE_FACTOR)
    x[..., 0], x[..., 1] = (
        1.0,
        make_halves(length, VISIBLE_LOGIT, HIDDEN_LOGIT)[:, 0] / (case.recipe.rules.scale * size),
    )
    return x


def select_marked_columns(arrays: Arrays) -> dict[str, Array]:
    """Return matrices that copy the first column of x to all columns of q, and its second column to those of k."""
    chosen = {name: np.zeros_like(arrays[name]) for name in ("W_q", "W_k", "b_q", "b_k") if name in arrays}
    chosen["W_q"][0], chosen["W_k"][1] = 1.0, 1.0
    return dict(arrays) | chosen


def make_half_hidden_mask(rng: np.random.Generator, rows: int, keys: int, shows_first_key: bool = False) -> Allowed:
    """Return a mask that hides the second half of the keys from every query, and part of the first half.

    With `shows_first_key`, every query also sees the first key, so that it sees at least one if other masks are added.
    """
    is_visible = rng.random((rows, keys)) < 0.6
    is_visible[:, keys // 2 :] = False
    is_visible[np.arange(rows), np.arange(rows) % (keys // 2)] = True
    is_visible[:, 0] |= shows_first_key
    return Allowed(is_visible)
