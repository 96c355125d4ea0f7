"""Who is timed against whom: each gives a call without arguments for one problem, or None where it cannot."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

import attn_exp
from attn_exp.processes import usable_cores

Array = NDArray[Any]
Call = Callable[[], Any]
PAUSE = 0.2
"""Seconds between contenders: so long, and longer, threads of a BLAS go on spinning after their last call."""

ONE_EXPRESSION = 1 << 27


def ours(q: Array, k: Array, v: Array, causal: bool) -> Call:
    return partial(attn_exp.attention, q, k, v, is_causal=causal)


def pytorch(q: Array, k: Array, v: Array, causal: bool) -> Call | None:
    if not find_spec("torch"):
        return None
    import torch  # noqa: PLC0415 - where it is installed

    attention: Any = torch.nn.functional.scaled_dot_product_attention
    return partial(attention, *map(torch.from_numpy, (q, k, v)), is_causal=causal)


def onnx_runtime(q: Array, k: Array, v: Array, causal: bool) -> Call | None:
    if q.dtype != np.float32 or not find_spec("onnxruntime") or not find_spec("onnx"):
        return None
    import onnxruntime  # noqa: PLC0415 - where it is installed
    from onnx import TensorProto, helper  # noqa: PLC0415

    node = helper.make_node("Attention", ["q", "k", "v"], ["y"], is_causal=int(causal))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "qkvy"]
    graph = helper.make_graph([node], "attention", values[:3], values[3:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = usable_cores()  # by itself it takes all cores, also those it may not use
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return partial(session.run, None, {"q": q, "k": k, "v": v})


def jax(q: Array, k: Array, v: Array, causal: bool) -> Call | None:
    if not find_spec("jax"):
        return None
    import jax  # noqa: PLC0415 - where it is installed

    settings: Any = jax.config
    settings.update("jax_enable_x64", True)
    arrays = [jax.numpy.asarray(each.swapaxes(1, 2)) for each in (q, k, v)]
    call = jax.jit(partial(jax.nn.dot_product_attention, is_causal=causal))
    return lambda: call(*arrays).block_until_ready()


def one_expression(q: Array, k: Array, v: Array, causal: bool) -> Call | None:
    """The NumPy of notebooks, its matrix whole."""
    if np.prod(q.shape[:3]) * k.shape[2] > ONE_EXPRESSION:
        return None

    def call() -> Array:
        logits = q @ k.swapaxes(-1, -2) / np.sqrt(q.dtype.type(q.shape[-1]))
        if causal:
            logits = np.where(np.tri(q.shape[2], k.shape[2], dtype=bool), logits, -np.inf)
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return np.asarray((powers / powers.sum(axis=-1, keepdims=True)) @ v)

    return call


CONTENDERS: Mapping[str, Callable[[Array, Array, Array, bool], Call | None]] = {
    "ours": ours,
    "PyTorch": pytorch,
    "ONNX Runtime": onnx_runtime,
    "JAX": jax,
    "one expression": one_expression,
}


def interleaved(
    calls: Mapping[str, Call], rounds: int, burst: float, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Return the seconds of each call: the median over rounds of the fastest call in a burst.

    Every round gives each contender one burst, so that a busy machine slows all alike. A pause and one call that is not
    counted come first: threads of other contenders go on spinning for a while after their last call, on the next one's
    cores.
    """
    fastest: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            time.sleep(PAUSE)
            call()
            start, times = clock(), list[float]()
            while not times or clock() - start < burst:
                before = clock()
                call()
                times.append(clock() - before)
            fastest[name].append(min(times))
    return {name: statistics.median(times) for name, times in fastest.items()}
