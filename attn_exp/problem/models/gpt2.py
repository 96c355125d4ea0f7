"""GPT-2: no token sees a later one; norms come before; queries, keys and values lie side by side in one matrix.

Source: Radford et al. 2019; names as `transformers` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attn_exp.arrays import Array
from attn_exp.problem.files.checkpoint import Checkpoint
from attn_exp.problem.models._parts import activation, attend, layer_norm, linear, named, places, words
from attn_exp.problem.models.model import Layer, Model


def depth(checkpoint: Checkpoint) -> int:
    """Return how many layers there are."""
    return checkpoint.size("n_layer", "num_hidden_layers")


def forward(checkpoint: Checkpoint, ids: Array) -> Iterator[Layer]:
    """Yield each layer: `h += attention(norm(h))`, then `h += dense(gelu(dense(norm(h))))`."""
    heads = checkpoint.size("n_head", "num_attention_heads")
    epsilon = checkpoint.number("layer_norm_epsilon", default=1e-5)
    bend = activation(checkpoint, "activation_function", "gelu_new")
    h = words(checkpoint, "wte.weight", ids)
    width = h.shape[1]
    h = h + places(checkpoint, "wpe.weight", width, np.arange(len(ids)))
    for number in range(depth(checkpoint)):
        part = checkpoint.at(f"h.{number}.")
        x = layer_norm(h, part, "ln_1", epsilon)
        layer = Layer(x, attention(part, width), heads, scale(checkpoint, width // heads, number), {"causal": {}})
        yield layer
        h = h + attend(layer)
        wide = bend(linear(layer_norm(h, part, "ln_2", epsilon), *conv(part, "mlp.c_fc", width, -1)))
        h = h + linear(wide, *conv(part, "mlp.c_proj", wide.shape[1], width))


def attention(part: Checkpoint, width: int) -> dict[str, Array]:
    """Return the arrays of a layer; W_q, W_k and W_v are thirds of one."""
    weights, biases = conv(part, "attn.c_attn", width, 3 * width)
    thirds = zip(np.split(weights, 3, axis=1), np.split(biases, 3), strict=True)
    return named(*thirds, conv(part, "attn.c_proj", width, width))


def conv(part: Checkpoint, name: str, inputs: int, outputs: int) -> tuple[Array, Array]:
    """Return W `[m n]` and b `[n]` of a `Conv1D`, which stores W as it is multiplied."""
    weight = part.array(f"{name}.weight", inputs, outputs)
    return weight, part.array(f"{name}.bias", weight.shape[1])


def scale(checkpoint: Checkpoint, size: int, number: int) -> bool | float:
    """Return what scores are multiplied by; some models divide them by the number of the layer, counted from 1, too."""
    divided = checkpoint.setting("scale_attn_weights", default=True)
    if not checkpoint.setting("scale_attn_by_inverse_layer_idx", default=False):
        return bool(divided)
    return float((size**-0.5 if divided else 1) / (number + 1))


MODEL = Model(types=("gpt2",), anchor="wte.weight", depth=depth, forward=forward)
