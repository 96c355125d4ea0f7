"""Layers without values of their own: what is weighed is x itself, cut into heads.

Of one token alone such a layer answers with x, or with `x W_o`. Queries and keys are found as `roles` finds them, and
whose they are by the numbers of x that they weigh.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.roles import (
    Layer,
    NotFoundError,
    Place,
    Probe,
    Search,
    as_matrix,
    from_matrix,
    restored,
)


def made_of_x(layer: Layer, probe: Probe, width: int, hint: Callable[[str], str]) -> tuple[dict[str, Array], int]:
    """Return W_q, W_k, W_o and their biases as `x W` has them, with the unit matrix as W_v, and the number of heads.

    Raises:
        NotFoundError: of one token it answers with something else, or has no queries or no keys.
    """
    with restored(layer) as before:
        search = Search(layer, probe, width, hint, False, before, 0)
        search.draw()
        matrices = [name for name in search.now if search.is_matrix(name)]
        search.quieten([name for name in search.now if name not in matrices])
        fed = {name: inputs for name in matrices if (inputs := search.takes_x(name)) is not None}
        last, inputs_of_o = search.output_matrix([name for name in matrices if name not in fed])
        if last:
            search.write(last, from_matrix(np.eye(width), before[last].shape, inputs_of_o))
        one = search.answer(1)
        if one.shape != (width,) or search.moved(one, search.x[0, -1]):
            raise NotFoundError("of one token alone, it answers with something else than x")
        queries, keys, _ = search.queries_and_keys(fed, set())
        weighed = {place: numbers_weighed(search, fed, place) for place in (*queries, *keys)}
        of_heads = sorted({numbers for numbers in weighed.values() if numbers})
        heads = len(of_heads)
        if not queries or not keys or sum(of_heads, ()) != tuple(range(width)) or len({*map(len, of_heads)}) > 1:
            raise NotFoundError("what weighs x is no attention that is known")
        arrays: dict[str, Array] = {"W_v": np.eye(width)}
        for side, places in (("q", queries), ("k", keys)):
            ordered = sorted(places, key=lambda place: of_heads.index(weighed[place]) if weighed[place] else heads)
            pieces = search.pieces(ordered, fed)
            arrays[f"W_{side}"] = np.concatenate([piece.read(before) for piece in pieces], axis=1)
            if any(piece.bias for piece in pieces):
                parts = [(piece.read_bias(before), len(piece.columns)) for piece in pieces]
                arrays[f"b_{side}"] = np.concatenate([np.zeros(n) if bias is None else bias for bias, n in parts])
        if last:
            arrays["W_o"] = as_matrix(before[last], inputs_of_o)
            if bias_of_o := search.bias_of(last, arrays["W_o"].shape[1]):
                arrays["b_o"] = before[bias_of_o].reshape(-1)
    if arrays["W_q"].shape != arrays["W_k"].shape or arrays["W_q"].shape[1] % heads:
        raise NotFoundError("queries and keys differ in size")
    return arrays, heads


def numbers_weighed(search: Search, fed: dict[str, tuple[int, ...]], place: Place) -> tuple[int, ...]:
    """Return the numbers of x that a column of queries or keys weighs: those of the answer that it changes."""
    name, column = place
    moved = search.column(name, fed[name], [column], search.rng.standard_normal(search.width))
    gap = np.abs(search.under(name, moved) - search.answer())
    return tuple(int(number) for number in np.flatnonzero(gap > search.layer.rounding))
