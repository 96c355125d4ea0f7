"""Layers and functions that answer otherwise in each call: what else is wrong shows once chance is stopped.

Numbers that are drawn anew start over in each call then, so that a matrix that is made in a call is the same in all of
them, and PyTorch drops nothing.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

import numpy as np

STOPPED: ContextVar[bool] = ContextVar("whether random numbers start over in each call", default=False)
SEED = 20230
DROPPING = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
"""What PyTorch's dropout is called in its modules."""


def start_over() -> None:
    """Let random numbers start over, where chance is stopped; each call of a layer or a function begins with this."""
    if STOPPED.get():
        random.seed(SEED)
        np.random.seed(SEED)
        if "torch" in sys.modules:
            sys.modules["torch"].manual_seed(SEED)


@contextmanager
def without_chance() -> Iterator[None]:
    """Stop chance meanwhile; afterwards random numbers go on from where they were."""
    torch: Any = sys.modules.get("torch")
    generators = [(np.random, "default_rng", seeded(np.random.default_rng))]
    stand_ins: list[tuple[Any, str, Any]] = [*generators, *(dropping_nothing(torch) if torch else ())]
    before = [(place, name, getattr(place, name)) for place, name, _ in stand_ins]
    kept = random.getstate(), np.random.get_state(), torch and torch.random.get_rng_state()
    token = STOPPED.set(True)
    try:
        for place, name, other in stand_ins:
            setattr(place, name, other)
        yield
    finally:
        for place, name, own in before:
            setattr(place, name, own)
        STOPPED.reset(token)
        random.setstate(kept[0])
        np.random.set_state(kept[1])
        if torch:
            torch.random.set_rng_state(kept[2])


def seeded(default_rng: Callable[..., Any]) -> Callable[..., Any]:
    """Return what makes generators of NumPy, those of no seed with the same one."""
    return wraps(default_rng)(lambda seed=None: default_rng(SEED if seed is None else seed))


def kept_whole(input: Any, *_: Any, **__: Any) -> Any:  # noqa: A002 - PyTorch's own name for it
    """Return what is given, as dropout that is off does."""
    return input


def dropping_nothing(torch: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield where PyTorch has its dropout, by what name, and what stands there while nothing is dropped."""
    functional = torch.nn.functional
    for place in (torch, functional, torch._VF):
        yield from ((place, name, kept_whole) for name in DROPPING if hasattr(place, name))
    whole = functional.scaled_dot_product_attention
    yield functional, "scaled_dot_product_attention", without_dropout(whole)


def without_dropout(whole: Callable[..., Any]) -> Callable[..., Any]:
    """Return PyTorch's attention in one piece as it is without dropout, whatever it is told."""

    @wraps(whole)
    def attend(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, *more: Any,
               **named: Any) -> Any:  # fmt: skip
        return whole(query, key, value, attn_mask, 0.0 * dropout_p, *more, **named)

    return attend
