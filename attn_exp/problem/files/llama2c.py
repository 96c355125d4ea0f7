"""Files of llama2.c, such as stories15M.bin: seven whole numbers, then every array as float32, one after the other.

Source: karpathy/llama2.c, `export.py` (`legacy_export`, version 0) and `run.c`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attn_exp import machine
from attn_exp.errors import UserError
from attn_exp.problem.files.safetensors import Tensor

HEADER = struct.Struct("<7i")
SIZES = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "vocab_size", "max_position_embeddings",
)  # fmt: skip
"""What the seven numbers are, as config.json calls them; a vocabulary below 0 has an output layer of its own."""

MOST_LAYERS = 10_000


def opened(path: Path, key: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the settings as a config.json would say them, and the tensors by the names of Llama checkpoints.

    Raises:
        UserError: sizes that do not go together, or a file of another length than they say.
    """
    with machine.opened(path) as file:
        length = file.seek(0, 2)
        file.seek(0)
        header = file.read(HEADER.size)
    if length < HEADER.size:
        raise UserError(f"{key}: {length} bytes, too short for a llama2.c file")
    config: dict[str, Any] = dict(zip(SIZES, HEADER.unpack(header), strict=True))
    apart = config["vocab_size"] < 0
    config["vocab_size"] = abs(config["vocab_size"])
    check_sizes(config, key)
    tensors, end = {}, HEADER.size
    for name, shape in arrays(config, apart):
        tensors[name] = Tensor(path, name, "F32", shape, end)
        end += tensors[name].nbytes
    if end != length:
        raise UserError(f"{key}: its header describes {end:,} bytes, and the file has {length:,}: no llama2.c file?")
    return {**config, "model_type": "llama2.c"}, tensors


def check_sizes(config: dict[str, Any], key: str) -> None:
    """Refuse sizes of no model."""
    dim, layers, heads, groups = (config[SIZES[place]] for place in (0, 2, 3, 4))
    even = min(config.values()) > 0 and dim % heads == 0 and heads % groups == 0 and dim // heads % 2 == 0
    if not even or layers > MOST_LAYERS:
        numbers = ", ".join(f"{name}={value}" for name, value in config.items())
        raise UserError(f"{key}: no llama2.c file of version 0: {numbers}")


def arrays(config: dict[str, Any], apart: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield every array in the order of the file: each kind for all layers, then the next kind."""
    dim, hidden, layers, heads, groups, vocabulary, longest = (config[name] for name in SIZES)
    size = dim // heads
    yield "model.embed_tokens.weight", (vocabulary, dim)
    kinds = {
        "input_layernorm": (dim,),
        "self_attn.q_proj": (heads * size, dim),
        "self_attn.k_proj": (groups * size, dim),
        "self_attn.v_proj": (groups * size, dim),
        "self_attn.o_proj": (dim, heads * size),
        "post_attention_layernorm": (dim,),
        "mlp.gate_proj": (hidden, dim),
        "mlp.down_proj": (dim, hidden),
        "mlp.up_proj": (hidden, dim),
    }
    for name, shape in kinds.items():
        yield from ((f"model.layers.{number}.{name}.weight", shape) for number in range(layers))
    yield "model.norm.weight", (dim,)
    yield "cosines", (longest, size // 2)
    yield "sines", (longest, size // 2)
    if apart:
        yield "lm_head.weight", (vocabulary, dim)
