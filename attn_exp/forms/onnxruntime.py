"""ONNX Runtime's operator `Attention` on the CPU, in float32: one more row to compare with, if it is installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.forms._blocks.threads import default_threads
from attn_exp.forms.form import Form
from attn_exp.forms.torch_sdpa import find_unsupported, merge_masks_and_biases
from attn_exp.forms.trace import Trace
from attn_exp.rules.rules import Rules

DTYPE = "float32"
"""The widest type that the operator computes in; wider inputs are rounded to it."""

OLDEST_VERSION = (1, 28)
"""Older versions give a query that sees no key the mean of all values. Up to 1.26, they cap logits after masking."""

OPSET, IR_VERSION = 24, 10


def attend(q: Array, k: Array, v: Array | None, rules: Rules) -> Trace:
    """Compute the context with a model of one operator; masks and biases are passed as one array `[... h t s]`.

    Shapes as in `matrix`. The output has the input's dtype, but is no more precise than float32. The operator requires
    a scale above 0, and at least one query and key. For a negative scale, the queries change sign instead. Without
    keys, the context is zero.

    Source: ONNX, operator `Attention`, opset 24; onnxruntime, `core/providers/cpu/llm/attention.cc`.
    """
    if v is None:
        return Trace(q=q, k=k)
    dtype = q.dtype if q.dtype == np.float16 else np.dtype(DTYPE)
    if 0 in (*q.shape[:-1], *v.shape):
        return Trace(q=q, k=k, v=v, context=np.zeros((*q.shape[:-1], v.shape[-1]), q.dtype))
    with np.errstate(over="ignore"):  # values too large for the type become infinite
        signed, keys, values = (array.astype(dtype) for array in (q * np.sign(rules.scale), k, v))
    inputs = {"Q": fill_empty_heads(signed), "K": fill_empty_heads(keys), "V": values}
    mask = merge_masks_and_biases(inputs["Q"], keys, rules)
    inputs |= {} if mask is None else {"attn_mask": mask}
    batched = {name: array if array.ndim == 4 else array[None] for name, array in inputs.items()}
    (output,) = make_session(batched, rules).run(None, batched)
    context = output.reshape(*q.shape[:-1], v.shape[-1])
    return Trace(q=q, k=k, v=v, context=context.astype(q.dtype, copy=False))


def refuses(rules: Rules) -> str | None:
    """Return why this form cannot run, or None: a package is missing, or the operator cannot express a rule."""
    if not find_spec("onnxruntime") or not find_spec("onnx"):
        return "ONNX Runtime is not installed: pip install onnxruntime onnx"
    import onnxruntime  # noqa: PLC0415 - only if this form is used

    version = onnxruntime.__version__
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_VERSION:
        return f"ONNX Runtime {version} misreads masks: pip install 'onnxruntime>={'.'.join(map(str, OLDEST_VERSION))}'"
    return find_unsupported(rules, "ONNX's operator", caps=1, dtype=DTYPE)


def fill_empty_heads(heads: Array) -> Array:
    """Replace heads of size 0 with heads of a single 0: the logits are 0 as well, and the operator accepts them."""
    return heads if heads.shape[-1] else np.zeros((*heads.shape[:-1], 1), heads.dtype)


def make_session(inputs: dict[str, Array], rules: Rules) -> Any:
    import onnxruntime  # noqa: PLC0415 - only if this form is used
    from onnx import helper  # noqa: PLC0415

    scale = float(abs(rules.scale)) or 1.0
    cap = next((cap for rule in rules.scores if (cap := rule.bound()) is not None), 0.0)
    types = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in inputs.items()}
    values = [helper.make_tensor_value_info(name, dtype, None) for name, dtype in types.items()]
    output = helper.make_tensor_value_info("Y", types["Q"], None)
    node = helper.make_node("Attention", list(inputs), ["Y"], scale=scale, softcap=float(cap))
    graph = helper.make_graph([node], "attention", values, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    options = onnxruntime.SessionOptions()
    # by default it uses all cores, even those that the process may not use
    options.intra_op_num_threads = default_threads()
    options.log_severity_level = 4  # errors are raised, so they need not also be printed
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


FORM = Form(
    attend,
    refuses,
    dtype=DTYPE,
    matrices=2,  # the logits and the mask
    library="onnxruntime",
    mix=None,
    context_alone=True,
    leaks="ONNX Runtime gives a masked key the weight 0, and 0 times NaN or infinity is NaN",
)
