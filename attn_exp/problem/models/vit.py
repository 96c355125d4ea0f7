"""ViT: an image cut into patches, each a token; bidirectional attention, pre-norm.

Source: Dosovitskiy et al. 2020; names as in `transformers`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.errors import UserError
from attn_exp.problem.models._checkpoint import CONFIG, Checkpoint
from attn_exp.problem.models._parts import ACTIVATION, linear
from attn_exp.problem.models.model import (
    EPSILON,
    SIZE,
    SWITCH,
    Block,
    Config,
    Field,
    Fields,
    Kind,
    Model,
    Shapes,
    format_field,
)


def block(config: Config) -> Block:
    """Return the structure of a layer; its output projection always has a bias."""
    return Block(
        "encoder.layer.",
        ("attention.attention.query", "attention.attention.key", "attention.attention.value", "attention.output.dense"),
        ("layernorm_before", "layernorm_after"),
        ("intermediate.dense", "output.dense"),
        biases=(config["qkv_bias"], True, True),
    )


def inputs(config: Config) -> Shapes:
    width, patch = config["hidden_size"], as_pair(config["patch_size"])
    yield "embeddings.cls_token", (1, 1, width)
    yield "embeddings.position_embeddings", (1, math.prod(count_patches(config)) + 1, width)
    yield "embeddings.patch_embeddings.projection.weight", (width, config["num_channels"], *patch)
    yield "embeddings.patch_embeddings.projection.bias", (width,)


def embed(checkpoint: Checkpoint, picture: Array) -> Array:
    """Return the embeddings of the class token and of the patches, each with its position added.

    `picture` holds embedded patches `[n m]`, or pixels `[c y x]`, which are cut and projected here.

    Raises:
        UserError: the image has a different size.
    """
    part = checkpoint.at("embeddings.")
    width, count = part.config["hidden_size"], math.prod(count_patches(part.config))
    class_token = part.array("cls_token")[0]
    patches = project_patches(part, picture) if picture.ndim == 3 else picture.astype(class_token.dtype)
    if patches.shape != (count, width):
        given = " x ".join(map(str, patches.shape))
        raise UserError(f"model.patches holds {given} numbers; the model takes {count} x {width}")
    return np.asarray(np.concatenate([class_token, patches]) + part.array("position_embeddings")[0])


def project_patches(part: Checkpoint, pixels: Array) -> Array:
    """Return `patches W + b` `[n m]` for the patches of an image, row by row."""
    channels = part.config["num_channels"]
    (patch_height, patch_width), (rows, columns) = as_pair(part.config["patch_size"]), count_patches(part.config)
    expected_shape = channels, *as_pair(part.config["image_size"])
    if pixels.shape != expected_shape:
        given, expected = (" x ".join(map(str, shape)) for shape in (pixels.shape, expected_shape))
        raise UserError(f"model.patches holds {given} pixels; the model takes {expected}")
    kernel = part.array("patch_embeddings.projection.weight")
    patches = pixels[:, : rows * patch_height, : columns * patch_width].astype(kernel.dtype)
    patches = patches.reshape(channels, rows, patch_height, columns, patch_width).transpose(1, 3, 0, 2, 4)
    bias = part.array("patch_embeddings.projection.bias")
    return linear(patches.reshape(rows * columns, -1), kernel.reshape(len(kernel), -1).T, bias)


def count_patches(config: Config) -> tuple[int, int]:
    """Return the number of patches in a column and in a row; a remainder at the edges is cut off."""
    (image_height, image_width), (patch_height, patch_width) = (
        as_pair(config["image_size"]),
        as_pair(config["patch_size"]),
    )
    return image_height // patch_height, image_width // patch_width


def as_pair(size: Any) -> tuple[int, int]:
    return (size[0], size[1]) if isinstance(size, list) else (size, size)


def check(config: Config) -> None:
    if not all(count_patches(config)):
        sizes = ", ".join(format_field(name, config[name]) for name in ("image_size", "patch_size"))
        raise UserError(f"{CONFIG} says {sizes}: no patch fits into the image")


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
    },
    check=check,
    same={"is_decoder": (False,), "is_causal": (False,), "head_dim": (None,)},
    harmless="hidden_dropout_prob attention_probs_dropout_prob encoder_stride pooler_act pooler_output_size",
)
MODEL = Model(
    fields={"vit": FIELDS}, anchor="embeddings.cls_token", inputs=inputs, embed=embed, block=block, takes="patches"
)
