"""Draw x from the run's seed."""

from __future__ import annotations

from attn_exp.problem.drawing import Distribution, choose_source
from attn_exp.problem.sources.source import Source, SourceRequest, Vectors


def read(request: SourceRequest) -> Vectors:
    """Draw x: `normal` gives N(0, 1), `uniform` gives U(-1, 1), and `integers` gives integers.

    The numbers come from the stream `x` of the seed. If the settings name a library's generator, that generator draws
    them, and uniform numbers are U(0, 1).
    """
    settings = request.settings
    distribution = Distribution(request.own, settings.low, settings.high, key=f"{request.path}.")
    source = choose_source(settings.generator, settings.seed, f"{request.path}.seed", request.numbers)
    return Vectors(source.array(request.stream, distribution, (request.rows, settings.d_model or 0)).astype(float))


SOURCE = Source(read=read, needs=("tokens", "d_model"))
