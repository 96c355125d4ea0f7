"""Prepare a layer for checking: record it, read its weights, and wrap it as a function of x and masks.

`observe` records a `Layer` and finds its attention, `read_inside` reads its matrices and heads, and `bound_layer` makes
the function that is called for each case. `name_matrices` reads the matrices by parameter names instead.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.jaxprs import trace_once
from attn_exp.diagnosis.asking.libraries import collect_arrays, stack
from attn_exp.diagnosis.asking.names import side_of_name
from attn_exp.diagnosis.asking.offer import Offer
from attn_exp.diagnosis.asking.questions import Inside
from attn_exp.diagnosis.bind.layer import Layer, kind_of
from attn_exp.diagnosis.calling.call import IS_LAYER, Bound
from attn_exp.diagnosis.observe.cores import MixedTokensError, Pair, arrange_core, find_pairs
from attn_exp.diagnosis.observe.matrices import (
    Matrices,
    UnreadMatricesError,
    are_close,
    find_surroundings,
    output_inputs,
    read_matrices,
)
from attn_exp.diagnosis.observe.recording import (
    DifferentPathsError,
    Recording,
    find_height,
    from_axes,
    record_layer,
    to_axes,
)
from attn_exp.errors import UncalledError
from attn_exp.experiment.verdict import HELD, Finding, Verdict, make_unfinished
from attn_exp.own_code import OwnFunction

BATCH, LENGTHS = 3, ((5, 7), (5, 5), (6, 6))
"""Batch size of a recorded call, and the lengths of x and memory to try: some need equal lengths, or even ones."""
UNSET = ("head_mask", "query_padding", "window", "scale", "added", "softcap", "alibi", "sinks",
          "lengths", "position_ids", "decode")  # fmt: skip
"""Roles of arguments that keep their defaults in all cases."""


@dataclass(frozen=True, eq=False)
class Observed:
    """A recorded layer and the attention in it; `tokens` is the only length that it accepts, or 0 if it accepts any."""

    layer: Layer
    recording: Recording
    pairs: Sequence[Pair]
    tokens: int = 0


def observe(layer: Layer) -> Observed:
    """Record a layer and find the attention in it.

    Raises:
        UncalledError: the layer fails at these lengths, or its operations depend on the values of its inputs.
    """
    first_error = None
    own_length = layer.lengths.get("t", 0)
    own_sizes = (layer.lengths.get("b", 1), own_length, layer.lengths.get("s", own_length))
    usual = [] if layer.is_fixed else [(BATCH, *lengths) for lengths in LENGTHS]
    for batch, length, keys in [*usual, *([own_sizes] if own_length else [])]:
        try:
            recording = record_layer(layer, batch, length, keys, {})
        except DifferentPathsError:
            raise UncalledError(f"{layer.name} runs different operations for different input values") from None
        except Exception as error:  # whatever the layer raises
            first_error = first_error or error
        else:
            accepts_any = first_error is None and not layer.is_fixed
            return Observed(layer, recording, find_pairs(recording), 0 if accepts_any else length)
    raise UncalledError(f"{layer.name} cannot be called: {type(first_error).__name__}: {first_error}")


# What is inside a recorded layer


def read_inside(observed: Observed) -> tuple[Inside, frozenset[str]]:
    """Read the weights of a layer and what surrounds its attention; also return which of q, k and v are rotated.

    Raises:
        UnreadMatricesError: the weights cannot be read; the message says why.
    """
    if not observed.pairs:
        raise UnreadMatricesError("neither scores nor weights were found among its operations")
    found = read_matrices(observed.recording, observed.pairs)
    heads, groups = count_heads(observed, found)
    context = find_context(observed)
    rows = None if context is None else context.transpose(0, 2, 1, 3).reshape(-1, context.shape[1] * context.shape[3])
    around = find_surroundings(observed.recording, found, rows)
    arrays = order_output(observed, found, context)
    width = arrays["W_v"].shape[1] // max(groups, 1) * heads
    if "W_o" in arrays and len(arrays["W_o"]) != width:  # as in a loop over the batch
        raise UnreadMatricesError(f"heads output {width} numbers, but the output projection takes {len(arrays['W_o'])}")
    return Inside(arrays, heads, groups, around, observed.tokens), found.rotated


def count_heads(observed: Observed, found: Matrices) -> tuple[int, int]:
    """Return the numbers of query heads and of key/value heads.

    A layer may compute one head at a time, so that each recorded product has one head. Then return the number of heads
    with which it was built, if the width is a multiple of it.
    """
    heads, width = observed.layer.sizes.get("h", found.heads), found.arrays["W_q"].shape[1]
    if found.heads != 1 or width % heads or heads == found.heads:
        return found.heads, found.groups
    return heads, max(1, found.arrays["W_k"].shape[1] // max(width // heads, 1))


def find_context(observed: Observed) -> Array | None:
    """Return the context `[b h t e]` of the first run, or None if its rows do not belong to single tokens."""
    try:
        return arrange_core(observed.recording, observed.pairs).context
    except MixedTokensError:
        return None


def order_output(observed: Observed, found: Matrices, context: Array | None) -> dict[str, Array]:
    """Return the matrices; reorder the rows of W_o by head if an einsum put the head axis last."""
    arrays = dict(found.arrays)
    if found.output is None or context is None or not has_head_axis(observed.layer.target):
        return arrays
    inputs = output_inputs(observed.recording, found.output)[0]
    batch, heads, length, size = context.shape
    heads_last = context.transpose(0, 2, 3, 1).reshape(batch * length, size * heads)
    if inputs.shape == heads_last.shape and np.allclose(inputs, heads_last, atol=1e-6):
        arrays["W_o"] = arrays["W_o"].reshape(size, heads, -1).swapaxes(0, 1).reshape(arrays["W_o"].shape)
    return arrays


def has_head_axis(target: Any) -> bool:
    """Return whether a parameter has three axes, such as `[h d m]`."""
    parameters: Any = getattr(target, "weights", None) or getattr(target, "parameters", list)
    arrays = parameters() if callable(parameters) else parameters
    return any(len(getattr(array, "shape", ())) == len("hdm") for array in arrays)


# A layer as a function of arrays and masks


def bound_layer(layer: Layer, inside: Inside) -> Bound:
    """Wrap a layer as a function of x `[b t m]` and masks; a layer without a batch axis is called once per example."""
    roles = {layer.keywords[role]: role for role in find_mask_roles(layer)}
    output_axes = next(iter(layer.inputs.values()))

    def call_in_order(arrays: Mapping[str, Any], masks: Mapping[str, Any]) -> Any:
        """Restore the order of the inputs before the call: JAX sorts the keys of a dictionary."""
        return layer.call({role: arrays[role] for role in layer.inputs}, masks)

    ask = trace_once(call_in_order) if layer.library == "jax" else layer.call

    def call_once(inputs: Mapping[str, Any], masks: Mapping[str, Any]) -> Any:
        arrays = {role: to_axes(array, layer.inputs[role], find_height(layer, array.shape[1]))
                  for role, array in inputs.items()}  # fmt: skip
        parts = collect_arrays(ask(arrays, masks))
        output = next(iter(parts), "")
        return {**parts, output: from_axes(parts[output], output_axes)} if parts else parts

    def call(x: Any, memory: Any = None, **keywords: Any) -> Any:
        other = x if memory is None else memory
        inputs = {role: cast_to_parameters(x if role in ("x", "q") else other, layer.target) for role in layer.inputs}
        masks = {roles[name]: mask for name, mask in keywords.items()}
        if "b" in output_axes:
            return call_once(inputs, masks)
        results = list[Any]()
        for example in range(len(x)):
            single = {role: array[example : example + 1] for role, array in inputs.items()}
            own_masks = {role: mask[example] if getattr(mask, "ndim", 0) > 2 and len(mask) == len(x) else mask
                         for role, mask in masks.items()}  # fmt: skip
            results.append(call_once(single, own_masks))
        if len(results) == 1:
            return results[0]
        return stack([next(iter(result.values()))[0] for result in results], 0)

    vars(call)[IS_LAYER] = True
    has_memory = len(layer.inputs) > 1
    arrays = ("x", "memory") if has_memory else ("x",)
    offer = make_offer(layer, arrays, {"memory": None} if has_memory else {})
    return Bound(call, layer.target, offer, inside, list_unset_arguments(layer))


def list_unset_arguments(layer: Layer) -> tuple[str, ...]:
    """Return the optional arguments that no case sets: those of unknown meaning, and those with a role in `UNSET`."""
    roles = UNSET if set(layer.inputs) == {"x"} else (*UNSET, "cache")
    return (*layer.unknown, *(word for role, word in layer.keywords.items() if role in roles))


def cast_to_parameters(x: Any, target: Any) -> Any:
    """Convert x to the dtype of a PyTorch module's parameters, which the module itself may have cast."""
    module = getattr(sys.modules.get("torch.nn"), "Module", ())
    parameters = target.parameters() if isinstance(target, module) else ()
    first = next((parameter for parameter in parameters if parameter.is_floating_point()), x)
    return x if first.dtype == x.dtype else x.to(first.dtype)


