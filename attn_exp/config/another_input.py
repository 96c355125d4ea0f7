"""The kind of a setting that describes another input, as the embeddings describe the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from attn_exp.config.fields import section
from attn_exp.config.kinds import Kind, is_whole, refuse

MEMORY = "embeddings.memory"
"""The setting of this kind."""
FILES = (".csv", ".json", ".npy", ".npz", ".safetensors", ".tsv", ".txt")
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
"""Ends of words that name a file; a pickle is none that is read, and none that is a word."""
EXPECTED = "how many tokens, words, vectors such as [[1,0],[0,1]], a file, or settings such as {tokens: 3}"


def another_input(schema: Callable[[], type]) -> Kind:
    """Take settings of an input, or short for them: how many tokens, words, vectors, or a file."""

    def read(value: Any, key: str) -> Any:
        return section(schema()).read(value if isinstance(value, Mapping) else meant(value, key), key)

    return Kind(read)


def meant(value: Any, key: str) -> dict[str, Any]:
    """Return the settings that a short form stands for."""
    if is_whole(value):
        return {"tokens": value}
    if isinstance(value, str):
        return {"file" if PurePath(value).suffix.lower() in FILES + PICKLES else "text": value}
    if not isinstance(value, list | tuple) or not value:
        return refuse(value, key, EXPECTED)
    return {"text" if all(isinstance(item, str) for item in value) else "vectors": value}
