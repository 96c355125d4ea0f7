"""A vector for each word of a text: the same word always has the same vector, whatever its position and context."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np

from attn_exp.config.spelling import spelled
from attn_exp.errors import UserError, brief
from attn_exp.problem.drawing import Distribution, choose_source
from attn_exp.problem.sources.source import Source, SourceRequest, Vectors

MARKED = re.compile(r"\[\w+\]|<\|?/?\w+\|?>")
"""Matches a special token, such as [PAD] or <s>; its brackets belong to the word."""


def read(request: SourceRequest) -> Vectors:
    """Draw a vector for each word of the text `request.own`: N(0, 1), or U(-1, 1) with `uniform`.

    Each word has its own random stream, named after it. If the settings name a library's generator, that generator
    draws one table instead, with one row for each word of `sorted(set(words))`.

    Raises:
        UserError: the text has no words.
    """
    words = list_words(request.own)
    if not words:
        raise UserError(f"{request.path}.text={brief(spelled(request.own))}: expected at least one word")
    settings, width = request.settings, request.settings.d_model or 0
    distribution = Distribution(settings.distribution or "normal", settings.low, settings.high, key=f"{request.path}.")
    source = choose_source(settings.generator, settings.seed, f"{request.path}.seed", request.numbers)
    if source.stream is not None:
        table = sorted(set(words))
        rows = source.array(request.stream, distribution, (len(table), width)).astype(np.float64)
        return Vectors(rows[[table.index(word) for word in words]], words)
    vectors = {word: source.array(f"word {word}", distribution, (width,)) for word in dict.fromkeys(words)}
    return Vectors(np.stack([vectors[word] for word in words]), words)


def list_words(text: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(split_words(text)) if isinstance(text, str) else tuple(text)


def split_words(text: str) -> Iterator[str]:
    """Yield the words of a text; each punctuation mark before or after a word is a word of its own."""
    for word in unicodedata.normalize("NFC", text).split():
        start, stop = (0, len(word)) if MARKED.fullmatch(word) else strip_punctuation(word)
        yield from word[:start]
        if start < stop:
            yield word[start:stop]
        yield from word[stop:]


def strip_punctuation(word: str) -> tuple[int, int]:
    """Return the start and end of a word within the punctuation around it."""
    letters = [index for index, character in enumerate(word) if not unicodedata.category(character).startswith("P")]
    return (letters[0], letters[-1] + 1) if letters else (0, 0)


def size(request: SourceRequest) -> tuple[int, int] | None:
    words = list(split_words(request.own)) if isinstance(request.own, str) else request.own
    return (len(words), request.settings.d_model) if words and request.settings.d_model else None


SOURCE = Source(read=read, size=size, needs=("d_model",))
