"""GPT-2: no token sees a later one; norms come before; queries, keys and values lie side by side in one matrix.

Source: Radford et al. 2019; names as `transformers` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.problem.files.checkpoint import Checkpoint
from attn_exp.problem.models._fields import (
    ANYTHING,
    COUNT,
    EPSILON,
    RATE,
    SIZE,
    SWITCH,
    Config,
    Field,
    Fields,
    check_heads,
    names,
    or_null,
)
from attn_exp.problem.models._parts import ACTIVATION, ACTIVATIONS, attend, layer_norm, linear, named, norm, places
from attn_exp.problem.models.model import Layer, Model, Shapes


def shapes(config: Config) -> Shapes:
    """Yield every tensor and its shape."""
    width = config["hidden_size"]
    inner = 4 * width if config["n_inner"] is None else config["n_inner"]
    yield "wte.weight", (config["vocab_size"], width)
    yield "wpe.weight", (config["max_position_embeddings"], width)
    sizes = {"attn.c_attn": (width, 3 * width), "attn.c_proj": (width, width)}
    sizes |= {"mlp.c_fc": (width, inner), "mlp.c_proj": (inner, width)}
    for number in range(config["num_hidden_layers"]):
        yield from norm(f"h.{number}.ln_1", width)
        yield from norm(f"h.{number}.ln_2", width)
        for name, (inputs, outputs) in sizes.items():
            yield f"h.{number}.{name}.weight", (inputs, outputs)
            yield f"h.{number}.{name}.bias", (outputs,)


def forward(checkpoint: Checkpoint, ids: Array) -> Iterator[Layer]:
    """Yield each layer: `h += attention(norm(h))`, then `h += dense(gelu(dense(norm(h))))`."""
    config = checkpoint.config
    heads, epsilon = config["num_attention_heads"], config["layer_norm_epsilon"]
    bend = ACTIVATIONS[config["activation_function"]]
    h = checkpoint.array("wte.weight", ids)
    h = h + places(checkpoint, "wpe.weight", np.arange(len(ids)))
    for number in range(config["num_hidden_layers"]):
        part = checkpoint.at(f"h.{number}.")
        x = layer_norm(h, part, "ln_1", epsilon)
        mask: dict[str, Any] = {"causal": {}} if config["is_causal"] else {}
        layer = Layer(x, attention(part), heads, scale(config, number), mask)
        yield layer
        h = h + attend(layer)
        wide = bend(linear(layer_norm(h, part, "ln_2", epsilon), *conv(part, "mlp.c_fc")))
        h = h + linear(wide, *conv(part, "mlp.c_proj"))


def attention(part: Checkpoint) -> dict[str, Array]:
    """Return the arrays of a layer; W_q, W_k and W_v are thirds of one."""
    weights, biases = conv(part, "attn.c_attn")
    thirds = zip(np.split(weights, 3, axis=1), np.split(biases, 3), strict=True)
    return named(*thirds, conv(part, "attn.c_proj"))


def conv(part: Checkpoint, name: str) -> tuple[Array, Array]:
    """Return W `[m n]` and b `[n]` of a `Conv1D`, which stores W as it is multiplied."""
    return part.array(f"{name}.weight"), part.array(f"{name}.bias")


def scale(config: Config, number: int) -> bool | float:
    """Return what scores are multiplied by; some models divide them by the number of the layer, counted from 1, too."""
    divided: bool = config["scale_attn_weights"]
    if not config["scale_attn_by_inverse_layer_idx"]:
        return divided
    size = config["hidden_size"] // config["num_attention_heads"]
    return float((size**-0.5 if divided else 1) / (number + 1))


FIELDS = Fields(
    read={
        "vocab_size": Field(50257, SIZE),
        "max_position_embeddings": Field(1024, SIZE, "n_positions max_position_embeddings"),
        "hidden_size": Field(768, SIZE, "n_embd hidden_size"),
        "num_hidden_layers": Field(12, SIZE, "n_layer num_hidden_layers"),
        "num_attention_heads": Field(12, SIZE, "n_head num_attention_heads"),
        "n_inner": Field(None, or_null(SIZE)),
        "activation_function": Field("gelu_new", ACTIVATION),
        "layer_norm_epsilon": Field(1e-5, EPSILON),
        "scale_attn_weights": Field(True, SWITCH),
        "scale_attn_by_inverse_layer_idx": Field(False, SWITCH),
        "is_causal": Field(True, SWITCH),
    },
    check=check_heads,
    harmless={
        **names(RATE, "resid_pdrop embd_pdrop attn_pdrop summary_first_dropout"),
        **names(SWITCH, "is_decoder reorder_and_upcast_attn summary_use_proj summary_proj_to_labels"),
        **names(ANYTHING, "summary_type summary_activation predict_special_tokens n_special"),
        "n_ctx": COUNT,
    },
)
MODEL = Model(fields={"gpt2": FIELDS}, anchor="wte.weight", shapes=shapes, forward=forward)
