"""x drawn from the run's own seed."""

from __future__ import annotations

from attn_exp.problem.sources.source import Asked, Source, Vectors
from attn_exp.streams import draw


def read(asked: Asked) -> Vectors:
    """Draw N(0, 1) with `normal`, U(-1, 1) with `uniform`, from the stream `x` of the seed."""
    return Vectors(draw(asked.seed, "x", asked.own, (asked.rows, asked.settings.d_model or 0)))


SOURCE = Source(read=read, needs=("tokens", "d_model"))
