"""How q, k and v, or a layer's matrices, are passed together: in one array, as lists of heads, or by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from attn_exp.diagnosis.asking.offer import plain
from attn_exp.diagnosis.asking.sides import side_of_name
from attn_exp.diagnosis.calling.neutral import Context, Settings, Source
from attn_exp.diagnosis.code.libraries import join, stack


@dataclass(frozen=True)
class Pack:
    """One way to pack arrays: as Python text, the function that does it, and the layouts that the arrays then have."""

    text: str
    make: Callable[[Sequence[Any]], Any]
    layouts: tuple[str, ...] = ()


def stacked(axis: int, *layouts: str) -> Pack:
    """Return the packing that stacks q, k and v along a new axis."""
    return Pack(f"stack([q, k, v], {axis})", lambda arrays: stack(arrays, axis), layouts)


def joined(axis: int, *layouts: str) -> Pack:
    """Return the packing that concatenates q, k and v along an axis."""
    return Pack(f"concatenate([q, k, v], {axis})", lambda arrays: join(arrays, axis), layouts)


def side_by_side(axis: int, layout: str, said: str) -> Pack:
    """Return the packing that concatenates q, k and v of each head, and then the heads."""

    def make(arrays: Sequence[Any]) -> Any:
        whole = join(arrays, axis)
        shape = list(whole.shape)
        first = shape[: axis - 1] if axis > 0 else shape[: axis - 1 + len(shape)]
        rest = shape[len(first) + 2 :]
        return whole.reshape([*first, -1, *rest])

    return Pack(said, make, (layout,))


QKV = (
    Pack("[q, k, v]", list, ("bhtd", "bthd", "htd", "btd")),
    Pack("(q, k, v)", tuple, ("bhtd", "bthd", "htd")),
    Pack("[q, v, k]", lambda arrays: [arrays[0], *reversed(arrays[1:])], ("btd", "bhtd", "bthd")),
    Pack("{'q': q, 'k': k, 'v': v}", lambda arrays: Named(dict(zip("qkv", arrays, strict=True))),
         ("bhtd", "bthd", "htd")),
    stacked(2, "bthd"), joined(-1, "btm"), stacked(0, "bhtd"), stacked(2, "bhtd"), stacked(1, "bhtd"),
    stacked(0, "bthd"),
    joined(-1, "bhtd"), joined(-1, "bthd"), stacked(3, "bthd"), joined(-1, "btd"), stacked(0, "btd"), stacked(2, "btd"),
    stacked(1, "thd"), stacked(0, "thd"), stacked(0, "htd"), joined(-1, "tm"), joined(-1, "td"), stacked(0, "td"),
    side_by_side(-1, "bthd", "q, k, v of each head side by side [b t h*3*d]"),
    joined(1, "bmt"), side_by_side(2, "bhdt", "q, k, v of each head side by side [b h*3*d t]"),
)  # fmt: skip
"""Ways to pack all three, the likeliest first."""
KV = (
    stacked(2, "bthd"), joined(-1, "btm"), stacked(0, "bhtd"), stacked(0, "bthd"), stacked(2, "bhtd"),
    stacked(1, "bhtd"), joined(-1, "bhtd"), joined(-1, "bthd"),
    Pack("(k, v)", tuple, ("bhtd", "bthd", "htd", "td", "btd")),
)  # fmt: skip
"""The same for keys and values, if queries are a separate argument."""


def heads_of(array: Any, layout: str) -> list[Any]:
    """Split an array into a list of heads along the head axis of its layout."""
    place = layout.index("h")
    return [array[(slice(None),) * place + (head,)] for head in range(array.shape[place])]


# The matrices of a layer


def columns(matrix: Any, heads: int) -> list[Any]:
    """Split a matrix `[m h*d]` into a list with one per head."""
    size = matrix.shape[-1] // heads
    return [matrix[..., place * size : (place + 1) * size] for place in range(heads)]


def by_head(matrices: Sequence[Any], heads: int) -> Any:
    """Concatenate matrices head by head, q, k and v of each head together."""
    parts = [columns(matrix, heads) for matrix in matrices]
    return join([part[head] for head in range(heads) for part in parts], -1)


def source_of_matrices(roles: Sequence[str], how: str) -> Source:
    """Return the source of matrices in one argument; `how` is a key of `TOGETHER`."""
    text, pack = TOGETHER[how]

    def make(context: Context) -> Any:
        return pack([context.given[role] for role in roles], context)

    return Source(roles[0] if (len(roles), how) == (1, "side by side") else text.format(", ".join(roles)), make)


def with_zeros(names: tuple[str, str]) -> Callable[[Sequence[Any], Context], Any]:
    """Return a packing into a dict: concatenated matrices under the first name, zero biases under the second."""

    def pack(matrices: Sequence[Any], context: Context) -> dict[str, Any]:
        whole = join(matrices, -1)
        return {names[0]: whole, names[1]: whole[0] * 0.0}

    return pack


def named(matrices: Sequence[Any], context: Context, *, as_layers: bool = False) -> Named:
    """Return the matrices of a layer by name, as arrays or as layers."""
    arrays = dict(zip(("W_q", "W_k", "W_v", "W_o"), matrices, strict=False))
    return Named(arrays, Settings(context), as_layers=as_layers)


TOGETHER: dict[str, tuple[str, Callable[[Sequence[Any], Context], Any]]] = {
    "side by side": ("concatenate([{0}], -1)", lambda matrices, context: join(matrices, -1)),
    "by head": ("[{0}] of each head side by side", lambda matrices, context: by_head(matrices, context.at.heads)),
    "stacked": ("stack([{0}])", lambda matrices, context: stack(matrices, 0)),
    "turned": ("concatenate([{0}], -1).T", lambda matrices, context: join(matrices, -1).T),
    "tuple": ("({0})", lambda matrices, context: tuple(matrices)),
    "named": ("a dictionary of all matrices", named),
    "named layers": ("a dictionary of all layers", lambda matrices, context: named(matrices, context, as_layers=True)),
    "named turned layers": (
        "a dictionary of all layers, turned",
        lambda matrices, context: named([one.T for one in matrices], context, as_layers=True),
    ),
    "all": ("({0})", lambda matrices, context: tuple(matrices)),
    "heads": ("{0} of each head in a list", lambda matrices, context: columns(matrices[0], context.at.heads)),
    "w and b": ("{{'w': {0}, 'b': 0}}", with_zeros(("w", "b"))),
    "weight and bias": ("{{'weight': {0}, 'bias': 0}}", with_zeros(("weight", "bias"))),
}
"""Ways to pass matrices in one argument: as Python text, and the function that does it."""


WHOLE = ("named", "named layers", "named turned layers", "all")
"""Those of them that include the output projection."""


class Named(dict[str, Any]):
    """A dict that finds its arrays under any usual name: `W_q`, `wq`, `query_weight`, `q`.

    Other names return sizes. With `as_layers`, each array is a dict of its own, with a bias of zeros.
    """

    def __init__(self, arrays: Mapping[str, Any], sizes: Settings | None = None, *, as_layers: bool = False) -> None:
        super().__init__(arrays)
        self._as_layers, self._sizes = as_layers, sizes

    def __missing__(self, name: str) -> Any:
        array = self.array(str(name))
        if array is None:
            if self._sizes is not None:
                with suppress(AttributeError):
                    return getattr(self._sizes, name)
            raise KeyError(name)
        return OneOf(array) if self._as_layers else array

    def array(self, name: str) -> Any:
        """Return the matrix, or the concatenated matrices, that a name means, or None."""
        if plain(name).startswith("b"):
            return None
        side = side_of_name(name)
        side = "W_o" if side == "W" else side
        if side in ("W_qkv", "qkv"):
            packed = [dict.__getitem__(self, role) for role in ("W_q", "W_k", "W_v") if role in self]
            return join(packed, -1) if packed else None
        found = (role for role in (side, f"W_{side}", side.removeprefix("W_")) if role in self)
        return next((dict.__getitem__(self, role) for role in found), None)

    def __getitem__(self, name: str) -> Any:
        return self.__missing__(name) if self._as_layers else super().__getitem__(name)

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error


class OneOf(dict[str, Any]):
    """A layer as a dict: keys that start with b return its bias, which is zero, all others its matrix."""

    def __init__(self, matrix: Any) -> None:
        super().__init__(w=matrix, b=matrix[0] * 0.0)

    def __missing__(self, name: str) -> Any:
        return self["b" if str(name).startswith("b") else "w"]


def ways_of(roles: Sequence[str]) -> Iterator[str]:
    """Yield the ways to pass these matrices in one argument, the likeliest first."""
    several = ("side by side", "by head", "stacked", "tuple", "turned", "w and b", "weight and bias", *WHOLE)
    yield from several if len(roles) > 1 else ("side by side", "heads", "turned", "w and b", "weight and bias")
