"""A module as a function of x and a layer's matrices, which are put into it in place of its own."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from attn_exp.diagnosis.asking.offer import Offer
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.matrices.bound import Bound, Layer
from attn_exp.diagnosis.matrices.layers import without_slopes
from attn_exp.diagnosis.matrices.module_sizes import (
    Sizes,
)
from attn_exp.diagnosis.matrices.named_matrices import (
    plain_array,
    put_matrices,
)
from attn_exp.diagnosis.matrices.roles import Roles
from attn_exp.diagnosis.reading.modules import Known, of_class, of_module
from attn_exp.errors import UserError
from attn_exp.own_code import OwnFunction

MATRICES = ("W_q", "W_k", "W_v", "W_o", "b_q", "b_k", "b_v", "b_o")


def as_function(own: OwnFunction, request: Request, module: Bound) -> Bound:
    """Return a module, or a class of them, as a function of x, W_q, W_k, W_v, W_o, the biases and the number of heads.

    A class is made anew for each call, in the sizes of what it is given; a module must have those sizes.
    """
    assert module.inside is not None and module.offer is not None
    known = {name: name for name in MATRICES if name in module.inside.arrays}
    forward = {role: word for role, word in module.offer.parameters.items() if role not in ("x", "memory")}
    offer = Offer(False, {"x": "x", **known, "heads": "num_heads", **forward}, (), dict.fromkeys([*forward, "W_o"]))
    made = dict[tuple[int, ...], Bound]()

    def call(x: Any, num_heads: int, **given: Any) -> Any:
        arrays = {name: given.pop(name) for name in MATRICES if given.get(name) is not None}
        key = (num_heads, *(size for array in arrays.values() for size in array.shape))
        if key not in made:
            made[key] = of_sizes(own, request, x, num_heads, arrays)
        layer = made[key]
        assert layer.inside is not None
        layer.origin.to(x.device, x.dtype)
        if layer.inside.heads != num_heads:
            raise UserError(f"it has {layer.inside.heads} heads, and the run has {num_heads}")
        if layer.inside.around is not None:
            raise UserError(f"it has {layer.inside.around}, and a run has nothing around attention")
        if layer.roles is not None and layer.layer is not None:
            put_by_roles(layer.layer, layer.roles, arrays)
        else:
            put_matrices(layer.origin, arrays)
        return layer.call(x if x.ndim == 3 else x[None], **given)

    return Bound(call, own.function, offer, None if inspect.isclass(own.function) else module.inside)


def of_sizes(own: OwnFunction, request: Request, x: Any, heads: int, arrays: Mapping[str, Any]) -> Bound:
    """Return a class made in the sizes of x and a run's matrices; a module as it is, in a copy."""
    if not inspect.isclass(own.function):
        module = without_slopes(copy.deepcopy(own.function).double().eval())
        return of_module(module, Known(own.name, request, told=heads))
    size, bias = arrays["W_q"].shape[1] // heads, any(name.startswith("b_") for name in arrays)
    sizes = Sizes(x.shape[-1], heads, size, arrays["W_k"].shape[1] // size, request.seed, bias)
    return of_class(own, sizes, request)


def put_by_roles(layer: Layer, roles: Roles, arrays: Mapping[str, Any]) -> None:
    """Write matrices and biases where a layer's roles say that they are; without W_o the last one gives what it takes.

    Raises:
        UserError: they have other sizes, or a place for one is missing.
    """
    plain = {name: plain_array(array) for name, array in arrays.items()}
    own = {name: np.array(array) for name, array in layer.parameters.items()}
    known = roles.arrays(own)
    for name, array in plain.items():
        if name not in known:
            raise UserError(
                "it has no output projection, and the run has one" if name == "W_o" else
                f"W_{name[-1]}: the module has no bias there, and the run has one"
            )  # fmt: skip
        if known[name].shape != array.shape:
            raise UserError(f"{name}: the module has {list(known[name].shape)}, the run {list(array.shape)}")
    whole = {name: plain.get(name, np.zeros_like(array)) for name, array in known.items()}
    if "W_o" in known and "W_o" not in plain:
        whole["W_o"] = np.eye(*known["W_o"].shape)
    layer.put(roles.written(own, whole))
