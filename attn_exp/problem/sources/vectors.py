"""Take x from the settings as the user wrote it, or draw it as a notebook does."""

from __future__ import annotations

from attn_exp.config.inputs import Draw
from attn_exp.problem import drawing
from attn_exp.problem.sources.source import Asked, Source, Vectors


def read(asked: Asked) -> Vectors:
    """Return the numbers as written, drawn, or read from the file that is named instead."""
    return Vectors(drawing.read_matrix(asked.own, f"{asked.path}.vectors", asked.numbers))


def size(asked: Asked) -> tuple[int, int] | None:
    """Return the shape of the array if it is to be drawn; None if its numbers are given or in a file."""
    return drawing.drawn_shape(asked.own) if isinstance(asked.own, Draw) else None


SOURCE = Source(read=read, size=size, turns=True)
