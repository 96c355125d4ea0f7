"""A module of PyTorch as a function of x and a layer's matrices, which are put into it in place of its own."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from attn_exp.diagnosis.asked import Asked
from attn_exp.diagnosis.making import Sizes, made
from attn_exp.diagnosis.modules import FUSED, Bound, layer_of, of_module, separate_heads
from attn_exp.diagnosis.offer import Offer
from attn_exp.errors import UserError
from attn_exp.own_code import Own

MATRICES = ("W_q", "W_k", "W_v", "W_o", "b_q", "b_k", "b_v", "b_o")


def as_function(own: Own, asked: Asked, module: Bound) -> Bound:
    """Return a module, or a class of them, as a function of x, W_q, W_k, W_v, W_o, the biases and the number of heads.

    A class is made anew for each call, in the sizes of what it is given; a module must have those sizes.
    """
    assert module.inside is not None and module.offer is not None
    known = {name: name for name in MATRICES if name in module.inside.arrays}
    forward = {role: word for role, word in module.offer.parameters.items() if role != "x"}
    offer = Offer(False, {"x": "x", **known, "heads": "num_heads", **forward}, (), dict.fromkeys([*forward, "W_o"]))

    def call(x: Any, num_heads: int, **given: Any) -> Any:
        arrays = {name: given.pop(name) for name in MATRICES if given.get(name) is not None}
        layer = like(own, x, arrays, num_heads, asked) if inspect.isclass(own.function) else copy.deepcopy(own.function)
        layer = layer.to(x.device, x.dtype).eval()
        bound = of_module(layer, own.name, asked, num_heads)
        assert bound.inside is not None
        if bound.inside.heads != num_heads:
            raise UserError(f"it has {bound.inside.heads} heads, and the run has {num_heads}")
        put(layer, arrays)
        return bound.call(x if x.ndim == 3 else x[None], **given)

    return Bound(call, own.function, offer, None if inspect.isclass(own.function) else module.inside)


def like(own: Own, x: Any, arrays: Mapping[str, Any], heads: int, asked: Asked) -> Any:
    """Return a module of the class in the sizes of x and the matrices."""
    size = arrays["W_q"].shape[1] // heads
    bias = any(name.startswith("b_") for name in arrays)
    return made(own, Sizes(x.shape[-1], heads, size, arrays["W_k"].shape[1] // size, asked.seed, bias))


def put(module: Any, arrays: Mapping[str, Any]) -> None:
    """Write matrices and biases into a module's projections; without W_o the last one gives what it takes.

    Raises:
        UserError: they have other sizes, or a place for one is missing.
    """
    heads = separate_heads(module)
    last = layer_of(module, "o")
    if heads:
        for place, head in enumerate(heads):
            write_sides(head, {key: cut(array, place, len(heads)) for key, array in arrays.items()})
    else:
        write_sides(module, arrays)
    if last is not None:
        write(last, [arrays.get("W_o", unit(last))], [arrays.get("b_o")], "W_o")
    elif "W_o" in arrays:
        raise UserError("it has no output projection, and the run has one")


def write_sides(module: Any, arrays: Mapping[str, Any]) -> None:
    """Write q, k and v into one layer that holds all three, or into three."""
    matrices, biases = [arrays[f"W_{side}"] for side in "qkv"], [arrays.get(f"b_{side}") for side in "qkv"]
    if getattr(module, "in_proj_weight", None) is not None:
        copied(module.in_proj_weight, joined(matrices, 1).T, "in_proj_weight")
        if getattr(module, "in_proj_bias", None) is not None:
            copied(module.in_proj_bias, bias_of(matrices, biases), "in_proj_bias")
        return None
    whole = next((layer for part in FUSED if (layer := getattr(module, part, None)) is not None), None)
    if whole is not None:
        return write(whole, matrices, biases, "W_q, W_k, W_v")
    for side, matrix, bias in zip("qkv", matrices, biases, strict=True):
        write(layer_of(module, side), [matrix], [bias], f"W_{side}")
    return None


def write(layer: Any, matrices: Sequence[Any], biases: Sequence[Any], name: str) -> None:
    """Write matrices side by side into one layer, as `linear` reads them, with their biases, or zeros."""
    matrix = joined(matrices, 1)
    if getattr(layer, "weight", None) is None:
        return copied(layer, matrix, name)
    copied(layer.weight, matrix if type(layer).__name__ == "Conv1D" else matrix.T, name)
    if getattr(layer, "bias", None) is not None:
        return copied(layer.bias, bias_of(matrices, biases), name)
    if any(bias is not None for bias in biases):
        raise UserError(f"{name}: the module has no bias there, and the run has one")
    return None


def joined(parts: Sequence[Any], axis: int) -> Any:
    import torch  # noqa: PLC0415 - the module is one of PyTorch's

    return torch.cat(list(parts), dim=axis)


def bias_of(matrices: Sequence[Any], biases: Sequence[Any]) -> Any:
    """Return the biases end to end, zeros where there is none."""
    return joined([matrix.new_zeros(matrix.shape[1]) if bias is None else bias
                   for matrix, bias in zip(matrices, biases, strict=True)], 0)  # fmt: skip


def cut(array: Any, place: int, count: int) -> Any:
    """Return the columns of one head."""
    size = array.shape[-1] // count
    return array[..., place * size : (place + 1) * size]


def unit(layer: Any) -> Any:
    """Return the matrix `[in out]` that changes nothing."""
    import torch  # noqa: PLC0415

    weight = getattr(layer, "weight", layer)
    return torch.eye(weight.shape[0], weight.shape[1], dtype=weight.dtype, device=weight.device).T


def copied(place: Any, array: Any, name: str) -> None:
    """Write an array where a parameter lies.

    Raises:
        UserError: it has another shape.
    """
    if tuple(place.shape) != tuple(array.shape):
        raise UserError(f"{name}: the module has {list(place.shape)}, the run {list(array.shape)}")
    place.data.copy_(array)
