"""JAX's generator: `key = jax.random.key(seed)`, then a key for each draw, come by in one of three ways.

- `jax`: a key of its own for each draw, split off just before it.
- `jax_key`: one key for every array: `jax.random.normal(jax.random.key(seed), shape)`, again and again.
- `jax_split`: the keys made all at once: `k1, k2, k3 = jax.random.split(jax.random.key(seed), 3)`.

Keys, uniform and whole numbers are exact. Normal numbers go through a polynomial of the inverse error function, and
the compiler chooses how its steps are rounded: about one number in eighty differs, by at most 4 units in the last
place. Keys are those of `jax_threefry_partitionable`, the default since JAX 0.5.

Source: Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3", section 4.2, Threefry-2x32 of 20 rounds;
JAX, `jax/_src/random/threefry2x32.py` and `core.py`; Giles 2012, "Approximating the erfinv function", table 5.
"""

from __future__ import annotations

import math

import numpy as np

from attn_exp.arrays import Array
from attn_exp.errors import UserError
from attn_exp.problem.generators._float32 import fused, polynomial
from attn_exp.problem.generators.generator import Generator, Shape, Start

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
LEAST, MOST = -(2**63), 2**63 - 1
"""The seeds that JAX takes."""
CENTRE = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
          -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
        -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)  # fmt: skip


def threefry(key: Array, high: Array, low: Array) -> tuple[Array, Array]:
    """Return two words for each pair of words, mixed with the two words of the key."""
    words = (key[0], key[1], key[0] ^ key[1] ^ np.uint32(PARITY))
    left, right = high + words[0], low + words[1]
    for turn in range(5):
        for rotation in ROTATIONS[turn % 2]:
            left = left + right
            right = left ^ (right << np.uint32(rotation) | right >> np.uint32(32 - rotation))
        left = left + words[(turn + 1) % 3]
        right = right + words[(turn + 2) % 3] + np.uint32(turn + 1)
    return left, right


def counted(key: Array, count: int) -> tuple[Array, Array]:
    """Return two words for each of the numbers 0, 1, ..."""
    numbers = np.arange(count, dtype=np.uint64)
    return threefry(key, (numbers >> np.uint64(32)).astype(np.uint32), numbers.astype(np.uint32))


def bits(key: Array, count: int) -> Array:
    """Return words of 32 random bits."""
    left, right = counted(key, count)
    return left ^ right


def split(key: Array, count: int = 2) -> Array:
    """`jax.random.split(key, count)`: keys in rows."""
    return np.stack(counted(key, count), axis=1)


def fold_in(key: Array, number: int) -> Array:
    """`jax.random.fold_in(key, number)`."""
    folded = threefry(key, np.zeros(1, np.uint32), np.array([number & 0xFFFFFFFF], np.uint32))
    return np.concatenate(folded)


def first_key(seed: int) -> Array:
    """`jax.random.key(seed)`: 0 and the seed's low 32 bits, as JAX has it without `jax_enable_x64`."""
    return np.array([0, seed & 0xFFFFFFFF], np.uint32)


class Jax:
    """Draws each array with a key of its own: `key, sub = split(key)` before each, and `sub` is used.

    A single array is drawn with the first key itself.
    """

    def __init__(self, start: Start) -> None:
        self.key, self.alone = first_key(start.seed), start.alone

    def next_key(self) -> Array:
        """Return the key of the next draw."""
        if self.alone:
            return self.key
        self.key, key = split(self.key)
        return np.asarray(key)

    def uniform(self, shape: Shape, low: float = 0.0, high: float = 1.0) -> Array:
        """`jax.random.uniform(key, shape, minval=low, maxval=high)`."""
        return uniform(self.next_key(), shape, np.float32(low), np.float32(high))

    def normal(self, shape: Shape, mean: float = 0.0, spread: float = 1.0) -> Array:
        """`mean + spread * jax.random.normal(key, shape)`."""
        numbers = normal(self.next_key(), shape)
        return np.asarray(np.float32(mean) + np.float32(spread) * numbers)

    def integers(self, shape: Shape, low: int, high: int) -> Array:
        """`jax.random.randint(key, shape, low, high)`: twice the bits, so that no number is favoured.

        Raises:
            UserError: bounds beyond 32 bits.
        """
        if not -(2**31) <= low < high < 2**31:
            raise UserError(f"low={low} and high={high}: expected bounds of 32 bits for generator=jax")
        count, span = math.prod(shape), np.uint32(high - low)
        higher, lower = (bits(key, count) for key in split(self.next_key()))
        power = np.uint32(2**16) % span
        with np.errstate(over="ignore"):
            offset = (higher % span) * (power * power % span) + lower % span
        return ((offset % span).astype(np.int64) + low).reshape(shape)


class Key(Jax):
    """Draws every array with the first key, as notebooks that forget to split: arrays of one shape are equal."""

    def next_key(self) -> Array:
        return self.key


class Split(Jax):
    """Draws the first array with the first of the keys, the second with the second.

    How many keys there are does not matter: the i-th of any number of them is `fold_in(key, i)`.
    """

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        self.drawn = 0

    def next_key(self) -> Array:
        place, self.drawn = self.drawn, self.drawn + 1
        return fold_in(self.key, place)


def uniform(key: Array, shape: Shape, low: np.float32, high: np.float32) -> Array:
    """Return float32 from `low` to `high`: 23 bits of a word each."""
    words = bits(key, math.prod(shape)) >> np.uint32(9) | np.uint32(0x3F800000)
    numbers = fused(words.view(np.float32) - np.float32(1), high - low, low)
    return np.maximum(numbers, low).reshape(shape)


def normal(key: Array, shape: Shape) -> Array:
    """Return `sqrt(2) erfinv(u)` of u from above -1 to 1."""
    lowest = np.nextafter(np.float32(-1), np.float32(0))
    return np.asarray(np.float32(math.sqrt(2)) * inverse_error_function(uniform(key, shape, lowest, np.float32(1))))


def inverse_error_function(x: Array) -> Array:
    """Return the number whose error function is x, for float32 between -1 and 1."""
    w = -np.log1p(-x * x)
    centre = polynomial(w - np.float32(2.5), CENTRE)
    tail = polynomial(np.sqrt(w) - np.float32(3), TAIL)
    return np.asarray(np.where(w < 5, centre, tail) * x)


GENERATORS = {
    "jax": Generator(Jax, LEAST, MOST),
    "jax_key": Generator(Key, LEAST, MOST),
    "jax_split": Generator(Split, LEAST, MOST),
}
