"""Attention as libraries compute it, in a process of their own: `python -m tests.experiment.libraries NAME IN OUT`,
or several of these.

IN and OUT are .npz files: `<number>/<name>` of each case, and `<number>` of its answer `[t h*e]`. A case is `q`
`[t h*d]`, `k` `[s h*d]`, `v` `[s h*e]`, `head`, `mask` `[t s]` with True = may attend, `causal`, and `length`, how many
keys are no filler.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

Case = dict[str, Any]


def split(array: Any, count: int) -> Any:
    """Return heads `[h t d]` of an array that holds them side by side."""
    return array.reshape(len(array), count, -1).swapaxes(0, 1)


def side_by_side(heads: Any) -> Any:
    """Return `[t h*e]` of heads `[h t e]`."""
    return np.asarray(heads).swapaxes(0, 1).reshape(np.shape(heads)[1], -1)


def lower(rows: int, keys: int) -> Any:
    """Return the causal mask of a first query beside the first key."""
    return np.arange(keys) <= np.arange(rows)[:, None]


def torch_sdpa(case: Case) -> Any:
    """Compute PyTorch's function; it takes a mask or is causal, so both go into one mask."""
    import torch  # noqa: PLC0415 - one library a process

    q, k, v = (torch.from_numpy(split(case[name], int(case["head"]))) for name in "qkv")
    mask, causal = case["mask"], bool(case["causal"])
    plain = causal and bool(mask.all())
    both = torch.from_numpy(mask & lower(*mask.shape) if causal else mask)
    attend = torch.nn.functional.scaled_dot_product_attention
    return side_by_side(attend(q, k, v, attn_mask=None if plain else both, is_causal=plain))


def torch_mha(case: Case, need_weights: bool = True) -> Any:
    """Compute PyTorch's layer, its projections the identity; True in its mask blocks."""
    import torch  # noqa: PLC0415

    width = case["q"].shape[1]
    layer = torch.nn.MultiheadAttention(width, int(case["head"]), bias=False, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.eye(width).repeat(3, 1))
        layer.out_proj.weight.copy_(torch.eye(width))
    q, k, v = (torch.from_numpy(case[name])[None] for name in "qkv")
    mask = case["mask"] & lower(*case["mask"].shape) if case["causal"] else case["mask"]
    output, _ = layer(q, k, v, attn_mask=torch.from_numpy(~mask), need_weights=need_weights)
    return output[0].detach().numpy()


def jax(case: Case) -> Any:
    """Compute JAX's function."""
    import jax.nn  # noqa: PLC0415

    q, k, v = (split(case[name], int(case["head"])).swapaxes(0, 1)[None] for name in "qkv")
    mask = case["mask"][None, None]
    context = jax.nn.dot_product_attention(q, k, v, mask=mask, is_causal=bool(case["causal"]))
    return np.asarray(context)[0].reshape(len(case["q"]), -1)


