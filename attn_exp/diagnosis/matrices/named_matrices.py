"""The matrices of a module of PyTorch as its names say them: read as `x W` has them, and written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.errors import UserError

PARTS = {
    "q": ("q_proj", "query", "W_q", "w_q", "wq", "to_q", "q_lin", "W_query", "q", "linear_q", "q_linear", "Wq"),
    "k": ("k_proj", "key", "W_k", "w_k", "wk", "to_k", "k_lin", "W_key", "k", "linear_k", "k_linear", "Wk"),
    "v": ("v_proj", "value", "W_v", "w_v", "wv", "to_v", "v_lin", "W_value", "v", "linear_v", "v_linear", "Wv"),
    "o": ("out_proj", "o_proj", "W_o", "w_o", "wo", "to_out", "out_lin", "proj", "c_proj", "out", "o", "linear_o",
          "fc_out", "Wo", "output", "dense", "W_out", "projection"),
}  # fmt: skip
FUSED = ("qkv", "qkv_proj", "in_proj", "c_attn", "to_qkv", "Wqkv", "W_qkv", "query_key_value")
FILLERS = ("conv", "mapping", "matrix", "linear", "lin", "proj", "projection", "fc", "w", "to", "layer", "weight",
           "map", "mat", "dense", "attn", "net", "head", "heads", "transform", "trans", "project", "weights",
           "attention", "att", "self", "multi", "layers", "linears", "func", "fn", "op", "param", "kernel", "vec",
           "vector", "mha", "nn", "all")  # fmt: skip
"""Words around the one that says which projection a layer is."""
WORDS = {"q": "q", "query": "q", "queries": "q", "k": "k", "key": "k", "keys": "k", "v": "v", "value": "v",
         "values": "v", "o": "o", "out": "o", "output": "o", "concat": "o", "combine": "o", "unify": "o",
         "unifyheads": "o"}  # fmt: skip
STUCK = re.compile(r"(?:w|to|fc|lin|proj)?(q|k|v|o|query|queries|keys?|values?|out(?:put)?)(?:w|s|mat|lin|proj)?")
"""One of these words, with one around it stuck to it, as in `WQ`, `w_qs` and `tokeys`."""

OF_DIMENSIONS = re.compile(r"(?<=[a-z])[123][dD](?![a-z])")
"""How many dimensions a convolution has, behind its name."""


def sounds_like(name: str) -> str:
    """Return which side a parameter's name says, or nothing."""
    parts = [part for part in re.split(r"[./]", name) if not part.isdigit()]
    parts = parts[:-1] if len(parts) > 1 and parts[-1] in ("weight", "bias", "kernel", "w", "b") else parts
    for part in reversed(parts):
        side = next((side for side, words in PARTS.items() if part in words), "") or side_of(part)
        if side:
            return side
    return ""


