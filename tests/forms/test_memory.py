"""The working memory that threads keep: it is bounded, nobody else's, given back, and never part of an answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.arrays import Array
from attn_exp.forms import blockwise
from attn_exp.forms._blocks.operands import Memory
from attn_exp.rules.rules import Rules
from attn_exp.rules.scores.score import Score

CALLS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "whole heads": ((1, 8, 64, 16), {}),
    "heads shared out": ((1, 8, 200, 16), {}),
    "blocks": ((1, 2, 700, 8), {"form": "blockwise"}),
    "blocks that skip": ((1, 2, 900, 8), {"is_causal": True}),
    "with care": ((1, 2, 300, 8), {"scale": 400.0}),
    "whole rows": ((2, 2, 150, 8), {"softmax_precision": "float16", "form": "blockwise"}),
}
"""A shape and settings for every way that keeps memory."""


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    """Begin with nothing kept, and leave the bound as it was."""
    before = Memory.most
    attn_exp.keep_memory(before)
    yield
    attn_exp.keep_memory(before)


def drawn(shape: tuple[int, ...], seed: int = 0) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    q, k, v = (rng.standard_normal(shape, np.float32) for _ in range(3))
    return q, k, v


def solved(q: Array, k: Array, v: Array, **settings: Any) -> Array:
    """Return the context by blocks, without a scale."""
    context = blockwise.attend(q, k, v, settings.pop("rules", Rules()), **settings).context
    assert context is not None
    return context


def kept() -> list[int]:
    """Return how many bytes each thread of this process keeps."""
    return [sum(len(memory.bytes) for memory in idle) for idle in Memory.idle.values()]


@pytest.mark.parametrize("name", CALLS)
def test_an_answer_stays_as_it_was_when_the_next_is_computed(name: str) -> None:
    shape, settings = CALLS[name]
    for seed in (1, 2):  # the first call finds nothing kept
        attn_exp.attention(*drawn(shape, seed), **settings)
    first = attn_exp.attention(*drawn(shape), **settings)
    copy = first.copy()
    for seed in (1, 2, 3):
        attn_exp.attention(*drawn(shape, seed), **settings)
    np.testing.assert_array_equal(first, copy)
    np.testing.assert_array_equal(attn_exp.attention(*drawn(shape), **settings), copy)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("most", [0, 100, 1 << 16, 1 << 20])
def test_no_thread_keeps_more_than_it_may(name: str, most: int) -> None:
    shape, settings = CALLS[name]
    expected = attn_exp.attention(*drawn(shape), **settings)
    attn_exp.keep_memory(most)
    for _ in range(3):
        np.testing.assert_array_equal(attn_exp.attention(*drawn(shape), **settings), expected)
        assert all(size <= most for size in kept())


def test_less_than_nothing_is_refused() -> None:
    with pytest.raises(attn_exp.UserError, match="most is -1; expected a whole number of bytes, 0 or more"):
        attn_exp.keep_memory(-1)


@dataclass(frozen=True)
class Asking(Score):
    """Leaves logits as they are, and calls something in between."""

    call: Callable[[], Any]

    def bend(self, logits: Any) -> Any:
        self.call()
        return logits


def test_a_call_within_a_call_has_memory_of_its_own() -> None:
    q, k, v = drawn((1, 2, 300, 8))
    inner = [drawn(shape, seed) for seed, shape in enumerate(((1, 2, 300, 8), (1, 8, 64, 16)))]
    alone = [attn_exp.attention(*arrays) for arrays in inner]
    expected = solved(q, k, v, threads=1)
    heard: list[Array] = []

    def ask(*_: float) -> None:
        for arrays, answer in zip(inner, alone, strict=True):
            heard.append(attn_exp.attention(*arrays))
            np.testing.assert_array_equal(heard[-1], answer)

    for _ in range(2):
        found = solved(q, k, v, rules=Rules(scores=(Asking(ask),)), threads=1, rows=100, tell=ask)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert len(heard) > 8
    assert 0 < max(kept()) <= Memory.most


def test_what_fails_gives_its_memory_back() -> None:
    q, k, v = drawn((1, 2, 300, 8))

    def fail() -> None:
        raise ArithmeticError("as asked")

    for _ in range(5):
        with pytest.raises(ArithmeticError, match="as asked"):
            blockwise.attend(q, k, v, Rules(scores=(Asking(fail),)), threads=1)
        (lent,) = Memory.idle[threading.get_ident()]
    again = solved(q, k, v, threads=1)
    np.testing.assert_allclose(again, attn_exp.attention(q, k, v, form="matrix", scale=1), rtol=1e-4, atol=1e-5)
    assert Memory.idle[threading.get_ident()] == [lent]
