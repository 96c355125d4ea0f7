"""Random problems for the fuzzer of forms: arrays of any type and size, and rules of every kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attn_exp import rules as rules_of
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.document import Document
from attn_exp.rules.masks.mask import AnyOf, Mask
from attn_exp.rules.masks.padding import Padding
from attn_exp.rules.masks.prefix import Prefix
from attn_exp.rules.masks.window import Window
from attn_exp.rules.rules import Rules, whole_grid
from attn_exp.rules.scores.added import Added
from attn_exp.rules.scores.alibi import Alibi
from attn_exp.rules.scores.score import Score
from attn_exp.rules.scores.sink import Sink
from attn_exp.rules.scores.softcap import Softcap
from attn_exp.rules.scores.t5 import T5

Array = NDArray[Any]
Random = np.random.Generator

EDGES = (1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65)
"""Numbers of queries and keys around the borders of blocks, when tiles are small."""

FEW = 260
"""Up to so many logits a problem is small: the loops, number by number, take part."""


class Sizes(NamedTuple):
    """Batch entries (None: no such axis), query heads, key/value heads, queries, keys, head size, value size."""

    b: int | None
    h: int
    g: int
    t: int
    s: int
    d: int
    e: int

    @property
    def places(self) -> int:
        """How many logits there are."""
        return (1 if self.b is None else self.b) * self.h * self.t * self.s


@dataclass(frozen=True)
class Case:
    """One problem: arrays as the forms get them, the same without poison, and the rules of each entry alone."""

    sizes: Sizes
    given: tuple[Array, Array, Array]
    clean: tuple[Array, Array, Array]
    rules: Rules
    alone: tuple[Rules, ...]
    poisoned: bool

    @property
    def entries(self) -> int:
        """How many batch entries there are; a problem without that axis is one."""
        return len(self.alone)


def drawn(seed: int) -> Case:
    random = np.random.default_rng([20261121, seed])
    sizes = draw_sizes(random)
    kernel, plain = random.random() < 0.12, random.random() < 0.1
    nothing: tuple[tuple[Any, ...], ...] = ((),) * entries(sizes)
    causal = ((Causal(),), ((Causal(),),) * entries(sizes)) if random.random() < 0.5 else ((), nothing)
    masks, own_masks = causal if plain else draw_masks(random, sizes)
    scores, own_scores = ((), nothing) if kernel or plain else draw_scores(random, sizes)
    # Where signed scores cancel, their sum has no digits left, and no bound of the weights: `normalizer=sum` is held to
    # the reference on tame numbers, in the tests of every form with every rule.
    kinds = {name: rules_of.normalizer(name) for name in rules_of.names("normalizer")}
    others = [name for name, kind in kinds.items() if name != "softmax" and not kind.signed]
    rare = not (kernel or plain) and random.random() < 0.2
    normalizer = rules_of.normalizer(str(random.choice(others)) if rare else "softmax")
    if not normalizer.takes_extra:
        scores, own_scores = without_extra(scores), tuple(without_extra(own) for own in own_scores)
    kind = str(random.choice(["float64"] * 5 + ["float32"] * 3 + ["float16", "longdouble"]))
    rounded = None if kernel or random.random() < 0.9 else str(random.choice(["float16", "float32", "float64"]))
    settings: dict[str, Any] = {
        "scale": 1.0 if kernel else float(random.choice([1.0, 0.3, -0.7, 0.0, 1 / math.sqrt(sizes.d or 1), 2.5])),
        "normalizer": normalizer,
        "softmax_dtype": rounded,
        "bend_last": bool(scores) and random.random() < 0.06,
    }
    offset, offsets = (0, [0] * entries(sizes)) if plain else draw_offset(random, sizes)
    rules = Rules(masks=masks, scores=scores, offset=offset, **settings)
    alone = tuple(
        Rules(masks=mine, scores=own, offset=place, **settings)
        for mine, own, place in zip(own_masks, own_scores, offsets, strict=True)
    )
    tame = kernel or "float16" in (kind, rounded)
    clean = draw_arrays(random, sizes, kind, tame, largest=normalizer.sums_to_one)
    poisoned = bool(masks and sizes.t) and not rules.bend_last and random.random() < 0.25
    given, poisoned = poison(random, sizes, clean, rules) if poisoned else (clean, False)
    return Case(sizes, lie(random, given), clean, rules, alone, poisoned)


def without_extra(scores: Sequence[Score]) -> tuple[Score, ...]:
    """Leave out what adds a logit without a key."""
    return tuple(rule for rule in scores if rule.extra(0) is None)


def draw_sizes(random: Random) -> Sizes:
    """Draw sizes: three in four so small that every form takes part, the others at the edges of blocks."""
    small = random.random() < 0.75
    while True:
        group, shared = int(random.integers(1, 4)), int(random.integers(1, 4))
        t, s = (int(random.integers(0, 10) if small else random.choice(EDGES)) for _ in range(2))
        t, s = (max(t, 1), max(s, 1)) if random.random() < 0.9 else (t, s)
        d = int(random.integers(0 if random.random() < 0.1 else 1, 8))
        e = int(random.integers(1, 6))
        batch = None if random.random() < 0.5 else int(random.integers(0 if random.random() < 0.1 else 1, 4))
        sizes = Sizes(batch, group * shared, group, t, s, d, e)
        if sizes.places <= (FEW if small else 12000):
            return sizes


def entries(sizes: Sizes) -> int:
    return 1 if sizes.b is None else sizes.b


def draw_offset(random: Random, sizes: Sizes) -> tuple[Any, list[int]]:
    choices = [0, 0, sizes.s - sizes.t, 1, -1, sizes.s, -sizes.t]
    if sizes.b and random.random() < 0.3:
        offsets = [int(random.choice(choices)) for _ in range(sizes.b)]
        return np.array(offsets), offsets
    offset = int(random.choice(choices))
    return offset, [offset] * entries(sizes)


def draw_masks(random: Random, sizes: Sizes) -> tuple[tuple[Mask, ...], tuple[tuple[Mask, ...], ...]]:
    """Draw masks, some of them joined by `or`; return them for the whole batch, and for each entry alone."""
    count = int(random.choice([0, 1, 1, 1, 2, 2, 3]))
    pairs = [draw_mask(random, sizes) for _ in range(count)]
    if count > 1 and random.random() < 0.3:
        (first, firsts), (second, seconds), *others = pairs
        joined: list[Mask] = [AnyOf((one, other)) for one, other in zip(firsts, seconds, strict=True)]
        pairs = [(AnyOf((first, second)), joined), *others]
    return apart(pairs, sizes)


def apart(pairs: Sequence[tuple[Any, Sequence[Any]]], sizes: Sizes) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the rules of the whole batch, and those of each entry."""
    alone = tuple(zip(*(own for _, own in pairs), strict=True))
    return tuple(rule for rule, _ in pairs), alone or ((),) * entries(sizes)


