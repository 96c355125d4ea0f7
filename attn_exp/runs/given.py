"""Arrays that come in through Python: which settings they are, and how a command names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from attn_exp.config import large
from attn_exp.config.spelling import spelled
from attn_exp.problem.matrices import BIASES, MATRICES

INPUTS = ("tokens", "memory", "vectors", "q", "k", "v", "weights")
BESIDE = {"tokens", "memory"}
"""What is said beside any input, and starts none."""


def is_array_name(key: str) -> bool:
    return key in (*INPUTS, *MATRICES, *BIASES)


def split(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the input's arrays and the projections', as plain lists."""
    inputs = {key: plain(value) for key, value in settings.items() if key in INPUTS}
    return inputs, {key: plain(value) for key, value in settings.items() if key in (*MATRICES, *BIASES)}


def plain(value: Any) -> Any:
    """Return a value as lists and Python's own numbers."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def starting(inputs: Mapping[str, Any]) -> list[str]:
    """Return the words that let the input start at the stage whose arrays are given; none where only names are."""
    if "vectors" in inputs:
        return ["embeddings=inline"]
    return ["embeddings=inline", "projections=none"] if inputs.keys() - BESIDE else []


def with_arrays(
    composed: Mapping[str, Any], inputs: Mapping[str, Any], projections: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the composed values with the arrays in their place."""
    settings = dict(composed)
    if inputs:
        kept = composed["embeddings"] if inputs.keys() <= BESIDE else {}
        settings["embeddings"] = {**kept, **inputs}
    if projections:
        section = composed["projections"]
        settings["projections"] = {**section, "given": {**(section.get("given") or {}), **projections}}
    return settings


def named_or_spelled(value: Any) -> str:
    """Return a value as it is typed, or the name of an array too large to be typed."""
    array = large.as_numbers(value)
    return spelled(value) if array is None else large.stored(large.name_of(array))
