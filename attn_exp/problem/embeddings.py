"""The input of a problem: token names and the arrays it starts from.

The memory of cross-attention is a second input, from whose tokens keys and values are made.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from attn_exp.arrays import Array, Arrays
from attn_exp.config.inputs import Embeddings
from attn_exp.config.schema import Config
from attn_exp.errors import UserError
from attn_exp.problem import sources
from attn_exp.problem.drawing import Numbers, array_or_drawn
from attn_exp.problem.sources import words
from attn_exp.problem.sources.source import Vectors

STAGES = ("q", "k", "v", "weights")
"""Where a problem may start after x."""

MEMORY = "embeddings.memory"
LATER_STAGES = (*STAGES, "memory")
"""Settings of an input that a memory cannot have: it is projected like x, and has no memory itself."""


class Start(NamedTuple):
    """The input of a problem: the tokens, and the arrays of its first stage; the others are None.

    `tokens` are the names of the rows of x; without x, `named` holds the names in the settings, or their number.
    `memory` is the vectors and tokens of the memory, beside x.
    """

    tokens: tuple[str, ...]
    x: Array | None
    q: Array | None
    k: Array | None
    v: Array | None
    weights: Array | None
    memory: tuple[Array, tuple[str, ...]] | None = None
    named: tuple[str, ...] | int | None = None


def start(settings: Embeddings, source: Numbers, drawn: Arrays | None = None) -> Start:
    """Return the input that the settings describe, or that is `drawn` already; tokens are always rows.

    Raises: UserError: no or several starting stages, arrays that are ragged, empty, not numbers or not finite, or
    numbers of tokens and vectors that differ.
    """
    settings = sources.with_tokens(settings)
    vectors = sources.embed(settings, source)
    check_given_once(settings, vectors, drawn or {})
    read = Vectors(None) if vectors is None else vectors
    done = {**read.later, **(drawn or {})}
    x = done.get("x") if read.x is None else read.x
    for name in STAGES:
        if (given := getattr(settings, name)) is not None:
            done[name] = array_or_drawn(given, f"embeddings.{name}", source)
    q, k, v, weights = map(done.get, STAGES)
    check_stage(x, q, k, weights)
    named = choose_names(settings, read.tokens)
    if x is None:
        return Start((), None, q, k, v, weights, named=named)
    if settings.d_model is not None and settings.d_model != x.shape[1]:
        raise UserError(f"embeddings.d_model={settings.d_model}, but the vectors have {x.shape[1]} numbers")
    memory = None if settings.memory is None else read_memory(settings.memory, x, settings.distribution, source)
    return Start(token_names(named, len(x)), x, q, k, v, weights, memory, named)


def check_given_once(settings: Embeddings, vectors: Vectors | None, drawn: Arrays) -> None:
    for name in drawn:
        if name == "x" and vectors is not None:
            raise UserError("embeddings and draws.x both say what x is; give one of them, such as embeddings=inline")
        if name in STAGES and getattr(settings, name) is not None:
            raise UserError(f"embeddings.{name} and draws.{name} both say what {name} is; give one of them")


def choose_names(settings: Embeddings, read: tuple[str, ...] | None) -> tuple[str, ...] | int | None:
    given = None if isinstance(settings.tokens, str) else settings.tokens
    return given if isinstance(given, tuple) or read is None else read


def check_stage(x: Array | None, q: Array | None, k: Array | None, weights: Array | None) -> None:
    if (q is None) != (k is None):
        raise UserError("embeddings.q and embeddings.k go together; only one is given")
    stages = [name for name, stage in (("vectors", x), ("q and k", q), ("weights", weights)) if stage is not None]
    if not stages:
        raise UserError("embeddings has nothing to start from; give embeddings.vectors, a file, q and k, or weights")
    if len(stages) > 1:
        raise UserError(f"embeddings starts at {' and at '.join(stages)}; give one of them")


def token_names(
    given: tuple[str, ...] | int | None, count: int, path: str = "embeddings", letter: str = "x"
) -> tuple[str, ...]:
    """Return the names given, or `x0`, `x1`, ...; there must be one for each row."""
    if not isinstance(given, tuple):
        if given not in (None, count):
            raise UserError(f"{path}.tokens={given}, but there are {count} vectors")
        return tuple(f"{letter}{place}" for place in range(count))
    if len(given) != count:
        raise UserError(f"{path}.tokens names {len(given)} tokens, but there are {count} vectors")
    return given


def describe_memory(memory: Embeddings, d_model: int | None, distribution: str | None) -> Embeddings:
    """Return the settings of a memory, completed by the distribution and the width of x.

    Raises:
        UserError: a stage that a memory does not have.
    """
    stage = next((name for name in LATER_STAGES if getattr(memory, name) is not None), None)
    if stage is not None:
        raise UserError(f"{MEMORY}.{stage}: a memory is vectors, which W_k and W_v project; give {MEMORY}.vectors")
    memory = sources.with_tokens(memory, MEMORY)
    asked = list(sources.said(memory))
    if memory.distribution is None and (not asked or memory.text is not None):
        memory = replace(memory, distribution=distribution or "normal")
    open_width = not asked or "d_model" in sources.find(asked[0]).needs
    return replace(memory, d_model=d_model) if open_width and memory.d_model is None else memory


def read_memory(
    memory: Embeddings, x: Array, distribution: str | None, source: Numbers
) -> tuple[Array, tuple[str, ...]]:
    """Return the vectors of a memory `[s n]` and its tokens, beside x `[t m]`.

    Raises:
        UserError: whatever its source refuses, or numbers of tokens and vectors that differ.
    """
    settings = describe_memory(memory, x.shape[1], distribution)
    vectors = sources.embed(settings, source, MEMORY)
    if vectors is None or vectors.x is None:
        raise UserError(f"{MEMORY} starts after its vectors; a memory is vectors, which W_k and W_v project")
    if settings.d_model is not None and settings.d_model != vectors.x.shape[1]:
        raise UserError(f"{MEMORY}.d_model={settings.d_model}, but the vectors have {vectors.x.shape[1]} numbers")
    return vectors.x, token_names(choose_names(settings, vectors.tokens), len(vectors.x), MEMORY, "m")


def key_names(memory: Embeddings, count: int) -> tuple[str, ...]:
    """Return the names of keys given as arrays, for which a memory may only name tokens.

    Raises:
        UserError: it sets anything else, or not as many names as there are keys.
    """
    if memory.text is not None:
        memory = replace(memory, tokens=words.listed(memory.text), text=None)
    if sources.said(memory) or any(getattr(memory, name) is not None for name in LATER_STAGES):
        raise UserError(f"{MEMORY}: the keys are given; {MEMORY}.tokens names them, and there is nothing to project")
    return token_names(choose_names(sources.with_tokens(memory, MEMORY), None), count, MEMORY, "m")


def memory_size(config: Config, x: tuple[int, int]) -> tuple[int, int] | None:
    """Return the rows and columns of the memory before it is read; None if they are unknown."""
    memory = config.embeddings.memory
    return None if memory is None else sources.size(describe_memory(memory, x[1], config.embeddings.distribution))