def keras(case: Case, scores: bool = False) -> Any:
    """Compute Keras' layer of many heads, its projections the identity."""
    import keras  # noqa: PLC0415

    width, heads = case["q"].shape[1], int(case["head"])
    layer = keras.layers.MultiHeadAttention(heads, width // heads, use_bias=False, dtype="float64")
    q, k, v = (case[name][None] for name in "qkv")
    layer.build(q.shape, v.shape, k.shape)
    eye = np.eye(width)
    layer.set_weights([eye.reshape(width, heads, -1)] * 3 + [eye.reshape(heads, -1, width)])
    settings = {"attention_mask": case["mask"][None], "use_causal_mask": bool(case["causal"])}
    found = layer(q, v, key=k, return_attention_scores=scores, **settings)
    return keras.ops.convert_to_numpy(found[0] if scores else found)[0]


def keras_attention(case: Case, dtype: str = "float32") -> Any:
    """Compute Keras' layer of one head, which takes masks of keys and a causal one, in its default type or another."""
    from keras import layers, ops  # noqa: PLC0415

    layer = layers.Attention(dtype=dtype)
    q, k, v = (case[name][None].astype(dtype) for name in "qkv")
    filler = np.arange(len(case["k"])) < case["length"]
    found = layer([q, v, k], mask=[None, filler[None]], use_causal_mask=bool(case["causal"]))
    return ops.convert_to_numpy(found)[0]


def flash(case: Case) -> Any:
    """Compute what FlashAttention's tests hold its kernels to, derived from its README (2.1) by loops.

    Query i of t stands at `i + length - t` among the keys, of which the first `length` are no filler.
    """
    q, k, v = (split(case[name], int(case["head"])) for name in "qkv")
    rows, length = q.shape[1], int(case["length"])
    context = np.zeros((*q.shape[:2], v.shape[-1]))
    for head, row in np.ndindex(*q.shape[:2]):
        last = row + length - rows if case["causal"] else length - 1
        keys = [key for key in range(length) if key <= last]
        if keys:
            logits = np.array([q[head, row] @ k[head, key] for key in keys]) / np.sqrt(q.shape[-1])
            powers = np.exp(np.float32(logits - logits.max()))
            context[head, row] = (powers / powers.sum()) @ v[head, keys]
    return side_by_side(context)


def onnx(case: Case) -> Any:
    """Compute ONNX's operator by its reference code."""
    from onnx import TensorProto, helper  # noqa: PLC0415
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415

    node = helper.make_node("Attention", ["Q", "K", "V", "M"], ["Y"], is_causal=int(case["causal"]))
    names = {"Q": TensorProto.DOUBLE, "K": TensorProto.DOUBLE, "V": TensorProto.DOUBLE, "M": TensorProto.BOOL}
    inputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in names.items()]
    output = helper.make_tensor_value_info("Y", TensorProto.DOUBLE, None)
    model = helper.make_model(
        helper.make_graph([node], "one", inputs, [output]), opset_imports=[helper.make_opsetid("", 24)]
    )
    sides = {name: split(case[name.lower()], int(case["head"]))[None] for name in "QKV"}
    outputs: Any = ReferenceEvaluator(model).run(None, {**sides, "M": case["mask"]})
    return side_by_side(outputs[0][0])


def onnx_old(case: Case) -> Any:
    """Compute ONNX's operator by its reference code of 1.19, the last that gave query head i the head `i mod g`."""
    from onnx import TensorProto, __version__, helper  # noqa: PLC0415
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415

    assert __version__ == "1.19.0", __version__
    settings: Any = {"is_causal": int(case["causal"]), "softcap": float(case["cap"])}
    node = helper.make_node("Attention", ["Q", "K", "V", "M"], ["Y"], **settings)
    inputs = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in "QKVM"]
    output = helper.make_tensor_value_info("Y", TensorProto.DOUBLE, None)
    graph = helper.make_graph([node], "one", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    heads = {"Q": int(case["head"]), "K": int(case["kv_head"]), "V": int(case["kv_head"])}
    sides = {name: split(case[name.lower()], count)[None] for name, count in heads.items()}
    added = np.where(case["mask"], 0.0, -np.inf)  # with a causal mask it made NaN of all that a boolean mask allows
    outputs: Any = ReferenceEvaluator(model).run(None, {**sides, "M": added})
    return side_by_side(outputs[0][0])


def udl(case: Case) -> Any:
    """Compute what the notebook's lines do: exponentials over their sum, 0 over 0 where all are masked."""
    q, k = (split(case[name], int(case["head"])) for name in "qk")
    allowed = case["mask"] & (lower(*case["mask"].shape) | (not case["causal"]))
    powers = np.exp(np.where(allowed, q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]), -np.inf))
    return side_by_side(powers / powers.sum(axis=-1, keepdims=True) @ split(case["v"], len(q)))


