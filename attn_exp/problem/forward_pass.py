"""What points that differ in the layer of a model alone share, so that no layer is computed twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from attn_exp.config.inputs import Model


@dataclass
class Pass:
    """A forward pass that has stopped at a layer, and goes on from there where the next point asks for a later one.

    `model` is what was said of it, whatever the layer; `begun` is what it was opened as; `layers` yields those after
    `layer`, which is the `number`th. It holds the vectors of one layer, however deep the model is.
    """

    model: Model | None = None
    begun: Any = None
    layers: Any = None
    layer: Any = None
    number: int = -1
