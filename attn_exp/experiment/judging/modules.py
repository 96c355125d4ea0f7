"""Modules of PyTorch with q/k/v projections inside: their matrices are read, and the module is asked as a layer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attn_exp.errors import UserError
from attn_exp.experiment.judging.asked import Asked
from attn_exp.experiment.judging.layers import Inside
from attn_exp.experiment.judging.offer import BY_NAME, Offer, parameters_of, plain
from attn_exp.experiment.judging.own import Own, error_line

Array = NDArray[Any]

PARTS = {
    "q": ("q_proj", "query", "W_q", "w_q", "wq", "to_q", "q_lin", "W_query", "q", "linear_q", "q_linear", "Wq"),
    "k": ("k_proj", "key", "W_k", "w_k", "wk", "to_k", "k_lin", "W_key", "k", "linear_k", "k_linear", "Wk"),
    "v": ("v_proj", "value", "W_v", "w_v", "wv", "to_v", "v_lin", "W_value", "v", "linear_v", "v_linear", "Wv"),
    "o": ("out_proj", "o_proj", "W_o", "w_o", "wo", "to_out", "out_lin", "proj", "c_proj", "out", "o", "linear_o",
          "fc_out", "Wo", "output", "dense", "W_out", "projection"),
}  # fmt: skip
FUSED = ("qkv", "qkv_proj", "in_proj", "c_attn", "to_qkv", "Wqkv", "W_qkv", "query_key_value")
WIDTH = ("embeddim", "dmodel", "dim", "hiddensize", "embedsize", "nembd", "modeldim", "din", "dimin", "embed", "d", "m")
HEADS = ("numheads", "nheads", "heads", "nhead", "nhead", "h", "numattentionheads")
MADE_WITH = 3
"""Heads of a module that is made of its class, where nobody asks for others."""


@dataclass(frozen=True)
class Bound:
    """What is called: a function, or a module with its matrices; `origin` tells which library it comes from."""

    call: Callable[..., Any]
    origin: Any
    offer: Offer | None = None
    inside: Inside | None = None


def bound(own: Own, asked: Asked) -> Bound:
    """Return what is to be called.

    Raises:
        UserError: a module whose projections are not known.
    """
    function = own.function
    is_class = inspect.isclass(function)
    named = [base.__module__ for base in (function if is_class else type(function)).__mro__]
    if not any(home.startswith("torch.nn") for home in named):
        return Bound(function, function)
    module = made(own, asked) if is_class else function
    module = module.double().eval()
    return of_module(module, own.name, asked.head or (MADE_WITH if is_class and takes_heads(own) else None))


def takes_heads(own: Own) -> bool:
    """Say whether a class asks how many heads its module shall have."""
    return any(plain(given.name) in HEADS for given in parameters_of(own.function, own.name))


def made(own: Own, asked: Asked) -> Any:
    """Return a module of the class, with the heads that were asked for, or 3, of 8 numbers each.

    Raises:
        UserError: it needs something else.
    """
    heads, said = asked.head or MADE_WITH, {}
    for given in parameters_of(own.function, own.name):
        word = plain(given.name)
        if word in WIDTH:
            said[given.name] = 8 * heads
        elif word in HEADS:
            said[given.name] = heads
        elif word in ("dout", "outdim", "dimout", "innerdim"):
            said[given.name] = 8 * heads
        elif word in ("headdim", "dimhead", "dhead", "dk"):
            said[given.name] = 8
        elif word in ("contextlength", "maxlen", "blocksize", "maxseqlen"):
            said[given.name] = 256
        elif word == "batchfirst":
            said[given.name] = True
    try:
        import torch  # noqa: PLC0415 - the class is one of PyTorch's

        torch.manual_seed(asked.seed)
        return own.function(**said)
    except Exception as error:
        raise UserError(
            f"{own.name} cannot be made of {', '.join(map(str, said)) or 'nothing'}: {error_line(error)}"
        ) from error


def of_module(module: Any, name: str, told: int | None = None) -> Bound:
    """Return a module as a layer that holds its own matrices; `told` heads where it has no known word for them.

    Raises:
        UserError: it has no projections that are known.
    """
    arrays = matrices(module, name)
    heads = number(module, HEADS) or told or 1
    size = arrays["W_q"].shape[1] // heads
    inside = Inside(arrays, heads, arrays["W_k"].shape[1] // size)
    forward = parameters_of(module.forward, name)
    roles = {BY_NAME[plain(given.name)]: given.name for given in reversed(forward) if plain(given.name) in BY_NAME}
    thrice = {"q", "k", "v"} <= set(roles)
    taken = {role: word for role, word in roles.items() if role in ("mask", "padding", "causal")}
    offer = Offer(
        False, {"x": "x", **{name: name for name in arrays if name.startswith("\0")}, **taken}, (), dict.fromkeys(taken)
    )

    def call(x: Any, **keywords: Any) -> Any:
        return module(x, x, x, **keywords) if thrice else module(x, **keywords)

    return Bound(call, module, offer, inside)


def matrices(module: Any, name: str) -> dict[str, Array]:
    """Return the matrices of a module as `x W` has them, with their biases."""
    arrays = fused(module) or separate(module)
    if not {"W_q", "W_k", "W_v"} <= set(arrays):
        raise UserError(f"{name}: no projections found; expected q_proj, k_proj, v_proj, or in_proj_weight")
    for part in PARTS["o"]:
        last: Any = getattr(module, part, None)
        last = last[0] if type(last).__name__ == "Sequential" else last
        if getattr(last, "weight", None) is not None and getattr(last.weight, "ndim", 0) == 2:
            return arrays | linear(last, "o")
    return arrays


def separate(module: Any) -> dict[str, Array]:
    """Return the matrices of three layers or parameters."""
    arrays: dict[str, Array] = {}
    for side in "qkv":
        for part in PARTS[side]:
            layer = getattr(module, part, None)
            if getattr(layer, "weight", None) is not None:
                arrays |= linear(layer, side)
                break
            if layer is not None and getattr(layer, "ndim", 0) == 2:
                arrays[f"W_{side}"] = plain_array(layer)
                break
    return arrays


def linear(layer: Any, side: str) -> dict[str, Array]:
    """Return a linear layer's matrix `[in out]` and bias; GPT-2's Conv1D stores it so, nn.Linear its transpose."""
    weight = plain_array(layer.weight)
    turned = weight if type(layer).__name__ == "Conv1D" else weight.T
    bias = getattr(layer, "bias", None)
    return {f"W_{side}": turned} | ({} if bias is None else {f"b_{side}": plain_array(bias)})


def fused(module: Any) -> dict[str, Array]:
    """Return the matrices of one layer that holds [q | k | v]."""
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
    cut = np.array_split
    sides = dict(zip("qkv", cut(arrays["W_x"], 3, axis=1), strict=True))
    biases = dict(zip("qkv", cut(arrays["b_x"], 3), strict=True)) if "b_x" in arrays else {}
    return {f"W_{side}": array for side, array in sides.items()} | {
        f"b_{side}": array for side, array in biases.items()
    }


def plain_array(tensor: Any) -> Array:
    array: Array = tensor.detach().cpu().double().numpy()
    return array


def number(module: Any, names: tuple[str, ...]) -> int | None:
    """Return the first attribute of these names that is a whole number."""
    for word, value in vars(module).items():
        if plain(word) in names and isinstance(value, int):
            return value
    return None
