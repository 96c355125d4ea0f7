"""The contract of a source of embeddings: the functions that return x and its size, and the settings that it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from attn_exp.arrays import Array, Arrays
from attn_exp.config.inputs import Embeddings
from attn_exp.problem.drawing import RandomSource

INPUT = "embeddings"
"""The section that describes x; anything below it, such as `embeddings.memory`, is another input."""


class SourceRequest(NamedTuple):
    """What a source needs to read or draw x.

    - `settings`: all settings of the embeddings.
    - `own`: the value of the setting that selects the source, such as the text of `embeddings.text`.
    - `seed`: the run's seed.
    - `numbers`: the source of random numbers.
    - `path`: the section of the settings, `embeddings`, or `embeddings.memory` for a memory.
    """

    settings: Embeddings
    own: Any
    seed: int
    numbers: RandomSource
    path: str = INPUT

    @property
    def stream(self) -> str:
        """The name of the random stream that the vectors are drawn from."""
        return "x" if self.path == INPUT else self.path.rpartition(".")[2]

    @property
    def rows(self) -> int:
        tokens = self.settings.tokens
        return tokens if isinstance(tokens, int) else len(tokens or ())


class Vectors(NamedTuple):
    """What a source returns.

    - `x`: the vectors `[t m]`; None if the input starts at a later stage.
    - `tokens`: the token names, if known.
    - `later`: the arrays of a later stage by name, such as q, k and v, or weights and v.
    """

    x: Array | None
    tokens: tuple[str, ...] | None = None
    later: Arrays = MappingProxyType({})


def count_rows_and_columns(request: SourceRequest) -> tuple[int, int] | None:
    """Return the numbers of rows and columns from the settings `tokens` and `d_model`; None unless both are set."""
    return (request.rows, request.settings.d_model) if request.rows and request.settings.d_model else None


@dataclass(frozen=True)
class Source:
    """A source of x; each file defines one as `SOURCE`.

    - `read`: returns x, and its token names if it has any.
    - `size`: returns the rows and columns of x before `read` is called, so that an input that does not fit into memory
      is refused before it is drawn; None if unknown.
    - `needs`: other settings of the embeddings that it requires.
    - `settings`: the dataclass of its own settings; None passes them unchanged.
    - `turns`: whether it supports the setting `columns`, with tokens in columns.
    """

    read: Callable[[SourceRequest], Vectors]
    size: Callable[[SourceRequest], tuple[int, int] | None] = count_rows_and_columns
    needs: tuple[str, ...] = ()
    settings: type | None = None
    turns: bool = False
