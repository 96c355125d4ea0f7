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
    under_way = Pass()
    if text is None:
        yield under_way
        return
    from attn_exp.child import Child  # noqa: PLC0415 - most runs have no text for a model

    try:
        child = Child(ENCODE, quiet=True)
    except OSError as error:
        raise UserError(f"model.text: no process can be started that reads it ({reason(error)})") from error
    with child as under_way.tokenizer:
        yield under_way


@contextmanager
def tokenizer_of(text: str | None, under_way: Pass) -> Iterator[Child | None]:
    """Give the process that cuts a text into tokens: one that was started ahead, or a new one; none without a text."""
    if text is None or under_way.tokenizer is not None:
        child, under_way.tokenizer = under_way.tokenizer, None
        yield child
    else:
        with started(text) as fresh, tokenizer_of(text, fresh) as child:
            yield child
        return
    if child is not None:
        child.kill()  # nothing is left to be done there, and its own end would be waited for