def draw_mask(random: Random, sizes: Sizes) -> tuple[Mask, list[Mask]]:
    count = entries(sizes)
    kind = str(random.choice(["causal", "causal", "window", "padding", "prefix", "document", "array"]))
    if kind == "padding" and count:
        lengths = [int(random.integers(0, sizes.s + 2)) for _ in range(count)]
        return Padding(tuple(lengths)), [Padding((length,)) for length in lengths]
    if kind == "array":
        values = draw_grid(random, sizes) < float(random.choice([-5.0, -0.5, 0.5, 1.5]))
        return Allowed(values), [Allowed(values[min(entry, len(values) - 1)]) for entry in range(count)]
    if kind == "document" and sizes.s:
        mask: Mask = Document(tuple(sorted(int(name) for name in random.integers(0, 4, sizes.s))))
    elif kind == "window":
        mask = Window(int(random.integers(-1, sizes.s + 1)), int(random.integers(-1, 4)))
    elif kind == "prefix":
        mask = Prefix(int(random.integers(0, sizes.s + 1)))
    else:
        mask = Causal()
    return mask, [mask] * count


def draw_scores(random: Random, sizes: Sizes) -> tuple[tuple[Score, ...], tuple[tuple[Score, ...], ...]]:
    return apart([draw_score(random, sizes) for _ in range(int(random.choice([0, 0, 0, 1, 1, 2, 3])))], sizes)