def bound_function(layer: Layer) -> Bound:
    """Wrap a layer as a function of q, k, v and masks."""
    roles = {layer.keywords[role]: role for role in find_mask_roles(layer)}

    def call(q: Any, k: Any, v: Any, **keywords: Any) -> Any:
        return layer.call({"q": q, "k": k, "v": v}, {roles[name]: mask for name, mask in keywords.items()})

    vars(call).update(counts_as_object=True, head_size=layer.sizes.get("d", 0))
    return Bound(call, layer.target, make_offer(layer, ("q", "k", "v"), {}), unknown=list_unset_arguments(layer))


def find_mask_roles(layer: Layer) -> list[str]:
    return [role for role in ("mask", "padding", "causal") if role in layer.keywords]


def make_offer(layer: Layer, arrays: Sequence[str], defaults: Mapping[str, Any]) -> Offer:
    roles = find_mask_roles(layer)
    parameters = {name: name for name in arrays} | {role: layer.keywords[role] for role in roles}
    known = {role: layer.defaults[role] for role in roles if role in layer.defaults}
    return Offer("q" in arrays, parameters, (), {**defaults, **known}, description=layer.extra_arguments)


# The parameters of a layer, by name


def name_matrices(layer: Layer, inside: Inside | None) -> Inside | None:
    """Return the matrices that a layer's parameter names suggest, or None if these are the ones it computes with.

    `inside` has the matrices that it computes with, or is None if they are unknown. Then the number of heads must be
    clear without them. Returns None too if a name is missing or ambiguous, or if shapes differ. `nn.Linear` stores
    weights as `[out in]`; the orientation of other weights is unknown.
    """
    told = [(name, np.asarray(array, float), False) for name, array in layer.weights.items()]
    parameters = told or list(parameters_of_layer(layer.target))
    norms = {path.rpartition(".")[0] for path, array, is_linear in parameters
             if path.endswith("weight") and array.ndim == 1 and not is_linear}  # fmt: skip
    parameters = [parameter for parameter in parameters if parameter[0].rpartition(".")[0] not in norms]
    are_linear = all(is_linear for _, _, is_linear in parameters)
    arrays = find_arrays_by_role(parameters)
    if not {"W_q", "W_k", "W_v"} <= set(arrays):
        return None
    if arrays.get("W_o", arrays["W_q"]).ndim != len("mn"):  # such as the factor of a residual
        return None
    if inside is None:
        heads = layer.sizes.get("h", 0)
        if len(arrays["W_q"]) * heads == len(arrays.get("W_o", ())):  # all heads share the same matrices
            arrays |= {role: repeat_for_heads(array, heads) for role, array in arrays.items() if role[-1] in "qkv"}
        width = arrays["W_q"].shape[1]
        is_clear = heads and width % heads == 0 and are_linear and len(arrays.get("W_o", arrays["W_q"].T)) == width
        return Inside(arrays, heads, arrays["W_k"].shape[1] * heads // width, None) if is_clear else None
    for role, array in arrays.items():
        known = inside.arrays.get(role)
        if known is not None and array.ndim == known.ndim and len(array) < len(known):  # it is applied to each head
            arrays[role] = repeat_for_heads(array, len(known) // len(array))
        elif known is not None and not are_linear and are_close(known, array.T, 1e-6):
            arrays[role] = known
    is_equal = (are_close(array, inside.arrays.get(role, np.zeros(0)), 1e-6) for role, array in arrays.items())
    has_shapes = all(arrays[role].shape == array.shape for role, array in inside.arrays.items() if role in arrays)
    is_same = set(arrays) == set(inside.arrays) and all(is_equal)
    return None if is_same or not has_shapes else replace(inside, arrays=arrays)


def repeat_for_heads(array: Array, heads: int) -> Array:
    """Return the matrix or bias of all heads together, if every head applies this one."""
    return np.kron(np.eye(heads), array) if array.ndim > 1 else np.tile(array, heads)


def find_arrays_by_role(parameters: Sequence[tuple[str, Array, bool]]) -> dict[str, Array]:
    """Return parameters by role, such as `W_q` and `b_q`; empty if a name is ambiguous or means something else."""
    arrays, sides = dict[str, Array](), dict[str, str]()
    for path, _, _ in parameters:
        owner, _, last = path.rpartition(".")
        name = owner.rpartition(".")[2] if owner and last in ("weight", "bias") else last
        sides[path] = side_of_name(name).removeprefix("W_").removeprefix("b_") or name
    others = {side for side in sides.values() if side not in ("q", "k", "v", "o")}
    if len(others) == 1 and "o" not in sides.values():  # a single parameter besides q, k, v is the output
        sides = {path: "o" if side in others else side for path, side in sides.items()}
    for path, array, is_linear in parameters:
        is_bias = array.ndim == 1
        role = f"{'b' if is_bias else 'W'}_{sides[path]}"
        if sides[path] not in ("q", "k", "v", "o") or array.ndim > len("mn") or role in arrays:
            return {}
        arrays[role] = array.T if is_linear and not is_bias else array
    return arrays


def parameters_of_layer(target: Any) -> Iterator[tuple[str, Array, bool]]:
    """Yield each parameter of a layer: its path, its value, and whether it is stored as `[out in]`, as in `nn.Linear`.

    The layer is a PyTorch module, a Keras layer, or `partial(module.apply, variables)` of JAX.
    """
    if isinstance(target, partial):
        yield from ((path, array, False) for variables in target.args for path, array in find_arrays(variables))
    if kind_of(target) == "keras":
        to_numpy = sys.modules["keras"].ops.convert_to_numpy
        for variable in target.trainable_variables:  # a path is `layer/query/kernel`
            array = np.asarray(to_numpy(variable), float)
            yield variable.path.replace("/", ".").replace("kernel", "weight"), array, False
    elif hasattr(target, "named_parameters") and hasattr(target, "named_modules"):
        modules = dict(target.named_modules())
        for path, tensor in target.named_parameters():
            if tensor.is_floating_point():  # unlike the state of a generator
                array = tensor.detach().double().cpu().numpy()
                yield from read_parameter(path, array, modules[path.rpartition(".")[0]])


def find_arrays(tree: Any, path: str = "") -> Iterator[tuple[str, Array]]:
    """Yield the arrays of nested dictionaries, such as the variables of Flax, with their paths."""
    if isinstance(tree, Mapping):
        for name, branch in tree.items():
            yield from find_arrays(branch, f"{path}.{name}".strip(".").replace("kernel", "weight"))
    elif "float" in str(getattr(tree, "dtype", "")):
        yield path, np.asarray(tree, float)


def read_parameter(path: str, array: Array, owner: Any) -> Iterator[tuple[str, Array, bool]]:
    """Yield a parameter of a PyTorch module; split one that contains q, k and v, as in nn.MultiheadAttention."""
    last = path.rpartition(".")[2]
    if last in ("in_proj_weight", "in_proj_bias"):
        names = [f"{side}_proj.{last.removeprefix('in_proj_')}" for side in "qkv"]
        yield from ((name, part, True) for name, part in zip(names, np.split(array, 3), strict=True))
    else:
        is_convolution = last == "weight" and set(array.shape[2:]) == {1}  # 1x1, like nn.Linear
        matrix = array.reshape(array.shape[:2]) if is_convolution else array
        yield path, matrix, is_convolution or hasattr(owner, "in_features")


# Layers outside the definition: check only that values are averaged with weights that sum to 1


def leave_open(own: OwnFunction, observed: Observed, words: str, reason: str) -> Verdict:
    """Report a layer outside the definition as not verified; check only that its weights sum to 1."""
    if not any(sum_to_one(operation.output, axis) for operation in observed.recording.first.operations
               for axis in range(operation.output.ndim)):  # fmt: skip
        return make_unfinished(own.name, reason, words)
    computes = "means of values, with weights that sum to 1"
    findings = (Finding("weights sum to 1", HELD),)
    return Verdict(own.name, True, (), computes, findings, words, not_verified=(
        f"`scores` ({reason})", "`projections` before and after attention (the definition does not cover them)",
    ))  # fmt: skip


def sum_to_one(weights: Array, axis: int) -> bool:
    return weights.shape[axis] > 1 and bool((weights >= 0).all()) and np.allclose(weights.sum(axis=axis), 1, atol=1e-5)
