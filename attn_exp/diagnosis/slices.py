"""Layers whose heads share their matrices: each is `[d d]`, and is applied to the slice of x of each head.

As matrices of x these lie along a diagonal, one for each head. Which is which is found as `roles` does it, by what
cannot change the answer: a matrix that is moved along a vector that no slice has a part of.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.roles import TOKENS, Layer, Probe, Search, along, apart, as_matrix, restored


def shared_by_heads(
    layer: Layer, probe: Probe, width: int, hint: Callable[[str], str]
) -> tuple[dict[str, Array], int] | None:  # fmt: skip
    """Return W_q, W_k, W_v, W_o and their biases as `x W` has them, and the number of heads; None of other layers."""
    sizes = {name: array.shape for name, array in layer.parameters.items() if array.ndim == 2}
    small = [name for name, (one, other) in sizes.items() if one == other and one < width and width % one == 0]
    if len(small) != len("qkv") or len({sizes[name] for name in small}) > 1:
        return None
    size = sizes[small[0]][0]
    with restored(layer) as before:
        search = Search(layer, probe, width, hint, False, before, TOKENS)
        search.draw()
        search.quieten([name for name in before if not search.is_matrix(name)])
        axes = {name: axis for name in small if (axis := axis_of_slices(search, name, size)) is not None}
        last, inputs_of_o = search.output_matrix([name for name in sizes if name not in small])
        values = [name for name in small if search.value_columns(name, (0,))]
        queries = [name for name in axes if name not in values and is_of_queries(search, name, axes[name], size)]
        keys = [name for name in small if name not in (*values, *queries)]
        biases = {name: search.bias_of(name, size) for name in small} | {last: search.bias_of(last, width)}
    if len(axes) != len(small) or not len(values) == len(queries) == len(keys) == 1:
        return None
    now, heads, arrays = layer.parameters, width // size, dict[str, Array]()
    for side, (name,) in {"q": queries, "k": keys, "v": values}.items():
        arrays[f"W_{side}"] = np.kron(np.eye(heads), as_matrix(now[name], (axes[name],)))
        if biases[name]:
            arrays[f"b_{side}"] = np.tile(now[biases[name]], heads)
    if last:
        arrays["W_o"] = as_matrix(now[last], inputs_of_o)
        if biases[last]:
            arrays["b_o"] = now[biases[last]]
    return arrays, heads


def axis_of_slices(search: Search, name: str, size: int) -> int | None:
    """Return the axis of a matrix that is multiplied by slices of x: of two tokens, what none of them has is lost."""
    slices = search.x[0, -2:].reshape(-1, size)
    if len(slices) > size - 2:  # nothing lies apart from all of them
        return None
    blind, plain, array = apart(search.rng, slices), search.answer(2), search.now[name]
    others = [search.under(name, array + along(blind, axis, array, search.rng), 2) for axis in (1, 0)]
    moved = [search.moved(plain, other) for other in others]
    return None if moved[0] == moved[1] else (1, 0)[moved.index(False)]


def is_of_queries(search: Search, name: str, axis: int, size: int) -> bool:
    """Say whether a matrix makes queries: what no slice of the last token has changes nothing for that."""
    blind = apart(search.rng, search.x[0, -1:].reshape(-1, size))
    array = search.now[name]
    return not search.moved(search.answer(), search.under(name, array + along(blind, axis, array, search.rng)))
