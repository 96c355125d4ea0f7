"""The BLAS's own threads, left asleep where a run is too small for them.

A product of a hundred rows takes less time than waking a thread and waiting for it, and on a machine that has other
work, a hundred times less: the caller then waits until the system lets the thread run.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from attn_exp.config.schema import Config

FEWEST, MOST = 32, 512
"""Products of fewer rows wake nobody; those of more are worth it."""


def held(config: Config) -> AbstractContextManager[object]:
    """Hold the BLAS to one thread for a run of a few hundred tokens; the threads of a form are left alone."""
    if not FEWEST <= most_rows(config) <= MOST:
        return nullcontext()
    from attn_exp.forms._blocks.blas import one_blas_thread  # noqa: PLC0415 - small runs need no threads at all

    return one_blas_thread(0, insist=True)


def most_rows(config: Config) -> int:
    """Return how many tokens there may be: of a text, one for three letters; 0 where the settings do not say."""
    if config.model.text is not None:
        return len(config.model.text) // 3
    given = config.model.tokens if config.model.tokens is not None else config.embeddings.tokens
    return len(given) if isinstance(given, tuple) else given if isinstance(given, int) else 0