def draw_score(random: Random, sizes: Sizes) -> tuple[Score, list[Score]]:
    count = entries(sizes)
    kind = str(random.choice(["alibi", "t5", "softcap", "added", "sink"]))
    if kind == "added":
        values = draw_grid(random, sizes) * float(random.choice([0.1, 1.0, 30.0]))
        return Added(values), [Added(values[min(entry, len(values) - 1)]) for entry in range(count)]
    one: dict[str, Callable[[], Score]] = {
        "alibi": Alibi,
        "t5": lambda: T5(8, 16, bool(random.random() < 0.5), table=random.standard_normal((8, sizes.h))),
        "softcap": lambda: Softcap(float(random.choice([0.5, 3.0, 50.0]))),
        "sink": lambda: Sink(tuple(random.standard_normal(sizes.h) * float(random.choice([1.0, 20.0])))),
    }
    score = one[kind]()
    return score, [score] * count


def draw_grid(random: Random, sizes: Sizes) -> Array:
    """Draw numbers that broadcast to `[b h t s]`, some of the axes single."""
    shape = (max(entries(sizes), 1), sizes.h, sizes.t, sizes.s)
    if sizes.b == 0:
        shape = (1, *shape[1:])
    return random.standard_normal([size if random.random() < 0.6 else 1 for size in shape])


def draw_arrays(random: Random, sizes: Sizes, kind: str, tame: bool, largest: bool) -> tuple[Array, Array, Array]:
    """Draw q, k and v, extreme ones now and then unless they are `tame`; `largest` allows the largest of the type."""
    batch = () if sizes.b is None else (sizes.b,)
    shapes = (sizes.h, sizes.t, sizes.d), (sizes.g, sizes.s, sizes.d), (sizes.g, sizes.s, sizes.e)
    arrays = [random.standard_normal((*batch, *shape)) for shape in shapes]
    if not tame and random.random() < 0.35:
        tiny, huge = (1e-30, 1e30) if kind == "float32" else (1e-300, 1e300)
        arrays[0] *= float(random.choice([30.0, 1000.0, 1e5, 1e-30, 0.0]))
        arrays[2] *= float(random.choice([1.0, tiny, huge]))
    elif not tame and largest and random.random() < 0.04:
        most = float(np.finfo("f4" if kind == "float32" else "f8").max)
        arrays[2] = np.clip(arrays[2], -4, 4) * (most / 4.1)
    return tuple(array.astype(kind) for array in arrays)  # type: ignore[return-value] # three


def poison(
    random: Random, sizes: Sizes, arrays: Sequence[Array], rules: Rules
) -> tuple[tuple[Array, Array, Array], bool]:
    """Put NaN, infinity or a huge number into keys and values that no query sees; say whether there are any."""
    q, k, v = (array.copy() for array in arrays)
    hidden = ~seen(sizes, rules).any(axis=(0, 1, 2))
    held = float(random.choice([np.nan, np.inf, -np.inf, np.finfo(q.dtype if q.dtype.itemsize < 16 else "f8").max]))
    k[..., hidden, :], v[..., hidden, :] = held, held
    return (q, k, v), bool(hidden.any())


def seen(sizes: Sizes, rules: Rules) -> Array:
    """Return which places may attend, `[b h t s]`."""
    grid = whole_grid(rules, sizes.h, sizes.t, sizes.s, max(entries(sizes), 0))
    allowed = np.ones((entries(sizes), sizes.h, sizes.t, sizes.s), bool)
    for mask in rules.masks:
        allowed &= mask.allows(grid)
    return allowed


def lie(random: Random, arrays: Sequence[Array]) -> tuple[Array, Array, Array]:
    ways: list[Callable[[Array], Array]] = [lambda array: array] * 6
    ways += [lambda array: array[..., ::-1].copy()[..., ::-1], np.asfortranarray]
    return tuple(ways[int(random.integers(len(ways)))](array) for array in arrays)  # type: ignore[return-value] # three
