"""The memory of cross attention: another input, whose tokens the keys and values are made of."""

from __future__ import annotations

from dataclasses import replace

from attn_exp.arrays import Array
from attn_exp.config.inputs import Embeddings
from attn_exp.config.schema import Config
from attn_exp.errors import UserError
from attn_exp.problem import sources
from attn_exp.problem.drawing import Numbers

PATH = "embeddings.memory"
LATER_STAGES = ("q", "k", "v", "weights", "memory")
"""Settings of an input that a memory has no place for: it is projected like x, and has no memory itself."""


def described(memory: Embeddings, d_model: int | None, distribution: str | None) -> Embeddings:
    """Return the settings of a memory, filled where they leave it open: drawn like x, and as wide.

    Raises:
        UserError: a stage that a memory has not.
    """
    stage = next((name for name in LATER_STAGES if getattr(memory, name) is not None), None)
    if stage is not None:
        raise UserError(f"{PATH}.{stage}: a memory is vectors, which W_k and W_v project; give {PATH}.vectors")
    memory = sources.with_tokens(memory, PATH)
    asked = list(sources.said(memory))
    if memory.distribution is None and (not asked or memory.text is not None):
        memory = replace(memory, distribution=distribution or "normal")
    open_width = not asked or "d_model" in sources.called(asked[0]).needs
    return replace(memory, d_model=d_model) if open_width and memory.d_model is None else memory


def read(memory: Embeddings, x: Array, distribution: str | None, source: Numbers) -> tuple[Array, tuple[str, ...]]:
    """Return the vectors of a memory `[s n]` and its tokens, beside x `[t m]`.

    Raises:
        UserError: whatever its source refuses, or not as many tokens as vectors.
    """
    settings = described(memory, x.shape[1], distribution)
    vectors = sources.embed(settings, source, PATH)
    if vectors is None or vectors.x is None:
        raise UserError(f"{PATH} starts after its vectors; a memory is vectors, which W_k and W_v project")
    if settings.d_model is not None and settings.d_model != vectors.x.shape[1]:
        raise UserError(f"{PATH}.d_model={settings.d_model}, but the vectors have {vectors.x.shape[1]} numbers")
    return vectors.x, names(settings, vectors.tokens, len(vectors.x))


def names(memory: Embeddings, read: tuple[str, ...] | None, count: int) -> tuple[str, ...]:
    """Return the names that the settings give, else those read, else `m0`, `m1`, ...; one for each of `count` rows."""
    given = memory.tokens if isinstance(memory.tokens, tuple) or read is None else read
    if isinstance(given, tuple):
        if len(given) != count:
            raise UserError(f"{PATH}.tokens names {len(given)} tokens, but there are {count} vectors")
        return given
    if given is not None and given != count:
        raise UserError(f"{PATH}.tokens={given}, but there are {count} vectors")
    return tuple(f"m{place}" for place in range(count))


def key_names(memory: Embeddings, count: int) -> tuple[str, ...]:
    """Return the names of keys that are given as arrays: a memory then says how they are called, and nothing else.

    Raises:
        UserError: it says more, or not as many names as there are keys.
    """
    if memory.text is not None:
        from attn_exp.problem.sources import words  # noqa: PLC0415 - few memories are a sentence

        memory = replace(memory, tokens=words.listed(memory.text), text=None)
    if sources.said(memory) or any(getattr(memory, name) is not None for name in LATER_STAGES):
        raise UserError(f"{PATH}: the keys are given; {PATH}.tokens names them, and there is nothing to project")
    return names(sources.with_tokens(memory, PATH), None, count)


def size(config: Config, x: tuple[int, int]) -> tuple[int, int] | None:
    """Return how many rows and columns the memory will have, before it is read; None where nobody can tell."""
    memory = config.embeddings.memory
    return None if memory is None else sources.size(described(memory, x[1], config.embeddings.distribution))