def side_of(word: str) -> str:
    """Return which projection a name such as `fc_q`, `query_layer`, `key_conv2d` or `lin_out` says, or nothing."""
    parts = [part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", OF_DIMENSIONS.sub("", word))]
    rest = [part for part in parts if part not in FILLERS]
    if len(rest) != 1:
        return ""
    stuck = STUCK.fullmatch(rest[0])
    return WORDS[stuck[1]] if stuck else WORDS.get(rest[0], "")


def matrices(module: Any, name: str) -> dict[str, Array]:
    """Return the matrices of a module as `x W` has them, with their biases.

    Raises:
        UserError: it has no projections that are known.
    """
    out = layer_of(module, "o")
    last = {} if out is None else linear(out, "o")
    heads = separate_heads(module)
    parts = [separate(head) for head in heads]
    if parts:  # the heads side by side, as one layer has them
        arrays = {name: np.concatenate([part[name] for part in parts], axis=-1) for name in parts[0]}
    else:
        arrays = fused(module, last) or separate(module)
    if not {"W_q", "W_k", "W_v"} <= set(arrays):
        raise UserError(
            f"{name}: no projections found; expected q_proj, k_proj, v_proj, or in_proj_weight, or name a function of "
            f"x, W_q, W_k, W_v that puts those in, as docs/check.md has one"
        )
    return arrays | last


def separate(module: Any) -> dict[str, Array]:
    """Return the matrices of three layers or parameters."""
    arrays: dict[str, Array] = {}
    for side in "qkv":
        layer = layer_of(module, side)
        if layer is not None:
            arrays |= linear(layer, side)
    return arrays


def layer_of(module: Any, side: str) -> Any:
    """Return the layer, or the parameter, that projects one side, by its name; the first of several in a row."""
    words = [*PARTS[side], *(word for word in dict(module.named_children()) if side_of(word) == side),
             *(word for word, _ in module.named_parameters(recurse=False) if side_of(word) == side)]  # fmt: skip
    for word in words:
        layer: Any = getattr(module, word, None)
        layer = next(iter(layer.children()), None) if type(layer).__name__ == "Sequential" else layer
        if getattr(getattr(layer, "weight", layer), "ndim", 0) == 2:
            return layer
    return None


def separate_heads(module: Any) -> list[Any]:
    """Return the modules of single heads, where there is a list of them, each with its projections."""
    lists = [child for child in module.children() if type(child).__name__ == "ModuleList" and len(child)]
    heads = [list(child) for child in lists if all({"W_q", "W_k", "W_v"} <= set(separate(head)) for head in child)]
    return heads[0] if len(heads) == 1 else []


def linear(layer: Any, side: str) -> dict[str, Array]:
    """Return a linear layer's matrix `[in out]` and bias; GPT-2's Conv1D stores it so, nn.Linear its transpose.

    A plain parameter is taken as it is.
    """
    if getattr(layer, "weight", None) is None:
        return {f"W_{side}": plain_array(layer)}
    weight = plain_array(layer.weight)
    turned = weight if type(layer).__name__ == "Conv1D" else weight.T
    bias = getattr(layer, "bias", None)
    return {f"W_{side}": turned} | ({} if bias is None else {f"b_{side}": plain_array(bias)})


def fused(module: Any, last: Mapping[str, Array]) -> dict[str, Array]:
    """Return the matrices of one layer that holds [q | k | v]; what goes into the last one says how wide q is."""
    weight, bias = getattr(module, "in_proj_weight", None), getattr(module, "in_proj_bias", None)
    arrays: Mapping[str, Array] = {}
    if weight is not None:
        arrays = {"W_x": plain_array(weight).T} | ({} if bias is None else {"b_x": plain_array(bias)})
    for part in FUSED if weight is None else ():
        layer = getattr(module, part, None)
        if getattr(layer, "weight", None) is not None:
            arrays = linear(layer, "x")
    if not arrays:
        return {}
    width = arrays["W_x"].shape[1]
    inner = last["W_o"].shape[0] if last and last["W_o"].shape[0] < width else width // 3
    ends = [inner, inner + (width - inner) // 2]
    sides = dict(zip("qkv", np.split(arrays["W_x"], ends, axis=1), strict=True))
    biases = dict(zip("qkv", np.split(arrays["b_x"], ends), strict=True)) if "b_x" in arrays else {}
    return {f"W_{side}": array for side, array in sides.items()} | {
        f"b_{side}": array for side, array in biases.items()
    }


def plain_array(tensor: Any) -> Array:
    """Return a tensor as an array of NumPy."""
    array: Array = tensor.detach().cpu().double().numpy()
    return array


def put_matrices(module: Any, arrays: Mapping[str, Any]) -> None:
    """Write matrices and biases into a module's projections; without W_o the last one gives what it takes.

    Raises:
        UserError: they have other sizes, or a place for one is missing.
    """
    heads = separate_heads(module)
    last = layer_of(module, "o")
    if heads:
        for place, head in enumerate(heads):
            sizes = {name: array.shape[-1] // len(heads) for name, array in arrays.items()}
            columns = {name: slice(place * size, (place + 1) * size) for name, size in sizes.items()}
            write_sides(head, {name: array[..., columns[name]] for name, array in arrays.items()})
    else:
        write_sides(module, arrays)
    if last is not None:
        write_layer(last, [arrays.get("W_o", unit(last))], [arrays.get("b_o")], "W_o")
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
        return write_layer(whole, matrices, biases, "W_q, W_k, W_v")
    for side, matrix, bias in zip("qkv", matrices, biases, strict=True):
        write_layer(layer_of(module, side), [matrix], [bias], f"W_{side}")
    return None


def write_layer(layer: Any, matrices: Sequence[Any], biases: Sequence[Any], name: str) -> None:
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
    """Return tensors side by side along an axis."""
    import torch  # noqa: PLC0415 - the module is one of PyTorch's

    return torch.cat(list(parts), dim=axis)


def bias_of(matrices: Sequence[Any], biases: Sequence[Any]) -> Any:
    """Return the biases end to end, zeros where there is none."""
    return joined([matrix.new_zeros(matrix.shape[1]) if bias is None else bias
                   for matrix, bias in zip(matrices, biases, strict=True)], 0)  # fmt: skip


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
