"""ViT: a picture cut into patches, each a token; every one sees every other; norms come before.

Source: Dosovitskiy et al. 2020; names as `transformers` writes them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.errors import UserError
from attn_exp.problem.files.checkpoint import CONFIG, Checkpoint
from attn_exp.problem.models._fields import (
    EPSILON,
    RATE,
    SIZE,
    SWITCH,
    WORD,
    Config,
    Field,
    Fields,
    Kind,
    check_heads,
    names,
    or_null,
    said_of,
)
from attn_exp.problem.models._parts import ACTIVATION, ACTIVATIONS, attend, layer_norm, linear, named
from attn_exp.problem.models.model import Layer, Model


def forward(checkpoint: Checkpoint, picture: Array) -> Iterator[Layer]:
    """Yield each layer: `h += attention(norm(h))`, then `h += dense(gelu(dense(norm(h))))`."""
    config = checkpoint.config
    width, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    epsilon, bend = config["layer_norm_eps"], ACTIVATIONS[config["hidden_act"]]
    h = embedded(checkpoint.at("embeddings."), picture)
    for number in range(config["num_hidden_layers"]):
        part = checkpoint.at(f"encoder.layer.{number}.")
        x = layer_norm(h, part, "layernorm_before", epsilon)
        layer = Layer(x, attention(part.at("attention."), width, config["qkv_bias"]), heads)
        yield layer
        h = h + attend(layer)
        x = layer_norm(h, part, "layernorm_after", epsilon)
        wide = bend(linear(x, *part.linear("intermediate.dense", width, inner)))
        h = h + linear(wide, *part.linear("output.dense", inner, width))


def attention(part: Checkpoint, width: int, bias: bool) -> dict[str, Array]:
    """Return the arrays of a layer; that of the output always has a bias."""
    sides = (part.linear(f"attention.{name}", width, width, bias=bias) for name in ("query", "key", "value"))
    return named(*sides, part.linear("output.dense", width, width))


def embedded(part: Checkpoint, picture: Array) -> Array:
    """Return the vectors of the class token and of the patches, each with its place added.

    `picture` holds embedded patches `[n m]`, or pixels `[c y x]`, which are cut and projected here.

    Raises:
        UserError: a picture of another size.
    """
    width, count = part.config["hidden_size"], math.prod(grid(part.config))
    class_token = part.array("cls_token", 1, 1, width)[0]
    patches = projected(part, picture) if picture.ndim == 3 else picture.astype(class_token.dtype)
    if patches.shape != (count, width):
        given = " x ".join(map(str, patches.shape))
        raise UserError(f"model.patches holds {given} numbers; the model takes {count} x {width}")
    return np.asarray(
        np.concatenate([class_token, patches]) + part.array("position_embeddings", 1, count + 1, width)[0]
    )


def projected(part: Checkpoint, pixels: Array) -> Array:
    """Return `patches W + b` `[n m]` of the squares of a picture, from left to right, then down."""
    width, channels = part.config["hidden_size"], part.config["num_channels"]
    (tall, wide), (down, across) = pair(part.config["patch_size"]), grid(part.config)
    size = channels, *pair(part.config["image_size"])
    if pixels.shape != size:
        given, wanted = (" x ".join(map(str, shape)) for shape in (pixels.shape, size))
        raise UserError(f"model.patches holds {given} pixels; the model takes {wanted}")
    kernel = part.array("patch_embeddings.projection.weight", width, channels, tall, wide)
    cut = pixels[:, : down * tall, : across * wide].astype(kernel.dtype)
    cut = cut.reshape(channels, down, tall, across, wide).transpose(1, 3, 0, 2, 4)
    bias = part.array("patch_embeddings.projection.bias", width)
    return linear(cut.reshape(down * across, -1), kernel.reshape(width, -1).T, bias)


def grid(config: Config) -> tuple[int, int]:
    """Return how many patches a picture has down and across; what is left over at its edges is not seen."""
    (high, broad), (tall, wide) = pair(config["image_size"]), pair(config["patch_size"])
    return high // tall, broad // wide


def pair(size: Any) -> tuple[int, int]:
    """Return height and width, which may be said by one number."""
    return (size[0], size[1]) if isinstance(size, list) else (size, size)


def check(config: Config) -> None:
    """Refuse sizes that do not go together."""
    check_heads(config)
    if not all(grid(config)):
        said = ", ".join(said_of(name, config[name]) for name in ("image_size", "patch_size"))
        raise UserError(f"{CONFIG} says {said}: no patch fits into the picture")
    if config["head_dim"] not in (None, config["hidden_size"] // config["num_attention_heads"]):
        raise UserError(f"{CONFIG} says head_dim={config['head_dim']}; a head of a ViT has hidden_size over the heads")
    if config["pooler_output_size"] not in (None, config["hidden_size"]):
        raise UserError(f"{CONFIG} says pooler_output_size={config['pooler_output_size']}; expected hidden_size")


SIDES = Kind(
    "a size, or [height,width]",
    lambda value: SIZE.fits(value) or (isinstance(value, list) and len(value) == 2 and all(map(SIZE.fits, value))),
)
FIELDS = Fields(
    read={
        "hidden_size": Field(768, SIZE),
        "num_hidden_layers": Field(12, SIZE),
        "num_attention_heads": Field(12, SIZE),
        "intermediate_size": Field(3072, SIZE),
        "hidden_act": Field("gelu", ACTIVATION),
        "layer_norm_eps": Field(1e-12, EPSILON),
        "image_size": Field(224, SIDES),
        "patch_size": Field(16, SIDES),
        "num_channels": Field(3, SIZE),
        "qkv_bias": Field(True, SWITCH),
        "head_dim": Field(None, SIZE),
        "pooler_output_size": Field(None, or_null(SIZE)),
    },
    check=check,
    same={"is_decoder": (False,), "is_causal": (False,)},
    harmless={
        **names(RATE, "hidden_dropout_prob attention_probs_dropout_prob"),
        "encoder_stride": SIZE,
        "pooler_act": WORD,
    },
)
MODEL = Model(fields={"vit": FIELDS}, anchor="embeddings.cls_token", forward=forward, takes="patches")
