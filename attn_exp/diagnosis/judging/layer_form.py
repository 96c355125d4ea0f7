"""A PyTorch layer as a form of a run: a function of x and the run's matrices, written into its parameters."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.offer import Offer
from attn_exp.diagnosis.asking.questions import Inside
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.bind.binding import bind_layer
from attn_exp.diagnosis.calling.bound import Bound
from attn_exp.diagnosis.code.libraries import library
from attn_exp.diagnosis.judging.bound_layers import bound_layer, observe, read_inside
from attn_exp.diagnosis.locate.matrices import UnreadMatricesError
from attn_exp.errors import UserError
from attn_exp.own_code import OwnFunction

MATRICES = ("W_q", "W_k", "W_v", "W_o", "b_q", "b_k", "b_v", "b_o")


def as_function(own: OwnFunction, request: Request) -> Bound:
    """Wrap a layer class or instance as a function of x, weight matrices, biases and the number of heads.

    A class is built in the sizes of its inputs; an instance must have those sizes.
    """
    built = dict[tuple[int, ...], tuple[Bound, Inside]]()

    def call(x: Any, num_heads: int, **given: Any) -> Any:
        arrays = {name: given.pop(name) for name in MATRICES if given.get(name) is not None}
        size = arrays["W_q"].shape[1] // num_heads
        sizes = (num_heads, size, arrays["W_k"].shape[1] // size)
        if sizes not in built:
            built[sizes] = build_layer(own, replace(request, head=num_heads, size=size, kv_head=sizes[2]))
        layer, inside = built[sizes]
        lent = library("torch")
        x = x if hasattr(x, "detach") else lent.into(x, str(x.dtype))
        numbers = {name: lent.back(array) if hasattr(array, "detach") else array for name, array in arrays.items()}
        for name, known in inside.arrays.items():  # make matrices that the run lacks neutral
            numbers.setdefault(name, np.eye(*known.shape) if known.ndim > 1 else np.zeros_like(known))
        built[sizes] = layer, write_matrices(layer.origin, inside, numbers)
        layer.origin.to(x.device, x.dtype)
        with sys.modules["torch"].no_grad():
            said = layer.call(x if x.ndim == len("btm") else x[None], **given)
        layer.origin.double()
        return said

    layer, inside = build_layer(own, request)
    assert layer.offer is not None
    roles = {name: name for name in MATRICES if name in inside.arrays}
    words = {role: word for role, word in layer.offer.parameters.items() if role not in ("x", "memory")}
    offer = Offer(False, {"x": "x", **roles, "heads": "num_heads", **words}, (), dict.fromkeys([*words, "W_o"]))
    return Bound(call, own.function, offer, unknown=())


def build_layer(own: OwnFunction, request: Request) -> tuple[Bound, Inside]:
    """Build a layer and read its matrices.

    Raises:
        UserError: they cannot be read or written, or something surrounds its attention.
    """
    layer = bind_layer(own, request)
    try:
        inside, _ = read_inside(observe(layer))
    except UnreadMatricesError as error:
        raise UserError(f"{own.name} cannot be a form: {error}") from error
    if inside.around is not None:
        raise UserError(f"{own.name} cannot be a form: it has {inside.around}, and a run has nothing around attention")
    if not hasattr(layer.target, "named_parameters"):
        raise UserError(f"{own.name} cannot be a form: matrices can be written into modules of PyTorch alone")
    return bound_layer(layer, inside), Inside(inside.arrays, inside.heads, inside.groups)


def write_matrices(module: Any, inside: Inside, arrays: Mapping[str, Array]) -> Inside:
    """Write matrices and biases into the parameters from which a layer's were read; return them as its current ones.

    Raises:
        UserError: a matrix has no parameter, or one of another shape.
    """
    known = dict(inside.arrays)
    for name, array in arrays.items():
        if name not in known or known[name].shape != array.shape:
            there = list(known[name].shape) if name in known else "nothing"
            raise UserError(f"{name}: the module has {there}, the run {list(array.shape)}")
        missing = set(range(array.shape[-1]))
        for _, parameter in module.named_parameters():
            numbers = parameter.detach().double().cpu().numpy()
            for lines in (numbers, numbers.T) if array.ndim > 1 and numbers.ndim > 1 else (numbers,):
                if lines.shape[1:] == array.T.shape[1:] and lines.ndim == array.ndim:
                    places = find_lines(lines, known[name].T)
                    missing -= set(places)
                    for column, row in places.items():
                        lines[row] = array.T[column]
            parameter.data.copy_(parameter.new_tensor(numbers))
        if missing:
            raise UserError(f"{name}: no parameter of the module holds it")
        known[name] = array
    return replace(inside, arrays=known)


def find_lines(lines: Array, wanted: Array) -> dict[int, int]:
    """Map the index of each wanted line, or number, to its index among `lines`, if present."""
    found = dict[int, int]()
    for place, one in enumerate(wanted):
        same = np.isclose(lines, one, rtol=1e-9, atol=0).reshape(len(lines), -1).all(axis=1)
        if same.any():
            found[place] = int(same.argmax())
    return found
