"""Queries and keys that a layer norms, and by what it multiplies them: found by the answer for its last token.

The last of some tokens sees all others under a causal mask too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from attn_exp.diagnosis.asking.questions import Inside
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.calling.way import Way
from attn_exp.diagnosis.matrices.bound import Layer
from attn_exp.diagnosis.reading.surroundings import several
from attn_exp.forms.around import Around, Norm
from attn_exp.forms.pipeline import Given, Recipe, compute


def scaled_by_norms(layer: Layer, way: Way, inside: Inside) -> tuple[Inside, str]:
    """Return a layer that norms its queries with the scale that it has then: many divide by nothing else.

    The last token alone is asked, which a causal mask lets see all others.
    """
    around, size = inside.around or Around(), inside.arrays["W_q"].shape[1] // inside.heads
    of_last = last_token(layer, way)

    def gives(tried: Around) -> bool:
        return of_last(replace(inside, around=tried))

    if "q" not in around.heads and gives(around):
        return inside, ""
    unseen = () if "q" in around.heads or "k" in around.heads else tuple(norms_of_no_module(size))
    for heads in [around.heads] if "q" in around.heads else unseen:
        norm = heads["q"]
        for factor, said in ((1.0, ""), (float(np.sqrt(size)), "no other scale")):
            scaled = replace(norm, gain=norm.gain * factor, shift=norm.shift * factor)
            tried = replace(around, heads={**heads, "q": scaled})
            if gives(tried):
                return replace(inside, around=tried), said
    return with_factor(layer, way, inside) if unseen else (inside, "")


def with_factor(layer: Layer, way: Way, inside: Inside) -> tuple[Inside, str]:
    """Return a layer that divides queries and keys by their length and multiplies them by a number of its own."""
    size = inside.arrays["W_q"].shape[1] // inside.heads

    def normed(kind: str, eps: float, factor: float) -> Inside:
        ones, zeros = np.ones((1, 1, size)), np.zeros((1, 1, size))
        heads = {"q": Norm(kind, factor * ones, zeros, eps), "k": Norm(kind, ones, zeros, eps)}
        return replace(inside, around=replace(inside.around or Around(), heads=heads))

    gap, of_small = gap_of_last_token(layer, way), gap_of_last_token(layer, way, SMALL)
    factor = nearest(lambda tried: gap(normed("RMSNorm", 1e-6, tried)))
    if not last_token(layer, way)(normed("RMSNorm", 1e-6, factor)):
        return inside, ""
    lengths = (normed("L2", 1e-12, factor * size), *(normed("RMSNorm", eps, factor) for eps in (1e-5, 1e-6, 1e-8)))
    return min(lengths, key=of_small), f"times {factor:.4g}"


SMALL = 1e-2
"""Of x of this size the small number of a norm tells."""
STEPS, CLOSE = 25, 1e-3
"""After so many steps of a search the gap is less than this, or there is nothing to be found."""
FACTORS = np.geomspace(0.1, 30.0, 24)


def nearest(gap: Callable[[float], float]) -> float:
    """Return the factor with which a gap is least: the best of some, then between its neighbours."""
    best = int(np.argmin([gap(float(factor)) for factor in FACTORS]))
    low, high = float(FACTORS[max(best - 1, 0)]), float(FACTORS[min(best + 1, len(FACTORS) - 1)])
    for step in range(80):
        one, other = low + (high - low) / 3, high - (high - low) / 3
        nearer, farther = gap(one), gap(other)
        low, high = (low, other) if nearer < farther else (one, high)
        if step == STEPS and min(nearer, farther) > CLOSE:
            break  # no number of this kind will do
    return (low + high) / 2


def norms_of_no_module(size: int) -> Iterator[dict[str, Norm]]:
    """Yield norms of queries and keys that somebody may have written out, which no module shows."""
    for kind, eps in (("L2", 1e-12), ("RMSNorm", 1e-6), ("RMSNorm", 1e-5), ("RMSNorm", 1e-8), ("LayerNorm", 1e-5)):
        norm = Norm(kind, np.ones((1, 1, size)), np.zeros((1, 1, size)), eps)
        yield {"q": norm, "k": norm}


def last_token(layer: Layer, way: Way) -> Callable[[Inside], bool]:
    """Return what says whether the answer for the last of some tokens is that of plain attention with such matrices."""
    gap = gap_of_last_token(layer, way)
    return lambda inside: gap(inside) <= layer.rounding * 100


def gap_of_last_token(layer: Layer, way: Way, size: float = 1.0) -> Callable[[Inside], float]:
    """Return what says how far that answer is from the one of plain attention, beside its own rounding."""
    x = size * np.random.default_rng(29).standard_normal(several(way))
    answer = layer.answer(way, x, None)[:, -1]

    def gap(inside: Inside) -> float:
        rules = Request().rules(inside.arrays["W_q"].shape[1] // inside.heads, x.shape[1], x.shape[1])
        recipe = Recipe(rules, inside.heads, inside.groups, output_projection="W_o" in inside.arrays)
        stages = compute(recipe, Given(x=x, arrays=inside.arrays, around=inside.around))
        apart = np.abs(stages["output"][:, -1] - answer) - 1e-5 * np.abs(answer)
        return float(np.nan_to_num(apart, nan=np.inf).max())

    return gap
