"""What points that differ in the layer of a model alone share, so that no layer is computed twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attn_exp.config.inputs import Model
from attn_exp.errors import UserError, reason

if TYPE_CHECKING:
    from attn_exp.child import Child

ENCODE = "attn_exp.problem.tokenizing:encode"


@dataclass
class Pass:
    """A forward pass that has stopped at a layer, and goes on from there where the next point asks for a later one.

    `model` is what was said of it, whatever the layer; `begun` is what it was opened as; `layers` yields those after
    `layer`, which is the `number`th. It holds the vectors of one layer, however deep the model is. `tokenizer` is the
    process that cuts a text into tokens, where it was started ahead.
    """

    model: Model | None = None
    begun: Any = None
    layers: Any = None
    layer: Any = None
    number: int = -1
    tokenizer: Child | None = None


@contextmanager
def started(text: str | None) -> Iterator[Pass]:
    """Give a pass that has not begun, and start what cuts the model's text into tokens, if there is a text.

    It is a process of its own, which loads what it needs while this one loads the rest of the program.
    """
    if text is None:
        yield Pass()
        return
    with start_tokenizer() as child:
        yield Pass(tokenizer=child)


def start_tokenizer() -> Child:
    """Start the process that cuts a text into tokens."""
    from attn_exp.child import Child  # noqa: PLC0415 - most runs have no text for a model

    try:
        return Child(ENCODE, quiet=True)
    except OSError as error:
        raise UserError(f"model.text: no process can be started that reads it ({reason(error)})") from error
