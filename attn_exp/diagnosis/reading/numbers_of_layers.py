"""The numbers of a layer before its matrices are read: drawn anew where nobody set them, and how many there are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.calling.way import LAID, Way
from attn_exp.diagnosis.matrices.bound import Layer
from attn_exp.diagnosis.matrices.layers import TorchLayer
from attn_exp.diagnosis.matrices.module_sizes import (
    HEADS,
    Sizes,
    whole_numbers,
)
from attn_exp.diagnosis.matrices.plain_layers import PlainLayer
from attn_exp.diagnosis.matrices.pure_layers import PureLayer
from attn_exp.diagnosis.matrices.roles import OPEN, TOKENS, restored


@contextmanager
def with_numbers_of_now(layer: Layer, now: Mapping[str, Array]) -> Iterator[None]:
    """Let a layer have these numbers again, of what it still holds, meanwhile."""
    with restored(layer) as before:
        layer.put({name: now[name] for name in before if name in now})
        yield


def awake(layer: TorchLayer | PureLayer, way: Way) -> None:
    """Set to 1 what is 0 in a new layer and keeps its matrices from changing anything, as a gain of a residual does."""
    off = {name: np.ones_like(array) for name, array in layer.parameters.items()
           if not array.any() and sum(length > 1 for length in array.shape) < 2}  # fmt: skip
    if not off:
        return
    x = np.random.default_rng(17).standard_normal((2, way.tokens or TOKENS, way.width))

    def is_off() -> bool:
        with restored(layer) as before:
            said = layer.answer(way, x, None)
            rng = np.random.default_rng(19)  # a norm of matrices takes a factor away
            layer.put({name: array + 0.5 * array.std() * rng.standard_normal(array.shape)
                       for name, array in before.items() if array.ndim > 1})  # fmt: skip
            return np.allclose(said, layer.answer(way, x, None))

    for name, ones in off.items() if is_off() else ():
        layer.put({name: ones})
        if is_off():
            layer.put({name: 0 * ones})


def redraw(layer: TorchLayer | PlainLayer | PureLayer, seed: int) -> None:
    """Give matrices, biases and norms numbers of their own where all of theirs are the same, or were never set.

    So is done where they are those of another one: a copy of a layer starts with what that has.
    """
    rng, known = np.random.default_rng([seed, 23]), set[bytes]()
    for name, array in layer.parameters.items():
        size = float(np.abs(array).max(initial=0.0))
        unset = not UNSET[0] < size < UNSET[1] and size != 0.0  # NaN too: `torch.empty` holds whatever was there
        copied = array.tobytes() in known
        known.add(array.tobytes())
        if array.size < 2 or (np.ptp(array) and not unset and not copied):
            continue
        array = np.zeros_like(array) if unset else array  # noqa: PLW2901
        if sum(length > 1 for length in array.shape) > 1 and name not in layer.of_norms:
            layer.put({name: rng.standard_normal(array.shape) / np.sqrt(max(array.shape))})
        elif "bias" in name or name in layer.of_norms:
            layer.put({name: array + 0.2 * rng.standard_normal(array.shape)})


def enlarge(layer: TorchLayer | PlainLayer | PureLayer, seed: int) -> None:
    """Give other numbers to matrices and gains that are near 0: attention beside a residual would not be seen.

    Many start so: `gain=1e-5` of a last matrix, a factor of 1e-6 for each feature of what is added.
    """
    rng = np.random.default_rng([seed, 29])
    for name, array in layer.parameters.items():
        if not 0.0 < np.abs(array).max(initial=0.0) < SMALL or name in layer.of_norms:
            continue
        if sum(length > 1 for length in array.shape) > 1:
            layer.put({name: rng.standard_normal(array.shape) / np.sqrt(max(array.shape))})
        elif not np.ptp(array):
            layer.put({name: np.ones_like(array)})


SMALL = 1e-3
"""Below this is the largest number of a matrix that is meant to change nothing at first."""


def rest_batch_norms(module: Any) -> None:
    """Let each BatchNorm hand on what it is given, as a new one does but for its small number: it is a line for each
    number where nobody trains, and may stand between any matrix and what that is multiplied by."""
    for child in module.modules():
        if "BatchNorm" in type(child).__name__ and getattr(child, "running_var", None) is not None:
            child.running_mean.zero_()
            child.running_var.fill_(1.0 - child.eps)
            if child.weight is not None:
                child.weight.data.fill_(1.0)
                child.bias.data.zero_()


UNSET = (1e-20, 1e6)
"""The largest number of a parameter lies between these, if anybody has set it."""


def at_rest(module: Any) -> dict[str, Array]:
    """Return the parameters of convolutions of each number by itself as those that hand on what they are given."""
    found: dict[str, Array] = {}
    for path, one in module.named_modules():
        kernel = getattr(one, "kernel_size", ())
        alike = getattr(one, "groups", 1) == getattr(one, "in_channels", 0) == getattr(one, "out_channels", 0)
        if (
            type(one).__module__ != "torch.nn.modules.conv"
            or not alike
            or not all(size % 2 and size > 1 for size in kernel)
        ):
            continue
        if any(step != 1 for step in one.stride):
            continue
        weight = np.zeros(tuple(one.weight.shape))
        weight[(slice(None), 0, *(size // 2 for size in kernel))] = 1.0
        found[f"{path}.weight"] = weight
        if one.bias is not None:
            found[f"{path}.bias"] = np.zeros(tuple(one.bias.shape))
    return found


def heads_apart(layer: TorchLayer | PureLayer, heads: int) -> dict[str, Array]:
    """Return the matrices that mix heads with each other, and their biases, as those that leave each as it is.

    Such a matrix has as many rows and columns as there are heads, whatever other axes of length 1 it has.
    """
    own, found = layer.parameters, dict[str, Array]()
    for name, array in own.items():
        if [length for length in array.shape if length > 1] == [heads, heads]:
            bias = re.sub("(weight|kernel)$", "bias", name)
            found[name] = np.eye(heads).reshape(array.shape)
            found |= {bias: np.zeros(heads)} if bias != name and bias in own else {}
    return found


def sinks_off(layer: TorchLayer | PureLayer, way: Way, heads: int) -> dict[str, Array]:
    """Return the learned sinks of a layer, a logit of no token for each head, as numbers that leave them no weight.

    Of such a number, very small ones are all alike, and a very large one leaves the last token nothing of the first.
    """
    names = [name for name, own in layer.parameters.items() if own.size == heads > 1 and name not in layer.of_norms]
    rng, found = np.random.default_rng(43), dict[str, Array]()
    x = rng.standard_normal((2, way.tokens or TOKENS, way.width))
    other = np.concatenate([rng.standard_normal((2, 1, way.width)), x[:, 1:]], axis=1)

    def last(x: Array, name: str, number: float) -> Array:
        layer.put({name: np.full(layer.parameters[name].shape, number)})
        said: Array = layer.answer(way, x, None)[:, -1]
        return said

    for name in names:
        before = np.array(layer.parameters[name])
        with suppress(Exception):  # one token may be the only one that it takes
            low, lower, none = (last(x, name, number) for number in (-OPEN, -2 * OPEN, 0.0))
            is_closed = np.allclose(low, lower, 1e-12, 1e-12) and not np.allclose(low, none, 1e-6, 1e-6)
            sees, sees_none = (
                np.abs(last(other, name, number) - last(x, name, number)).max() for number in (-OPEN, OPEN)
            )
            if is_closed and sees_none < 1e-6 * sees:
                found[name] = np.full(before.shape, -1e9)
        layer.put({name: before})
    return found


def axes_of(module: Any) -> tuple[str, ...]:
    """Return the orders of axes to try, by which kinds of layers are inside."""
    kinds = {type(child).__name__ for child in module.modules()}
    likely = [axes for kind, axes in (("Conv3d", "bmfhw"), ("Conv2d", "bmhw"), ("Conv1d", "bmt")) if kind in kinds]
    return tuple(dict.fromkeys([*likely, *LAID]))


def widths_of(layer: TorchLayer | PlainLayer, sizes: Sizes | None) -> list[int]:
    """Return how many numbers a token may have: those that a layer was made with, else the axes of its matrices.

    Those may be for a head each, so that a token has as many for each head.
    """
    shapes = [shape for array in layer.parameters.values() if len(shape := tuple(array.shape)) > 1]
    axes = [length for shape in shapes[:2] for length in (shape[1], shape[0], *shape[2:])]
    told = [value for word, value in whole_numbers(getattr(layer, "module", layer)) if word in HEADS and value > 1]
    of_heads = [heads * axes[0] for heads in told[:1] if axes]
    return list(dict.fromkeys([*([sizes.width] if sizes is not None else []), *axes[:4], *of_heads]))


def head_size(layer: TorchLayer, sizes: Sizes | None) -> int:
    """Return how many numbers a head is likely to have, or a part of it that alone is turned: so wide are tables."""
    numbers = {word: value for word, value in whole_numbers(layer.module) if value > 0}
    turned = next((value for word, value in numbers.items() if re.search(r"rope.*dim|rot(ary)?n?dim", word)), 0)
    known = turned or next(
        (value for word, value in numbers.items() if word in ("headdim", "headsize", "dhead", "dimhead")), 0
    )
    if known or sizes is not None:
        return known or (sizes.size if sizes is not None else 1)
    heads = next((value for word, value in numbers.items() if word in HEADS), 1)
    return max(max(widths_of(layer, None), default=1) // heads, 1)
