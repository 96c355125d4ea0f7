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
    Config,
    Field,
    Fields,
    Kind,
    check_heads,
    names,
    or_null,
    said_of,
)
from attn_exp.problem.models._parts import ACTIVATION, ACTIVATIONS, attend, dense, layer_norm, linear, named, norm
from attn_exp.problem.models.model import Layer, Model, Shapes

ATTENTION = "attention.query", "attention.key", "attention.value", "output.dense"


def shapes(config: Config) -> Shapes:
    """Yield every tensor and its shape; the output of an attention always has a bias."""
    width, inner, patch = config["hidden_size"], config["intermediate_size"], pair(config["patch_size"])
    yield "embeddings.cls_token", (1, 1, width)
    yield "embeddings.position_embeddings", (1, math.prod(grid(config)) + 1, width)
    yield "embeddings.patch_embeddings.projection.weight", (width, config["num_channels"], *patch)
    yield "embeddings.patch_embeddings.projection.bias", (width,)
    for number in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{number}."
        yield from norm(f"{at}layernorm_before", width)
        for name in ATTENTION:
            yield from dense(f"{at}attention.{name}", width, width, bias=config["qkv_bias"] or name == ATTENTION[3])
        yield from norm(f"{at}layernorm_after", width)
        yield from dense(f"{at}intermediate.dense", width, inner)
        yield from dense(f"{at}output.dense", inner, width)


def forward(checkpoint: Checkpoint, picture: Array) -> Iterator[Layer]:
    """Yield each layer: `h += attention(norm(h))`, then `h += dense(gelu(dense(norm(h))))`."""
    config = checkpoint.config
    epsilon, bend = config["layer_norm_eps"], ACTIVATIONS[config["hidden_act"]]
    h = embedded(checkpoint.at("embeddings."), picture)
    for number in range(config["num_hidden_layers"]):
        part = checkpoint.at(f"encoder.layer.{number}.")
        x = layer_norm(h, part, "layernorm_before", epsilon)
        layer = Layer(x, named(*map(part.at("attention.").linear, ATTENTION)), config["num_attention_heads"])
        yield layer
        h = h + attend(layer)
        wide = bend(linear(layer_norm(h, part, "layernorm_after", epsilon), *part.linear("intermediate.dense")))
        h = h + linear(wide, *part.linear("output.dense"))


def embedded(part: Checkpoint, picture: Array) -> Array:
    """Return the vectors of the class token and of the patches, each with its place added.

    `picture` holds embedded patches `[n m]`, or pixels `[c y x]`, which are cut and projected here.

    Raises:
        UserError: a picture of another size.
    """
    width, count = part.config["hidden_size"], math.prod(grid(part.config))
    class_token = part.array("cls_token")[0]
    patches = projected(part, picture) if picture.ndim == 3 else picture.astype(class_token.dtype)
    if patches.shape != (count, width):
        given = " x ".join(map(str, patches.shape))
        raise UserError(f"model.patches holds {given} numbers; the model takes {count} x {width}")
    return np.asarray(np.concatenate([class_token, patches]) + part.array("position_embeddings")[0])


def projected(part: Checkpoint, pixels: Array) -> Array:
    """Return `patches W + b` `[n m]` of the squares of a picture, from left to right, then down."""
    channels = part.config["num_channels"]
    (tall, wide), (down, across) = pair(part.config["patch_size"]), grid(part.config)
    size = channels, *pair(part.config["image_size"])
    if pixels.shape != size:
        given, wanted = (" x ".join(map(str, shape)) for shape in (pixels.shape, size))
        raise UserError(f"model.patches holds {given} pixels; the model takes {wanted}")
    kernel = part.array("patch_embeddings.projection.weight")
    cut = pixels[:, : down * tall, : across * wide].astype(kernel.dtype)
    cut = cut.reshape(channels, down, tall, across, wide).transpose(1, 3, 0, 2, 4)
    bias = part.array("patch_embeddings.projection.bias")
    return linear(cut.reshape(down * across, -1), kernel.reshape(len(kernel), -1).T, bias)


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
        "pooler_act": Kind("tanh or another activation", lambda value: value == "tanh" or ACTIVATION.fits(value)),
    },
)
MODEL = Model(fields={"vit": FIELDS}, anchor="embeddings.cls_token", shapes=shapes, forward=forward, takes="patches")
