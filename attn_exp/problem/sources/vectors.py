"""Take x from the settings: written out, drawn as a notebook does, or read from a file that they name."""

from __future__ import annotations

from attn_exp.config.inputs import Draw
from attn_exp.problem import drawing
from attn_exp.problem.sources.source import Source, SourceRequest, Vectors


def read(request: SourceRequest) -> Vectors:
    return Vectors(drawing.read_matrix(request.own, f"{request.path}.vectors", request.numbers))


def size(request: SourceRequest) -> tuple[int, int] | None:
    """Return the shape of the array if it is to be drawn; None if its numbers are given or in a file."""
    return drawing.drawn_shape(request.own) if isinstance(request.own, Draw) else None


SOURCE = Source(read=read, size=size, turns=True)
