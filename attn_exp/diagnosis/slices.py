"""Layers whose heads have matrices of their own for slices of x, each `[d d]`; or one of each kind, which all share.

As matrices of x these lie along a diagonal, one for each head. Which is which is found as `roles` does it, by what
cannot change the answer: a matrix that is moved along a vector that no slice has a part of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.roles import TOKENS, Layer, Probe, Search, along, apart, as_matrix, restored


@dataclass(frozen=True)
class Small:
    """A matrix of one head, or of all: the axis that is multiplied by slices, and whose slices these are."""

    name: str
    axis: int
    heads: tuple[int, ...]


def made_of_slices(
    layer: Layer, probe: Probe, width: int, hint: Callable[[str], str]
) -> tuple[dict[str, Array], int] | None:  # fmt: skip
    """Return W_q, W_k, W_v, W_o and their biases as `x W` has them, and the number of heads; None of other layers."""
    sizes = {name: array.shape for name, array in layer.parameters.items() if array.ndim == 2}
    small = [name for name, (one, other) in sizes.items() if one == other and 1 < one < width and width % one == 0]
    size = sizes[small[0]][0] if small else 1
    heads = width // size
    if len(small) not in (len("qkv"), len("qkv") * heads) or len({sizes[name] for name in small}) > 1:
        return None
    with restored(layer) as before:
        search = Search(layer, probe, width, hint, False, before, 0)
        search.draw()
        search.quieten([name for name in before if not search.is_matrix(name)])
        found = [one for name in small if (one := of_slices(search, name, heads, len(small) == len("qkv"))) is not None]
        last, inputs_of_o = search.output_matrix([name for name in sizes if name not in small])
        values = [one for one in found if search.value_columns(one.name, (0,))]
        queries = [one for one in found if one not in values and is_of_queries(search, one, heads)]
        keys = [one for one in found if one not in (*values, *queries)]
        biases = {name: search.bias_of(name, size) for name in small} | {last: search.bias_of(last, width)}
    sides = {"q": queries, "k": keys, "v": values}
    if any(sorted(head for one in side for head in one.heads) != list(range(heads)) for side in sides.values()):
        return None
    arrays = dict[str, Array]()
    for side, parts in sides.items():
        arrays |= {f"W_{side}": np.zeros((width, width))}
        arrays |= {f"b_{side}": np.zeros(width)} if any(biases[one.name] for one in parts) else {}
        for one in parts:
            put_on_diagonal(arrays, side, one, layer.parameters, biases[one.name])
    if last:
        arrays["W_o"] = as_matrix(layer.parameters[last], inputs_of_o)
        if biases[last]:
            arrays["b_o"] = layer.parameters[biases[last]]
    return arrays, heads


def put_on_diagonal(
    arrays: Mapping[str, Array], side: str, one: Small, parameters: Mapping[str, Array], bias: str
) -> None:  # fmt: skip
    """Write a small matrix and its bias where those of its heads lie."""
    matrix = as_matrix(parameters[one.name], (one.axis,))
    for head in one.heads:
        place = slice(head * len(matrix), (head + 1) * len(matrix))
        arrays[f"W_{side}"][place, place] = matrix
        if bias:
            arrays[f"b_{side}"][place] = parameters[bias].ravel()


def slices(search: Search, tokens: int, head: int, heads: int) -> Array:
    """Return the slices of one head of the last tokens of x, `[t d]`."""
    return np.array(np.split(search.x[0, -tokens:], heads, axis=1)[head])


def of_slices(search: Search, name: str, heads: int, shared: bool) -> Small | None:
    """Return which slices a matrix is multiplied by, and along which axis: what none of them has is lost."""
    tokens = 2 if shared else TOKENS
    groups = [tuple(range(heads))] if shared else [(head,) for head in range(heads)]
    array, plain = search.now[name], search.answers(tokens)
    found = list[Small]()
    for group in groups:
        seen = np.concatenate([slices(search, tokens, head, heads) for head in group])
        if len(seen) > seen.shape[1] - 2:  # nothing lies apart from all of them
            return None
        blind = apart(search.rng, seen)
        for axis in (1, 0):
            if not search.moved(
                plain, search.answers_under(name, array + along(blind, axis, array, search.rng), tokens)
            ):
                found.append(Small(name, axis, group))
    return found[0] if len(found) == 1 else None


def is_of_queries(search: Search, one: Small, heads: int) -> bool:
    """Say whether a matrix makes queries: what no slice of the last token has changes nothing for that."""
    blind = apart(search.rng, np.concatenate([slices(search, 1, head, heads) for head in one.heads]))
    array = search.now[one.name]
    return not search.moved(search.answer(), search.under(one.name, array + along(blind, one.axis, array, search.rng)))
