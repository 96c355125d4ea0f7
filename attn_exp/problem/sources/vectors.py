"""x as a user wrote it, or drawn from NumPy's legacy generator as a document did."""

from __future__ import annotations

from attn_exp.config.schema import Draw
from attn_exp.problem.matrices import array
from attn_exp.problem.sources.source import Asked, Source, Vectors


def read(asked: Asked) -> Vectors:
    """Return the numbers as they are, or those of the file that is named in their place."""
    if isinstance(asked.own, str):
        from attn_exp.problem.from_files import rows  # noqa: PLC0415 - most runs read no files

        return Vectors(rows(asked.own, "embeddings.vectors", "x"))
    return Vectors(array(asked.own, "embeddings.vectors"))


def size(asked: Asked) -> tuple[int, int] | None:
    """Return the shape that is drawn; numbers that are written out are in memory already."""
    return (asked.own.shape[0], asked.own.shape[1]) if isinstance(asked.own, Draw) else None


SOURCE = Source(read=read, size=size, turns=True)
