"""ViT: a picture cut into patches, each a token; every one sees every other; norms come before.

Source: Dosovitskiy et al. 2020; names as `transformers` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attn_exp.arrays import Array
from attn_exp.errors import UserError
from attn_exp.problem.files.checkpoint import Checkpoint
from attn_exp.problem.models._parts import activation, attend, layer_norm, linear, named
from attn_exp.problem.models.model import Layer, Model

ATTENTION = "attention.query", "attention.key", "attention.value", "output.dense"


def depth(checkpoint: Checkpoint) -> int:
    """Return how many layers there are."""
    return checkpoint.size("num_hidden_layers")


def forward(checkpoint: Checkpoint, picture: Array) -> Iterator[Layer]:
    """Yield each layer: `h += attention(norm(h))`, then `h += dense(gelu(dense(norm(h))))`."""
    heads = checkpoint.size("num_attention_heads")
    epsilon = checkpoint.number("layer_norm_eps", default=1e-12)
    bend = activation(checkpoint, "hidden_act", "gelu")
    h = embedded(checkpoint.at("embeddings."), picture)
    width = h.shape[1]
    for number in range(depth(checkpoint)):
        part = checkpoint.at(f"encoder.layer.{number}.")
        x = layer_norm(h, part, "layernorm_before", epsilon)
        layer = Layer(x, named(*(part.at("attention.").linear(name, width, width) for name in ATTENTION)), heads)
        yield layer
        h = h + attend(layer)
        wide = bend(linear(layer_norm(h, part, "layernorm_after", epsilon), *part.linear("intermediate.dense", width)))
        h = h + linear(wide, *part.linear("output.dense", wide.shape[1], width))


def embedded(part: Checkpoint, picture: Array) -> Array:
    """Return the vectors of the class token and of the patches, each with its place added.

    `picture` holds embedded patches `[n m]`, or pixels `[c y x]`, which are cut and projected here.
    """
    class_token = part.array("cls_token", 1, 1, -1)[0]
    width = class_token.shape[1]
    patches = projected(part, picture, width) if picture.ndim == 3 else picture.astype(class_token.dtype)
    places = part.array("position_embeddings", 1, -1, width)[0]
    if patches.shape != (len(places) - 1, width):
        given = " x ".join(map(str, patches.shape))
        raise UserError(f"model.patches holds {given} numbers; the model takes {len(places) - 1} x {width}")
    return np.asarray(np.concatenate([class_token, patches]) + places)


def projected(part: Checkpoint, pixels: Array, width: int) -> Array:
    """Return `patches W + b` `[n m]` of the squares of a picture, from left to right, then down."""
    kernel = part.array("patch_embeddings.projection.weight", width, len(pixels), -1, -1)
    high, wide = kernel.shape[2:]
    down, across = pixels.shape[1] // high, pixels.shape[2] // wide
    if pixels.shape[1:] != (down * high, across * wide):
        raise UserError(
            f"model.patches holds {pixels.shape[1]} x {pixels.shape[2]} pixels; {high} x {wide} are a patch"
        )
    cut = pixels.astype(kernel.dtype).reshape(len(pixels), down, high, across, wide).transpose(1, 3, 0, 2, 4)
    bias = part.array("patch_embeddings.projection.bias", width)
    return linear(cut.reshape(down * across, -1), kernel.reshape(width, -1).T, bias)


MODEL = Model(types=("vit",), anchor="embeddings.cls_token", depth=depth, forward=forward, takes="patches")
