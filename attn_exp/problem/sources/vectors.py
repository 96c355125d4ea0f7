"""x as the user wrote it, or drawn as a notebook drew it."""

from __future__ import annotations

from attn_exp.config.inputs import Draw
from attn_exp.problem import drawing
from attn_exp.problem.sources.source import Asked, Source, Vectors


def read(asked: Asked) -> Vectors:
    """Return the numbers as written, or those of the file that is named in their place."""
    return Vectors(drawing.array_or_drawn(asked.own, f"{asked.path}.vectors", asked.numbers))


def size(asked: Asked) -> tuple[int, int] | None:
    """Return the shape of a draw; numbers that are written out are in memory already."""
    return drawing.size(asked.own) if isinstance(asked.own, Draw) else None


SOURCE = Source(read=read, size=size, turns=True)
