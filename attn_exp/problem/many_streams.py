"""Random streams of many seeds at once: the very numbers of `arrays.draw`, seed by seed, for a fraction of its time.

Most of the time of a small array goes into `SeedSequence`, which hashes the seed and the array's name. The hash is that
of M. E. O'Neill 2015, "Developing a seed_seq Alternative", section on `randutils`, as NumPy documents and promises it;
here it runs over a whole array of seeds. NumPy makes the generators and the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import PCG64, Generator
from numpy.random.bit_generator import ISeedSequence

from attn_exp.arrays import Array, draw
from attn_exp.problem.drawing import Kind, Shape, bounds

POOL, WORDS = 4, 8
"""Words of 32 bits that the hash mixes, and those that a generator is seeded with."""

WORD = 2**32
ENTROPY, STATE = (0x43B0D7E5, 0x931E8875), (0x8B51F9DD, 0x58F38DED)
"""What the hash of the entropy, and that of the state, begin with and multiply by."""

LEFT, RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
HALF = np.uint32(16)


class Hashed(ISeedSequence):
    """A seed that is hashed already."""

    def __init__(self, state: Array) -> None:
        self.state = state

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Array:
        """Return the state; a `PCG64` asks for 4 words of 64 bits, and these are they."""
        return self.state


@dataclass(frozen=True)
class ManyNumbers:
    """What `drawing.Numbers` is to one seed: where the random arrays come from, each from a stream by its name."""

    seeds: Sequence[int]

    def array(self, name: str, kind: Kind, shape: Shape) -> Array:
        """Return the arrays of that name, `[n *shape]`."""
        numbers = draw_many(self.seeds, name, kind.distribution, shape, bounds(kind, -1.0))
        return kind.spread * numbers + kind.mean


def draw_many(
    seeds: Sequence[int], name: str, distribution: str, shape: Shape, bounds: tuple[float, float] = (-1.0, 1.0)
) -> Array:
    """Return what `arrays.draw` returns for each seed, one above the other."""
    if not all(0 <= seed < WORD for seed in seeds):
        return np.stack([draw(seed, name, distribution, shape, bounds) for seed in seeds])
    generators = (Generator(PCG64(Hashed(state))) for state in states(seeds, name))  # type: ignore[arg-type]
    if distribution == "normal":
        numbers = np.empty((len(seeds), *shape))
        for generator, place in zip(generators, numbers, strict=True):
            generator.standard_normal(out=place)
        return numbers
    if distribution == "integers":
        low, high = int(bounds[0]), int(bounds[1])
        return np.stack([generator.integers(low, high, shape) for generator in generators])
    return np.stack([generator.uniform(*bounds, shape) for generator in generators])


def states(seeds: Sequence[int], name: str) -> Array:
    """Return `SeedSequence([seed, *name]).generate_state(4, uint64)` of each seed, `[n 4]`."""
    whose = np.array(seeds, np.uint32)
    words = [whose, *(np.full_like(whose, byte) for byte in name.encode())]
    words += [np.zeros_like(whose)] * (POOL - len(words))
    constants = multiplied(*ENTROPY)
    pool = [hashed(word, constants) for word in words[:POOL]]
    for source in range(POOL):
        for target in range(POOL):
            if source != target:
                pool[target] = mixed(pool[target], hashed(pool[source], constants))
    for word in words[POOL:]:
        pool = [mixed(target, hashed(word, constants)) for target in pool]
    constants = multiplied(*STATE)
    state = np.stack([hashed(pool[place % POOL], constants) for place in range(WORDS)], axis=1)
    return np.ascontiguousarray(state.astype("<u4")).view("<u8").astype(np.uint64)


def multiplied(constant: int, factor: int) -> Iterator[tuple[np.uint32, np.uint32]]:
    """Yield a constant with its next, which is it times a factor in 32 bits, then that one with its own, and so on."""
    while True:
        following = constant * factor % WORD
        yield np.uint32(constant), np.uint32(following)
        constant = following


def hashed(words: Array, constants: Iterator[tuple[np.uint32, np.uint32]]) -> Array:
    """Return words after one step of the hash."""
    constant, following = next(constants)
    words = (words ^ constant) * following
    return np.asarray(words ^ (words >> HALF))


def mixed(one: Array, other: Array) -> Array:
    """Return two words mixed into one."""
    mixture = np.asarray(one * LEFT - other * RIGHT, np.uint32)
    return np.asarray(mixture ^ (mixture >> HALF))
