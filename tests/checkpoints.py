"""Tiny checkpoints of random numbers, for tests that need a model and no library to make one."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

DIM, HIDDEN, LAYERS, HEADS, GROUPS, WORDS, LONGEST = 8, 12, 2, 2, 1, 5, 16
"""The sizes of `write_tiny_model`, in the order of its header."""


def write_tiny_model(path: Path) -> None:
    """Write a file of llama2.c."""
    half = DIM // HEADS // 2
    layer = DIM * (2 * DIM + 2 * GROUPS * DIM // HEADS + 3 * HIDDEN + 2)
    count = WORDS * DIM + LAYERS * layer + DIM + 2 * LONGEST * half
    header = struct.pack("<7i", DIM, HIDDEN, LAYERS, HEADS, GROUPS, WORDS, LONGEST)
    path.write_bytes(header + np.random.default_rng(0).normal(0, 0.5, count).astype("<f4").tobytes())


BERT = {
    "model_type": "bert", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12,
    "vocab_size": 10, "max_position_embeddings": 6,
}  # fmt: skip
"""A config.json."""


def write_bert(folder: Path, **changed: Any) -> None:
    """Write a folder with config.json and model.safetensors of a BERT; `changed` is said in config.json alone."""
    stream, arrays = np.random.default_rng(0), {}
    for name, shape in shapes_of_bert():
        arrays[name] = stream.normal(0, 0.5, shape).astype(np.float32)
    save_file(arrays, folder / "model.safetensors")
    settings = {name: value for name, value in (BERT | changed).items() if value is not None}
    (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")


def shapes_of_bert() -> list[tuple[str, tuple[int, ...]]]:
    """Return the name and shape of each tensor."""
    shapes = [
        ("embeddings.word_embeddings.weight", (10, 8)),
        ("embeddings.position_embeddings.weight", (6, 8)),
        ("embeddings.token_type_embeddings.weight", (2, 8)),
        ("embeddings.LayerNorm.weight", (8,)),
        ("embeddings.LayerNorm.bias", (8,)),
    ]
    for number in range(2):
        layer = f"encoder.layer.{number}."
        linear = dict.fromkeys(("attention.self.query", "attention.self.key", "attention.self.value"), (8, 8))
        linear |= {"attention.output.dense": (8, 8), "intermediate.dense": (12, 8), "output.dense": (8, 12)}
        for name, shape in linear.items():
            shapes += [(f"{layer}{name}.weight", shape), (f"{layer}{name}.bias", shape[:1])]
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes += [(f"{layer}{name}.{kind}", (8,)) for kind in ("weight", "bias")]
    return shapes
