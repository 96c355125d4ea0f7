"""Random numbers: the sources of them that layers of JAX want, and how chance is stopped in each call.

Layers and functions that answer otherwise in each call show what else is wrong with them once it is stopped. Numbers
that are drawn anew start over in each call then, so that a matrix that is made in a call is the same in all of them,
and PyTorch drops nothing. A source is known by what people call it, and by what they write beside it.
"""

from __future__ import annotations

import inspect
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

import numpy as np

from attn_exp.diagnosis.asking.offer import BY_NAME, plain, words_in

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


STREAMS = {"rng", "rngs", "prng", "prngs", "rngkey", "prngkey", "rngseed"}
BESIDE_KEY = {"jax", "random", "rand", "rnd", "dropout", "drop", "attn", "attention", "init", "my", "new", "sub", "jr",
              "model", "layer", "master", "main", "params", "param", "train", "in", "the", "this", "next", "noise",
              "initkey", "subkey", "call", "module", "root", "base", *STREAMS}  # fmt: skip
"""Words beside `key` of names that mean a random one."""
WHOLE = {"rndkey", "randomkey", "randkey", "initkey", "subkey", "jaxkey", "dropoutkey", "dropkey"}


OF_SIZES = {"dim", "dims", "size", "n", "num", "d", "heads", "head", "bias", "width", "depth", "features", "channels",
            "mask", "len", "length", "norm", "type", "name", "value", "values", "layer", "proj", "linear"}  # fmt: skip
"""Words beside `key` of names that mean keys of attention."""


def is_of_chance(name: str, note: str, *, made: bool = False) -> bool:
    """Say whether a parameter is a source of random numbers, by its name or its annotation; `key` alone may be one.

    Where a layer of JAX is `made`, all that is called a key is, unless it is a size of those of attention.
    """
    if is_noted_so(note):
        return True
    parts = {*words_in(name)}
    is_key = parts & {"key", "keys"} and parts - {"key", "keys"} <= BESIDE_KEY
    if made and parts & {"key", "keys"} and not parts & OF_SIZES:
        return True
    return bool(parts & STREAMS or plain(name) in WHOLE or is_key)


def is_noted_so(note: str) -> bool:
    """Say whether an annotation is that of a source of random numbers."""
    return bool(re.search(r"prng|keyarray|\brngs\b|\bkey\[|random\.key", note.lower()))


def sources_of_chance(name: str, note: str) -> list[Any]:
    """Return what a class of JAX may be given as a source of random numbers, the likeliest first."""
    import jax  # noqa: PLC0415 - the class is one of JAX

    key, nnx = jax.random.PRNGKey(0), sys.modules.get("flax.nnx")
    streams = [nnx.Rngs(0)] if nnx is not None else []
    is_stream = "rngs" in f"{name} {note}".lower()
    return [*streams, key, 0] if is_stream else [key, *streams, 0]


def lone_key(parameters: Sequence[inspect.Parameter]) -> str:
    """Return the name of what is called a key where no query and no value stands beside it, or nothing."""
    roles = {BY_NAME.get(plain(one.name), ""): one.name for one in parameters}
    return "" if {"q", "v"} & set(roles) or "k" not in roles or plain(roles["k"]) != "key" else roles["k"]


def random_key(sizes: Any) -> Any:
    """Return a random key where x is one of JAX's arrays; None of other libraries."""
    if type(sizes.x).__module__.partition(".")[0] not in ("jax", "jaxlib"):
        return None
    return sys.modules["jax"].random.PRNGKey(0)
