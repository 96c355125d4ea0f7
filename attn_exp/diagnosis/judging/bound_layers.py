"""Prepare a layer for checking: record it, read its weights, and wrap it as a function of x and masks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.jaxprs import trace_once
from attn_exp.diagnosis.asking.libraries import parts_of, stack
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
from attn_exp.diagnosis.observe.recording import DifferentPathsError, Recording, find_height, lay, record_layer, unlay
from attn_exp.diagnosis.observe.trace import find_axes
from attn_exp.errors import UncalledError
from attn_exp.experiment.verdict import HELD, Finding, Verdict, unfinished
from attn_exp.own_code import OwnFunction

BATCH, LENGTHS = 3, ((5, 7), (5, 5), (6, 6))
"""Batch size of a recorded call, and the lengths of x and memory to try: some layers need equal or even lengths."""


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
    problem = None
    own = layer.lengths.get("t", 0)
    fixed = [(layer.lengths.get("b", 1), own, layer.lengths.get("s", own))] if own else []
    usual = [] if layer.is_fixed else [(BATCH, *one) for one in LENGTHS]
    for batch, length, keys in (*usual, *fixed):
        try:
            recording = record_layer(layer, batch, length, keys, {})
        except DifferentPathsError:
            raise UncalledError(f"{layer.name} runs different operations for different input values") from None
        except Exception as error:  # whatever the layer raises
            problem = problem or error
        else:
            is_free = problem is None and not layer.is_fixed
            return Observed(layer, recording, find_pairs(recording), 0 if is_free else length)
    raise UncalledError(f"{layer.name} cannot be called: {type(problem).__name__}: {problem}")


def read_inside(seen: Observed) -> tuple[Inside, frozenset[str]]:
    """Read the weights of a layer and what surrounds its attention; also return which of q, k and v are rotated.

    Raises:
        UnreadMatricesError: the weights cannot be read; the message says why.
    """
    if not seen.pairs:
        raise UnreadMatricesError("neither scores nor weights were found among its operations")
    found = read_matrices(seen.recording, seen.pairs)
    heads, groups = seen.layer.sizes.get("h", found.heads), found.groups
    if found.heads != 1 or found.arrays["W_q"].shape[1] % heads:
        heads = found.heads
    size = found.arrays["W_q"].shape[1] // heads
    groups = max(1, found.arrays["W_k"].shape[1] // max(size, 1)) if heads != found.heads else groups
    context = find_context(seen)
    rows = None if context is None else context.transpose(0, 2, 1, 3).reshape(-1, context.shape[1] * context.shape[3])
    around = find_surroundings(seen.recording, found, rows)
    arrays = order_output(seen, found, context)
    made = arrays["W_v"].shape[1] // max(groups, 1) * heads
    if "W_o" in arrays and len(arrays["W_o"]) != made:  # as in a loop over the batch
        raise UnreadMatricesError(f"heads output {made} numbers, but the output projection takes {len(arrays['W_o'])}")
    return Inside(arrays, heads, groups, around, seen.tokens), found.turns


def find_context(seen: Observed) -> Array | None:
    """Return the context `[b h t e]` of the first run, or None if a matrix product has rows that mix tokens."""
    try:
        return arrange_core(seen.recording, seen.pairs).context
    except MixedTokensError:
        return None


def order_output(seen: Observed, found: Matrices, context: Array | None) -> dict[str, Array]:
    """Return the matrices; reorder the rows of W_o by head if an einsum put the head axis last."""
    arrays = dict(found.arrays)
    if found.output is None or context is None or not has_head_axis(seen.layer.target):
        return arrays
    rows = output_inputs(seen.recording, found.output)[0]
    batch, heads, length, size = context.shape
    turned = context.transpose(0, 2, 3, 1).reshape(batch * length, size * heads)
    if rows.shape == turned.shape and np.allclose(rows, turned, atol=1e-6):
        arrays["W_o"] = arrays["W_o"].reshape(size, heads, -1).swapaxes(0, 1).reshape(arrays["W_o"].shape)
    return arrays


def has_head_axis(target: Any) -> bool:
    parameters: Any = getattr(target, "weights", None) or getattr(target, "parameters", list)
    every = parameters() if callable(parameters) else parameters
    return any(len(getattr(one, "shape", ())) == len("hdm") for one in every)


def bound_layer(layer: Layer, inside: Inside) -> Bound:
    """Wrap a layer as a function of x `[b t m]` and masks."""
    words = {layer.keywords[role]: role for role in find_mask_roles(layer)}
    has_memory = len(layer.inputs) > 1

    def call_in_order(rows: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
        """Restore the order of the inputs before the call: JAX sorts the keys of a dictionary."""
        return layer.call({role: rows[role] for role in layer.inputs}, given)

    ask = trace_once(call_in_order) if layer.library == "jax" else layer.call

    def call(x: Any, memory: Any = None, **named: Any) -> Any:
        other = x if memory is None else memory
        rows = {role: cast_to_parameters(x if role in ("x", "q") else other, layer.target) for role in layer.inputs}
        given = {words[word]: value for word, value in named.items()}
        axes = layer.inputs[next(iter(rows))]
        entries = range(x.shape[0]) if "b" not in axes else (None,)
        made = list[Any]()
        for entry in entries:
            chosen = {role: one if entry is None else one[entry : entry + 1] for role, one in rows.items()}
            has_batch = {word: entry is not None and getattr(mask, "ndim", 0) > 2 and len(mask) == len(x)
                         for word, mask in given.items()}  # fmt: skip
            masks = {word: mask[entry] if has_batch[word] else mask for word, mask in given.items()}
            said = parts_of(ask({role: lay(one, layer.inputs[role], find_height(layer, one.shape[1]))
                                 for role, one in chosen.items()}, masks))  # fmt: skip
            first = next(iter(said), "")
            made.append({**said, first: unlay(said[first], axes)} if said else said)
        if len(made) == 1:
            return made[0]
        first = next(iter(made[0]))
        return stack([one[first][0] for one in made], 0)

    vars(call)[IS_LAYER] = True
    arrays = ("x", "memory") if has_memory else ("x",)
    offer = make_offer(layer, arrays, {"memory": None} if has_memory else {})
    return Bound(call, layer.target, offer, inside, layer.constructor_call, list_unset_arguments(layer))


def list_unset_arguments(layer: Layer) -> tuple[str, ...]:
    """Return the optional arguments that no case sets: those of unknown meaning, and those with a role in `UNSET`."""
    roles = UNSET if set(layer.inputs) == {"x"} else (*UNSET, "cache")
    return (*layer.unknown, *(word for role, word in layer.keywords.items() if role in roles))


UNSET = ("head_mask", "query_padding", "window", "scale", "added", "softcap", "alibi", "sinks",
          "lengths", "position_ids", "decode")  # fmt: skip
"""Roles of arguments that keep their defaults in all cases."""


def cast_to_parameters(x: Any, target: Any) -> Any:
    module = getattr(sys.modules.get("torch.nn"), "Module", ())
    parameters = target.parameters() if isinstance(target, module) else ()
    first = next((one for one in parameters if one.is_floating_point()), x)
    return x if first.dtype == x.dtype else x.to(first.dtype)


def bound_function(layer: Layer) -> Bound:
    words = {layer.keywords[role]: role for role in find_mask_roles(layer)}

    def call(q: Any, k: Any, v: Any, **named: Any) -> Any:
        return layer.call({"q": q, "k": k, "v": v}, {words[word]: value for word, value in named.items()})

    vars(call).update(holds_size=True, head_size=layer.sizes.get("d", 0))
    return Bound(call, layer.target, make_offer(layer, ("q", "k", "v"), {}), unknown=list_unset_arguments(layer))


def find_mask_roles(layer: Layer) -> list[str]:
    return [role for role in ("mask", "padding", "causal") if role in layer.keywords]


def make_offer(layer: Layer, arrays: Sequence[str], defaults: Mapping[str, Any]) -> Offer:
    roles = find_mask_roles(layer)
    parameters = {name: name for name in arrays} | {role: layer.keywords[role] for role in roles}
    known = {role: layer.defaults[role] for role in roles if role in layer.defaults}
    return Offer("q" in arrays, parameters, (), {**defaults, **known}, said=layer.extra_arguments)


def name_matrices(layer: Layer, inside: Inside | None) -> Inside | None:
    """Return the matrices that a layer's parameter names suggest, if they differ from those it computes with.

    `nn.Linear` stores weights as `[out in]`; the orientation of other weights is unknown. Returns None if a name is
    missing or ambiguous or, without `inside`, if the number of heads is unclear.
    """
    told = [(name, np.asarray(array, float), False) for name, array in layer.weights.items()]
    parameters = told or list(parameters_of_layer(layer.target))
    norms = {path.rpartition(".")[0] for path, array, is_linear in parameters
             if path.endswith("weight") and array.ndim == 1 and not is_linear}  # fmt: skip
    parameters = [one for one in parameters if one[0].rpartition(".")[0] not in norms]
    are_linear = all(is_linear for _, _, is_linear in parameters)
    arrays = arrays_by_role(parameters)
    if not {"W_q", "W_k", "W_v"} <= set(arrays):
        return None
    if inside is None:
        heads = layer.sizes.get("h", 0)
        if len(arrays["W_q"]) * heads == len(arrays.get("W_o", ())):  # all heads share the same matrices
            arrays |= {role: for_each_head(array, heads) for role, array in arrays.items() if role[-1] in "qkv"}
        wide = arrays["W_q"].shape[1]
        is_clear = heads and wide % heads == 0 and are_linear
        return Inside(arrays, heads, arrays["W_k"].shape[1] * heads // wide, None) if is_clear else None
    for role, array in arrays.items():
        known = inside.arrays.get(role)
        if known is not None and array.ndim == known.ndim and len(array) < len(known):  # it is applied to each head
            arrays[role] = for_each_head(array, len(known) // len(array))
        elif known is not None and not are_linear and are_close(known, array.T, 1e-6):
            arrays[role] = known
    equal = (are_close(one, inside.arrays.get(role, np.zeros(0)), 1e-6) for role, one in arrays.items())
    fits = all(arrays[f"W_{side}"].shape == inside.arrays[f"W_{side}"].shape for side in "qkv")
    is_same = set(arrays) == set(inside.arrays) and all(equal)
    return None if is_same or not fits else replace(inside, arrays=arrays)


def for_each_head(array: Array, heads: int) -> Array:
    """Return the matrix or bias of all heads, if each head applies the same one."""
    return np.kron(np.eye(heads), array) if array.ndim > 1 else np.tile(array, heads)


def arrays_by_role(parameters: Sequence[tuple[str, Array, bool]]) -> dict[str, Array]:
    """Return W_q, b_q and so on by their names; nothing if a name is ambiguous or means something else."""
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


def find_arrays(tree: Any, path: str = "") -> Iterator[tuple[str, Array]]:
    if isinstance(tree, Mapping):
        for name, one in tree.items():
            yield from find_arrays(one, f"{path}.{name}".strip(".").replace("kernel", "weight"))
    elif "float" in str(getattr(tree, "dtype", "")):
        yield path, np.asarray(tree, float)


def parameters_of_layer(target: Any) -> Iterator[tuple[str, Array, bool]]:
    """Yield each parameter of a layer: its path, its value, and whether it is stored as `[out in]`, as in `nn.Linear`.

    The layer is a PyTorch module, a Keras layer, or `partial(module.apply, variables)` of JAX.
    """
    if isinstance(target, partial):  # of JAX: `partial(module.apply, variables)`
        yield from ((path, array, False) for one in target.args for path, array in find_arrays(one))
    if kind_of(target) == "keras":
        to_numpy = sys.modules["keras"].ops.convert_to_numpy
        for one in target.trainable_variables:  # a path is `layer/query/kernel`
            yield one.path.replace("/", ".").replace("kernel", "weight"), np.asarray(to_numpy(one), float), False
    elif hasattr(target, "named_parameters") and hasattr(target, "named_modules"):
        modules = dict(target.named_modules())
        for path, tensor in target.named_parameters():
            if not tensor.is_floating_point():  # such as the state of a generator
                continue
            owner = modules[path.rpartition(".")[0]]
            array, last = tensor.detach().double().cpu().numpy(), path.rpartition(".")[2]
            if last in ("in_proj_weight", "in_proj_bias"):  # packed as in nn.MultiheadAttention
                kind = last.removeprefix("in_proj_")
                yield from (
                    (f"{side}_proj.{kind}", one, True) for side, one in zip("qkv", np.split(array, 3), strict=True)
                )
            else:
                is_convolution = last == "weight" and set(array.shape[2:]) == {1}  # 1x1, like nn.Linear
                flat = array.reshape(array.shape[:2]) if is_convolution else array
                yield path, flat, is_convolution or hasattr(owner, "in_features")


# Layers outside the definition: check only that values are averaged with weights that sum to 1


def leave_open(own: OwnFunction, seen: Observed, words: str, reason: str) -> Verdict:
    """Report a layer outside the definition as not verified; check only that its weights sum to 1."""
    if not any(is_mean(seen.recording, place) for place in range(len(seen.recording.first.operations))):
        return unfinished(own.name, reason, words)
    left = (f"`scores` ({reason})", "`projections` before and after attention (the definition does not cover them)")
    found = (Finding("weights sum to 1", HELD),)
    computes = "means of values, with weights that sum to 1"
    return Verdict(own.name, True, (), computes, found, words, not_verified=left)


def is_mean(recording: Recording, place: int) -> bool:
    """Return whether an operation averages its input with token-dependent weights that sum to 1."""
    operation = recording.first.operations[place]
    live = [at for at in range(len(operation.inputs)) if recording.is_live(place, at)]
    axes = find_axes(operation)
    if axes is not None:
        return any(sum_to_one(axes.side(operation.inputs[at], side), -1)
                   for side, at in enumerate(axes.places) if at in live)  # fmt: skip
    is_summed = any(place in one.producers and "sum" in one.name for one in recording.first.operations)
    return operation.name.startswith("mul") and is_summed and any(
        sum_to_one(operation.inputs[at], axis) for at in live for axis in range(operation.inputs[at].ndim))  # fmt: skip


def sum_to_one(weights: Array, axis: int) -> bool:
    return weights.shape[axis] > 1 and bool((weights >= 0).all()) and np.allclose(weights.sum(axis=axis), 1, atol=1e-5)
