"""Calls a function of the zoo as the words of a run ask, by the names of its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.zoo import oracle
from tests.zoo.oracle import Asked

Array = NDArray[Any]
Function = Callable[..., Any]

CORE = ("q", "k", "v", "query", "key", "value", "Q", "K", "V")
MASKS = ("mask", "attn_mask")
CAUSAL = ("is_causal", "causal")
LENGTHS = ("lengths", "seq_lens", "valid_lens")
COUNTS = ("num_heads", "n_heads", "head")
SHARED = ("num_kv_heads", "n_kv_heads", "kv_head")
MATRICES = ("W_q", "W_k", "W_v", "W_o")
BIASES = ("b_q", "b_k", "b_v", "b_o")


def takes(function: Function) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


def is_module(function: Function) -> bool:
    return isinstance(function, type)


def is_layer(function: Function) -> bool:
    return is_module(function) or "x" in takes(function)


def wants_torch(function: Function) -> bool:
    return is_module(function) or any(
        "Tensor" in str(p.annotation) for p in inspect.signature(function).parameters.values()
    )


def core_arrays(ask: Asked, seed: int, square: bool = False) -> dict[str, Array]:
    """Return q, k, v with all sizes different; `square` has as many keys as queries."""
    random = np.random.default_rng(seed)
    groups, keys = ask.kv_head or 6, 5 if square else 7
    q = random.normal(size=(3, 6, 5, 8))
    return {"q": q, "k": random.normal(size=(3, groups, keys, 8)), "v": random.normal(size=(3, groups, keys, 8))}


def layer_arrays(function: Function, ask: Asked, seed: int) -> dict[str, Array]:
    """Return x and what the layer takes of matrices and biases; `m` is 24 = heads times the size of one."""
    random = np.random.default_rng(seed)
    every = {"x": random.normal(size=(7, 24))}
    every |= {name: random.normal(size=(24, 24)) / 4 for name in MATRICES}
    if ask.kv_head:
        every |= {name: every[name][:, : 24 // ask.head * ask.kv_head] for name in ("W_k", "W_v")}
    every |= {name: random.normal(size=24) for name in BIASES}
    kept = tuple(every) if is_module(function) else takes(function)
    return {name: array for name, array in every.items() if name in kept}


def sizes(arrays: Mapping[str, Array]) -> tuple[int, int, int, int]:
    """Return how many sequences, heads, queries and keys there are; a layer's heads do not show."""
    if "x" in arrays:
        return 1, 1, len(arrays["x"]), len(arrays["x"])
    return arrays["q"].shape[0], arrays["q"].shape[1], arrays["q"].shape[2], arrays["k"].shape[2]


def some_mask(arrays: Mapping[str, Array], seed: int) -> Array:
    """Return a mask `[b 1 t s]` that leaves every query a key, not the same ones; `[1 1 t t]` for layers."""
    batches, _, t, s = sizes(arrays)
    mask = np.random.default_rng(seed).random((batches, 1, t, s)) < 0.6
    mask[:, :, np.arange(t), np.arange(t) % s] = True
    return mask


def keywords(function: Function, ask: Asked, arrays: Mapping[str, Array], mask: Array | None) -> dict[str, Any]:
    """Return the keywords that the function takes for what is asked; what it has none for goes into its mask."""
    batches, heads, t, s = sizes(arrays)
    given: dict[str, Any] = dict.fromkeys(CAUSAL, True) if ask.causal else {}
    given |= {} if ask.scale is None else {"scale": ask.scale, "sm_scale": ask.scale}
    given |= {} if ask.window is None else {"window_size": ask.window}
    given |= {} if ask.length is None else dict.fromkeys(LENGTHS, np.full(batches, ask.length))
    given |= {} if ask.cap is None else {"softcap": ask.cap}
    given |= {} if ask.sink is None else {"sinks": np.full(heads, ask.sink)}
    given |= {"alibi_slopes": np.array(oracle.slopes(heads))} if ask.alibi else {}
    given |= {"enable_gqa": True} | dict.fromkeys(SHARED, ask.kv_head) if ask.kv_head else {}
    given |= dict.fromkeys(COUNTS, ask.head)
    if mask is not None:
        given |= dict.fromkeys(MASKS, mask)
    elif ask.causal and not set(CAUSAL) & set(takes(function)):
        given |= dict.fromkeys(MASKS, oracle.allowed(ask, t, s))
    return {name: value for name, value in given.items() if name in takes(function)}


def arguments(function: Function, arrays: Mapping[str, Array], ask: Asked, mask: Array | None = None) -> dict[str, Any]:
    """Return all that the function is called with, by its own names; arrays are copies, in its own library."""
    copies = {name: array.copy() for name, array in arrays.items()}
    if not is_layer(function):
        names = [name for name in takes(function) if name in CORE][:3]
        copies = dict(zip(names, copies.values(), strict=True))
    elif mask is not None:
        mask = mask[0, 0]
    every = copies | keywords(function, ask, arrays, mask)
    return {name: as_torch(value) for name, value in every.items()} if wants_torch(function) else every


def call(function: Function, arrays: Mapping[str, Array], ask: Asked, mask: Array | None = None) -> Any:
    """Return what the function answers, as NumPy has it."""
    if is_module(function):
        return module(function, arrays, ask)
    return np.asarray(function(**arguments(function, arrays, ask, mask)))


def as_torch(value: Any) -> Any:
    import torch  # noqa: PLC0415 - only where a function wants it

    return torch.from_numpy(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value


def module(function: Function, arrays: Mapping[str, Array], ask: Asked) -> Any:
    """Make the module, give it the matrices (PyTorch keeps them as `[out in]`), and call it on a batch of one."""
    import torch  # noqa: PLC0415 - only where a module is called

    made = function(24, ask.head).double()
    state = {f"{name}_proj.weight": arrays[f"W_{name}"].T for name in "qkv"}
    state |= {f"{name}_proj.bias": arrays[f"b_{name}"] for name in "qkv"}
    state["in_proj_weight"] = np.concatenate([arrays[f"W_{name}"].T for name in "qkv"])
    state["in_proj_bias"] = np.concatenate([arrays[f"b_{name}"] for name in "qkv"])
    state |= {"out_proj.weight": arrays["W_o"].T, "out_proj.bias": arrays["b_o"]}
    made.load_state_dict({name: as_torch(state[name]) for name in made.state_dict()})
    with torch.no_grad():
        result = made.eval()(as_torch(arrays["x"][None]))
    return np.asarray(result)[0]


def expected(function: Function, arrays: Mapping[str, Array], ask: Asked, mask: Array | None = None) -> Array:
    """Return what the loops say of the same call."""
    seen = True if mask is None or not set(MASKS) & set(takes(function)) else mask
    if is_layer(function):
        return oracle.layer(dict(arrays), ask, seen)
    return oracle.attention(arrays["q"], arrays["k"], arrays["v"], ask, seen)
