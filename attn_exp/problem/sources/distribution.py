"""Draw x from the run's seed."""

from __future__ import annotations

from attn_exp.problem.drawing import Distribution, choose_source
from attn_exp.problem.sources.source import Asked, Source, Vectors


def read(asked: Asked) -> Vectors:
    """Draw N(0, 1) with `normal`, U(-1, 1) with `uniform`, integers with `integers`.

    They come from the stream `x` of the seed, or from a library's generator, whose uniform numbers are U(0, 1).
    """
    settings = asked.settings
    distribution = Distribution(asked.own, settings.low, settings.high, key=f"{asked.path}.")
    source = choose_source(settings.generator, settings.seed, f"{asked.path}.seed", asked.numbers)
    return Vectors(source.array(asked.stream, distribution, (asked.rows, settings.d_model or 0)).astype(float))


SOURCE = Source(read=read, needs=("tokens", "d_model"))
