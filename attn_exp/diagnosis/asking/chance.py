"""Sources of random numbers that layers of JAX take, recognized by their names and annotations."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Sequence
from typing import Any

from attn_exp.diagnosis.asking.offer import BY_NAME, plain, words_in

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
