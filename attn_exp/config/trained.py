"""What a user may say of a trained model."""

# Annotations are read when the class is made, not kept as text, as in `schema`.

from dataclasses import dataclass
from typing import Annotated

from attn_exp.config.kinds import Kind, at_least, written
from attn_exp.config.several import list_of_numbers

LEFT = "model"
"""What stands where a setting is left to the model that a run takes its arrays from."""

PLAIN = ("head", "scale", "bias")
"""Settings of one value that may be left to it."""


def or_left(kind: Kind) -> Kind:
    """Take what a kind takes, or the word `model`, which stands there until the model is read."""
    return Kind(lambda value, key: value if value == LEFT and isinstance(value, str) else kind.read(value, key))


@dataclass(frozen=True)
class Model:
    """A trained model, and the layer whose attention is the run's; settings that say `model` are what it has.

    `family` names the file of its names and shapes; `path` is the folder of the checkpoint; `text`, or `tokens`, its
    ids, or `patches`, a picture, go in. Layers count from 0, as checkpoints do.
    """

    family: str | None = None
    path: str | None = None
    text: Annotated[str, written()] | None = None
    tokens: Annotated[tuple[int, ...], list_of_numbers(at_least(0), "token ids, such as [101,7592,102]")] | None = None
    patches: str | None = None
    layer: Annotated[int, at_least(0)] = 0
