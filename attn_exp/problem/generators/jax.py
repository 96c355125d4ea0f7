"""JAX's generator: `key = jax.random.key(seed)`, then a key for each draw, made in one of three ways.

- `jax`: a new key for each draw, split off just before it.
- `jax_key`: one key for every array: `jax.random.normal(jax.random.key(seed), shape)` each time.
- `jax_split`: all keys at once: `k1, k2, k3 = jax.random.split(jax.random.key(seed), 3)`.

Keys, uniform numbers and integers are exact. Normal numbers use a polynomial for the inverse error function, and
the compiler chooses how its steps are rounded: about one number in eighty differs, by at most 4 units in the last
place. Keys are those of `jax_threefry_partitionable`, the default since JAX 0.5.

Source: Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3", section 4.2, Threefry-2x32 with 20 rounds;
JAX, `jax/_src/random/threefry2x32.py` and `core.py`; Giles 2012, "Approximating the erfinv function", table 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import count, repeat

import numpy as np

from attn_exp.arrays import Array, Shape
from attn_exp.errors import UserError
from attn_exp.problem.generators.generator import Generator, Start
from attn_exp.problem.generators.torch import multiply_add, polynomial

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
LEAST, MOST = -(2**63), 2**63 - 1
"""The range of seeds that JAX accepts."""
CENTRE = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
          -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
        -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)  # fmt: skip


def threefry(key: Array, high: Array, low: Array) -> tuple[Array, Array]:
    words = (key[0], key[1], key[0] ^ key[1] ^ np.uint32(PARITY))
    left, right = high + words[0], low + words[1]
    for turn in range(5):
        for rotation in ROTATIONS[turn % 2]:
            left = left + right
            right = left ^ (right << np.uint32(rotation) | right >> np.uint32(32 - rotation))
        left = left + words[(turn + 1) % 3]
        right = right + words[(turn + 2) % 3] + np.uint32(turn + 1)
    return left, right


def hash_counters(key: Array, size: int) -> tuple[Array, Array]:
    numbers = np.arange(size, dtype=np.uint64)
    return threefry(key, (numbers >> np.uint64(32)).astype(np.uint32), numbers.astype(np.uint32))


def random_bits(key: Array, size: int) -> Array:
    left, right = hash_counters(key, size)
    return left ^ right


def split(key: Array, size: int = 2) -> Array:
    """Return the keys of `jax.random.split(key, size)`, one per row."""
    return np.stack(hash_counters(key, size), axis=1)


def fold_in(key: Array, number: int) -> Array:
    """Return `jax.random.fold_in(key, number)`."""
    return np.concatenate(threefry(key, np.zeros(1, np.uint32), np.array([number & 0xFFFFFFFF], np.uint32)))


def first_key(seed: int) -> Array:
    """Return `jax.random.key(seed)`: 0 and the low 32 bits of the seed, as in JAX without `jax_enable_x64`."""
    return np.array([0, seed & 0xFFFFFFFF], np.uint32)


def new_keys(start: Start) -> Iterator[Array]:
    """Yield a new key for each draw, split off just before it; a single array uses the first key itself."""
    key = first_key(start.seed)
    if start.draws_once:
        yield key
    while True:
        key, draw_key = split(key)
        yield np.asarray(draw_key)


def split_keys(start: Start) -> Iterator[Array]:
    """Yield the keys of `split(key, n)`, one after another: key i is `fold_in(key, i)`, whatever n is."""
    return (fold_in(first_key(start.seed), index) for index in count())


class Jax:
    def __init__(self, keys: Iterator[Array]) -> None:
        self.keys = keys

    def uniform(self, shape: Shape, low: float = 0.0, high: float = 1.0) -> Array:
        """Draw as `jax.random.uniform(key, shape, minval=low, maxval=high)` does."""
        return uniform(next(self.keys), shape, np.float32(low), np.float32(high))

    def normal(self, shape: Shape, mean: float = 0.0, spread: float = 1.0) -> Array:
        """Return `mean + spread * jax.random.normal(key, shape)`."""
        return np.float32(mean) + np.float32(spread) * normal(next(self.keys), shape)

    def integers(self, shape: Shape, low: int, high: int) -> Array:
        """Draw as `jax.random.randint(key, shape, low, high)` does: 64 bits per number reduce the modulo bias.

        Raises:
            UserError: a bound does not fit into 32 bits.
        """
        if not -(2**31) <= low < high < 2**31:
            raise UserError(f"low={low} and high={high}: expected 32-bit bounds for generator=jax")
        size, span = math.prod(shape), np.uint32(high - low)
        higher, lower = (random_bits(key, size) for key in split(next(self.keys)))
        power = np.uint32(2**16) % span
        with np.errstate(over="ignore"):
            offset = (higher % span) * (power * power % span) + lower % span
        return ((offset % span).astype(np.int64) + low).reshape(shape)


def uniform(key: Array, shape: Shape, low: np.float32, high: np.float32) -> Array:
    """Return float32 numbers in `[low, high)`, each made from 23 bits of a 32-bit word."""
    words = random_bits(key, math.prod(shape)) >> np.uint32(9) | np.uint32(0x3F800000)
    numbers = multiply_add(words.view(np.float32) - np.float32(1), high - low, low)
    return np.maximum(numbers, low).reshape(shape)


def normal(key: Array, shape: Shape) -> Array:
    """Return `sqrt(2) erfinv(u)` for u in (-1, 1)."""
    lowest = np.nextafter(np.float32(-1), np.float32(0))
    return np.float32(math.sqrt(2)) * inverse_error_function(uniform(key, shape, lowest, np.float32(1)))


def inverse_error_function(x: Array) -> Array:
    w = -np.log1p(-x * x)
    centre = polynomial(w - np.float32(2.5), CENTRE)
    tail = polynomial(np.sqrt(w) - np.float32(3), TAIL)
    return np.where(w < 5, centre, tail) * x


GENERATORS = {
    "jax": Generator(lambda start: Jax(new_keys(start)), LEAST, MOST),
    "jax_key": Generator(lambda start: Jax(repeat(first_key(start.seed))), LEAST, MOST),
    "jax_split": Generator(lambda start: Jax(split_keys(start)), LEAST, MOST),
}
