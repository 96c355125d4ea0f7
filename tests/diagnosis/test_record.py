"""A trace repeats a call: its operations can be redone, and lead from the outputs back to the inputs."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.libraries import collect_arrays
from attn_exp.diagnosis.observe.trace import Operation, Producer, Product, Trace, record_with

X, WEIGHTS = (np.random.default_rng(3).standard_normal(shape) for shape in ((2, 6, 8), (3, 8, 8)))
HIDDEN = np.triu(np.ones((6, 6), bool), 1)


def load(library: str) -> tuple[Any, Callable[[Array], Any]]:
    """Return the module of a library, and what makes its arrays."""
    module = pytest.importorskip({"jax": "jax.numpy"}.get(library, library))
    return module, module.from_numpy if library == "torch" else module.asarray


def softmax(xp: Any, logits: Any) -> Any:
    return (powers := xp.exp(logits - xp.amax(logits, -1)[..., None])) / powers.sum(-1)[..., None]


def attend_with_matmul(xp: Any, x: Any, weights: Any) -> Any:
    q, k, v = ((x @ one).reshape(2, 6, 2, 4).swapaxes(1, 2) for one in weights)
    logits = xp.where(xp.asarray(HIDDEN), -math.inf, q @ k.swapaxes(-1, -2) / math.sqrt(4))
    return (softmax(xp, logits) @ v).swapaxes(1, 2).reshape(2, 6, 8)


def attend_with_einsum(xp: Any, x: Any, weights: Any) -> Any:
    q, k, v = xp.einsum("btm,nmo->nbto", x, weights)
    logits = xp.einsum("...td,...sd->...ts", q, k) * 8**-0.5
    return {"context": xp.einsum("bts,bsd->btd", softmax(xp, logits), v), "logits": (logits, None)}


def attend_in_place(xp: Any, x: Any, weights: Any) -> Any:
    q, k, v = (xp.tensordot(x, one, 1 if xp is np else ([2], [0])) for one in weights)
    context = xp.zeros((2, 6, 8), dtype=x.dtype)
    for part in (slice(0, 4), slice(4, 8)):
        logits = q[..., part] @ k[..., part].swapaxes(1, 2)
        logits /= 2
        logits[:, xp.asarray(HIDDEN)] = -1e9
        row = logits[:, 0]
        row += 1
        logits -= logits.max()
        context[:, :, part] = softmax(xp, logits) @ v[..., part]
    return context


def attend_row_by_row(xp: Any, x: Any, weights: Any) -> Any:
    q, k, v = (xp.stack([one @ weight for one in x]) for weight in weights)
    rows = []
    for query, keys, values in zip(q, k, v, strict=True):
        logits = [xp.stack([xp.dot(row, key) for key in keys]) for row in query]
        rows += [softmax(xp, row) @ values for row in logits]
    return xp.stack(rows).reshape(2, 6, 8)


def attend_with_lists(_: Any, x: Any, weights: Any) -> Any:
    q, k, v = (np.inner(x, one.T) for one in weights)
    logits = np.array([[[sum(a * b for a, b in zip(i, j, strict=True)) for j in k[n]] for i in q[n]] for n in range(2)])
    total = np.divide(logits, 2.0, out=np.zeros_like(logits), where=np.isfinite(logits))
    np.copyto(total[:, :1], logits[:, :1])
    total.sort(-1)
    return [[[float(one) for one in row] for row in np.matmul(softmax(np, total), v)[0]]], total.mean()


def attend_fused(torch: Any, x: Any, weights: Any) -> Any:
    cache = torch.zeros(2, 2, 9, 8, dtype=x.dtype)
    cache[0, :, :6].copy_(x @ weights[1])
    cache[1, :, :6] = x @ weights[2]
    keys, values = cache[:, :, :6].unbind(0)
    query = torch.baddbmm(x, x, weights[:2], beta=0.5, alpha=0.25)
    context = torch.nn.functional.scaled_dot_product_attention(query, keys, values, torch.from_numpy(~HIDDEN))
    pointwise = torch.nn.functional.conv1d(context.mT, weights[0][:, :, None], weights[1, 0])
    return pointwise, context.max(-1), context[:, 1:].as_strided((2, 2, 4), (48, 16, 1))


def attend_with_vmap(_: Any, x: Any, weights: Any) -> Any:
    jax = importlib.import_module("jax")
    over_queries = jax.vmap(lambda q, k, v: jax.nn.softmax(k @ q) @ v, (0, None, None))
    return jax.jit(jax.checkpoint(jax.vmap(over_queries)))(*(x @ one for one in weights)), jax.lax.cumsum(x[0])


CALLS = {
    "torch": (attend_with_matmul, attend_with_einsum, attend_in_place, attend_row_by_row, attend_fused),
    "numpy": (attend_with_matmul, attend_with_einsum, attend_in_place, attend_row_by_row, attend_with_lists),
    "jax": (attend_with_matmul, attend_with_einsum, attend_row_by_row, attend_with_vmap),
}  # fmt: skip


def multiply(operation: Operation, product: Product) -> Array:
    others = [one for index, one in enumerate(operation.inputs) if index not in (product.left, product.right)]
    bias = 0 if not others else others[0][:, None] if operation.name == "convolution" else others[0]
    subscripts = "{},{}->{}".format(*product.subscripts)
    return np.asarray(np.einsum(subscripts, operation.inputs[product.left], operation.inputs[product.right]) + bias)


def find_sources(trace: Trace, start: Producer) -> set[Producer]:
    found = {start}
    for index in reversed(range(len(trace.operations))):
        found |= set(trace.operations[index].producers) if index in found else set()
    return found


@pytest.mark.long
@pytest.mark.parametrize(("library", "call"), [(library, call) for library, calls in CALLS.items() for call in calls])
def test_a_trace_repeats_the_call(library: str, call: Callable[..., Any]) -> None:
    module, convert = load(library)
    inputs, cache = {"x": convert(X), "weights": convert(WEIGHTS)}, dict[Any, Any]()
    expected = [one.detach() if library == "torch" else one for one in collect_arrays(call(module, **inputs)).values()]
    for _ in range(2):
        trace = record_with(library, lambda arrays: call(module, **arrays), inputs, cache)
    for (_, actual), output in zip(trace.outputs, expected, strict=True):
        np.testing.assert_allclose(actual, output, rtol=1e-4 if library == "jax" else 1e-10, atol=1e-5)
    assert {"x", "weights"} <= {source for producer, _ in trace.outputs for source in find_sources(trace, producer)}
    for index, operation in enumerate(trace.operations):
        np.testing.assert_allclose(operation.redo(operation.inputs), operation.output, rtol=1e-12, atol=1e-12)
        for producer, array in zip(operation.producers, operation.inputs, strict=True):
            made = trace.operations[:index][producer].output if isinstance(producer, int) else array
            np.testing.assert_array_equal(made, array)
        if operation.product is not None:
            actual = multiply(operation, operation.product)
            np.testing.assert_allclose(actual, operation.output, rtol=1e-10, atol=1e-10)
    assert len([one for one in trace.operations if one.product is not None]) >= 2


@pytest.mark.parametrize("library", CALLS)
def test_large_arrays_end_the_trail(library: str) -> None:
    _, convert = load(library)
    inputs = {"x": convert(X[:1]), "big": convert(np.full((8, 300_000), 0.5))}
    trace = record_with(library, lambda arrays: (arrays["x"] @ arrays["big"]) * 2, inputs)
    products = [one for one in trace.operations if one.product is not None]
    assert [(one.producers[1], one.inputs[1].shape) for one in products] == [(None, (8, 300_000))]
    assert trace.outputs[0][0] == len(trace.operations) - 1