def weighed(case: Case, logits: Any) -> Any:
    """Return the output of these logits `[h t s]`, under the case's causal mask."""
    logits = np.where(lower(*logits.shape[1:]) | (not case["causal"]), logits, -np.inf)
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return side_by_side(powers / powers.sum(axis=-1, keepdims=True) @ split(case["v"], len(logits)))


def alibi(case: Case) -> Any:
    """Compute the biases of BLOOM, which grow with the key and so need a causal mask."""
    import torch  # noqa: PLC0415
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor  # noqa: PLC0415

    q, k = (split(case[name], int(case["head"])) for name in "qk")
    bias = build_alibi_tensor(torch.ones(1, k.shape[1]), len(q), torch.float64).numpy()
    return weighed(case, q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]) + bias)


def t5(case: Case) -> Any:
    """Compute the biases of T5, which does not scale."""
    import torch  # noqa: PLC0415
    from transformers.models.t5.modeling_t5 import T5Attention  # noqa: PLC0415

    q, k = (split(case[name], int(case["head"])) for name in "qk")
    ahead = torch.arange(k.shape[1])[None] - torch.arange(q.shape[1])[:, None]
    attention: Any = T5Attention  # its functions have no types
    buckets = attention._relative_position_bucket(ahead, bool(case["bidirectional"]), 32, 128)
    return weighed(case, q @ k.swapaxes(1, 2) + case["table"][buckets.numpy()].transpose(2, 0, 1))


def rope(case: Case) -> Any:
    """Compute the rotary positions of Llama."""
    import torch  # noqa: PLC0415
    from transformers import LlamaConfig  # noqa: PLC0415
    from transformers.models.llama import modeling_llama as llama  # noqa: PLC0415

    q, k = (torch.from_numpy(split(case[name], int(case["head"])))[None] for name in "qk")
    config = LlamaConfig(hidden_size=q.shape[1] * q.shape[-1], num_attention_heads=q.shape[1])
    cos, sin = llama.LlamaRotaryEmbedding(config)(q, torch.arange(q.shape[2])[None])
    turned, _ = llama.apply_rotary_pos_emb(q, q, cos, sin)
    cos, sin = llama.LlamaRotaryEmbedding(config)(k, torch.arange(k.shape[2])[None])
    _, keys = llama.apply_rotary_pos_emb(k, k, cos, sin)
    return weighed(case, (turned @ keys.mT)[0].numpy() / np.sqrt(q.shape[-1]))


LIBRARIES: dict[str, Callable[[Case], Any]] = {
    "torch_sdpa": torch_sdpa,
    "torch_mha": torch_mha,
    "torch_mha_context": partial(torch_mha, need_weights=False),
    "jax": jax,
    "keras": keras,
    "keras_scores": partial(keras, scores=True),
    "keras_attention": keras_attention,
    "keras_attention_float16": partial(keras_attention, dtype="float16"),
    "keras_attention_float64": partial(keras_attention, dtype="float64"),
    "flash": flash,
    "onnx": onnx,
    "onnx_old": onnx_old,
    "udl": udl,
    "alibi": alibi,
    "t5": t5,
    "rope": rope,
}


def main(name: str, cases_file: str, answers_file: str) -> None:
    """Answer every case of a file."""
    with np.load(cases_file) as arrays:
        flat = dict(arrays)
    cases: dict[str, Case] = {}
    for key, array in flat.items():
        number, _, part = key.partition("/")
        cases.setdefault(number, {})[part] = array
    np.savez(answers_file, **{number: LIBRARIES[name](case) for number, case in cases.items()})


if __name__ == "__main__":
    # Keras compiles each shape anew under JAX, and its layer of one head knows all its types there alone.
    backend = "jax" if sys.argv[1].startswith("keras_attention") else "torch"
    os.environ |= {"KERAS_BACKEND": backend, "JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"}
    for start in range(1, len(sys.argv), 3):
        main(*sys.argv[start : start + 3])
