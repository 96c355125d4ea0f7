"""Modules of PyTorch with q/k/v projections inside: their matrices are read, and those of a run are put into them."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.call import Caller
from attn_exp.diagnosis.case import differs, expected
from attn_exp.diagnosis.libraries import DIGITS, library
from attn_exp.diagnosis.module_sizes import CONFIG, HEADS, Sizes, about_heads, head_count, make_module
from attn_exp.diagnosis.offer import BY_NAME, Offer, parameters_of, plain
from attn_exp.diagnosis.questions import Inside, layer_cases
from attn_exp.diagnosis.request import Request
from attn_exp.errors import UserError
from attn_exp.own_code import OwnFunction

PARTS = {
    "q": ("q_proj", "query", "W_q", "w_q", "wq", "to_q", "q_lin", "W_query", "q", "linear_q", "q_linear", "Wq"),
    "k": ("k_proj", "key", "W_k", "w_k", "wk", "to_k", "k_lin", "W_key", "k", "linear_k", "k_linear", "Wk"),
    "v": ("v_proj", "value", "W_v", "w_v", "wv", "to_v", "v_lin", "W_value", "v", "linear_v", "v_linear", "Wv"),
    "o": ("out_proj", "o_proj", "W_o", "w_o", "wo", "to_out", "out_lin", "proj", "c_proj", "out", "o", "linear_o",
          "fc_out", "Wo", "output", "dense", "W_out", "projection"),
}  # fmt: skip
FUSED = ("qkv", "qkv_proj", "in_proj", "c_attn", "to_qkv", "Wqkv", "W_qkv", "query_key_value")
MADE_WITH, SIZE = 3, 8
"""Heads of a module that is made of its class, where nobody asks for others, and the numbers of each."""
FILLERS = ("linear", "lin", "proj", "projection", "fc", "w", "to", "layer", "weight", "map", "mat", "dense", "attn",
           "net")  # fmt: skip
"""Words around the one that says which projection a layer is."""
WORDS = {"q": "q", "query": "q", "queries": "q", "k": "k", "key": "k", "keys": "k", "v": "v", "value": "v",
         "values": "v", "o": "o", "out": "o", "output": "o"}  # fmt: skip


@dataclass(frozen=True)
class Bound:
    """What is called: a function, or a module with its matrices; `origin` tells which library it comes from."""

    call: Callable[..., Any]
    origin: Any
    offer: Offer | None = None
    inside: Inside | None = None


def bound(own: OwnFunction, request: Request) -> Bound:
    """Return what is to be called.

    Raises:
        UserError: a module whose projections, or whose number of heads, are not known.
    """
    if not is_module(own.function):
        return Bound(own.function, own.function)
    if not inspect.isclass(own.function):
        return of_module(own.function.double().eval(), own.name, request, request.head)
    heads = request.head or MADE_WITH
    shared = request.kv_head if request.kv_head and heads % request.kv_head == 0 else heads
    module = make_module(own, Sizes(SIZE * heads, heads, SIZE, shared, request.seed)).double().eval()
    words = [plain(given.name) for given in parameters_of(own.function, own.name)]
    is_told = any(word in HEADS or word in CONFIG or about_heads(word) for word in words)
    return of_module(module, own.name, request, request.head or (MADE_WITH if is_told else None))


def is_module(function: Any) -> bool:
    """Say whether something is a module of PyTorch, or a class of them."""
    named = [base.__module__ for base in (function if inspect.isclass(function) else type(function)).__mro__]
    return any(home.startswith("torch.nn") for home in named)


def of_module(module: Any, name: str, request: Request, told: int | None = None) -> Bound:
    """Return a module as a layer that holds its own matrices; `told` heads where it has no known word for them.

    Raises:
        UserError: it has no projections that are known, or its heads are not.
    """
    arrays = matrices(module, name)
    forward = parameters_of(module.forward, name)
    roles = {BY_NAME[plain(given.name)]: given.name for given in reversed(forward) if plain(given.name) in BY_NAME}
    thrice = {"q", "k", "v"} <= set(roles)
    taken = {role: word for role, word in roles.items() if role in ("mask", "padding", "causal")}
    offer = Offer(False, {"x": "x", **taken}, (), dict.fromkeys(taken))

    def call(x: Any, **keywords: Any) -> Any:
        return module(x, x, x, **keywords) if thrice else module(x, **keywords)

    def right(count: int) -> bool:
        caller = Caller(call, offer, library("torch", request.device), request, "bhtd")
        case = next(layer_cases(request, offer, True, inside(count)))
        output = caller(case).output
        return output is not None and not differs(output, expected(case), DIGITS["float32"])

    def inside(count: int) -> Inside:
        return Inside(arrays, count, arrays["W_k"].shape[1] // (arrays["W_q"].shape[1] // count))

    count = len(separate_heads(module)) or head_count(module, arrays, told, right, name)
    return Bound(call, module, offer, inside(count))


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


def side_of(word: str) -> str:
    """Return which projection a name such as `fc_q`, `query_layer` or `lin_out` says, or nothing."""
    parts = [part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", word)]
    rest = [part for part in parts if part not in FILLERS]
    return WORDS.get(rest[0], "") if len(rest) == 1 else ""


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
    array: Array = tensor.detach().cpu().double().numpy()
    return array


# A module as a function of x and a layer's matrices, which are put into it in place of its own

MATRICES = ("W_q", "W_k", "W_v", "W_o", "b_q", "b_k", "b_v", "b_o")


def as_function(own: OwnFunction, request: Request, module: Bound) -> Bound:
    """Return a module, or a class of them, as a function of x, W_q, W_k, W_v, W_o, the biases and the number of heads.

    A class is made anew for each call, in the sizes of what it is given; a module must have those sizes.
    """
    assert module.inside is not None and module.offer is not None
    known = {name: name for name in MATRICES if name in module.inside.arrays}
    forward = {role: word for role, word in module.offer.parameters.items() if role != "x"}
    offer = Offer(False, {"x": "x", **known, "heads": "num_heads", **forward}, (), dict.fromkeys([*forward, "W_o"]))

    def call(x: Any, num_heads: int, **given: Any) -> Any:
        arrays = {name: given.pop(name) for name in MATRICES if given.get(name) is not None}
        if inspect.isclass(own.function):  # anew, in the sizes of x and the matrices
            size, bias = arrays["W_q"].shape[1] // num_heads, any(name.startswith("b_") for name in arrays)
            sizes = Sizes(x.shape[-1], num_heads, size, arrays["W_k"].shape[1] // size, request.seed, bias)
            layer = make_module(own, sizes)
        else:
            layer = copy.deepcopy(own.function)
        layer = layer.to(x.device, x.dtype).eval()
        bound = of_module(layer, own.name, request, num_heads)
        assert bound.inside is not None
        if bound.inside.heads != num_heads:
            raise UserError(f"it has {bound.inside.heads} heads, and the run has {num_heads}")
        put_matrices(layer, arrays)
        return bound.call(x if x.ndim == 3 else x[None], **given)

    return Bound(call, own.function, offer, None if inspect.isclass(own.function) else module.inside)


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
