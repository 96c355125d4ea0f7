"""Problems that differ only in their seed, as one problem whose arrays have a leading axis for the seeds.

Their random numbers are those of `arrays.draw`, seed by seed, in a fraction of its time. Most of the time of a small
array goes into `SeedSequence`, which hashes the seed and the array's name. The hash is that of M. E. O'Neill 2015,
"Developing a seed_seq Alternative", section on `randutils`, as NumPy documents and guarantees it; here it runs over a
whole array of seeds. NumPy makes the generators and the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import PCG64, Generator
from numpy.random.bit_generator import ISeedSequence

from attn_exp.arrays import Array, draw, draw_from
from attn_exp.config.inputs import DISTRIBUTIONS, STREAMS, Draw, Projections
from attn_exp.config.schema import Config
from attn_exp.forms.trace import ApartError, pile
from attn_exp.problem import sources
from attn_exp.problem.drawing import Distribution, Shape
from attn_exp.problem.matrices import BIASES
from attn_exp.problem.problem import Problem, build, check_size, with_sides
from attn_exp.problem.projections import drawn_by_name

ARRAYS = ("x", "q", "k", "v", "weights", "memory")


def stacked(config: Config, first: Problem, seeds: Sequence[int]) -> Problem:
    """Return the problems of all seeds as one, every array `[n ...]`, bit-identical to `build`; `first` is one of them.

    Raises:
        ApartError: their arrays differ in shape, or their tokens in names.
        UserError: as `build`.
    """
    if first.x is None or not is_drawn_plainly(config):
        return pile_problems([build(replace(config, seed=seed)) for seed in seeds])
    with np.errstate(over="ignore", invalid="ignore"):
        problem = redraw(config, first, ManyNumbers(seeds))
        check_size(extreme(problem))
    return problem


def redraw(config: Config, first: Problem, numbers: ManyNumbers) -> Problem:
    x, given = first.x, config.embeddings
    assert x is not None
    if given.distribution is None:
        x = np.broadcast_to(x, (len(numbers.seeds), *x.shape))
    else:
        drawn = Distribution(given.distribution, given.low, given.high, key="embeddings.")
        x = numbers.array("x", drawn, x.shape).astype(float)
    arrays = {
        name: redraw_projection(config.projections, name, array, numbers) for name, array in first.projections.items()
    }
    return with_sides(replace(first, x=x, projections=arrays))


def is_drawn_plainly(config: Config) -> bool:
    """Say whether x and the projections are the same for every seed, or drawn from streams of their own by name."""
    x, own = config.embeddings, config.projections
    said = sources.said(x)
    drawn = list(said) == ["distribution"] and x.seed is None and x.generator in (None, STREAMS) and not x.columns
    written = list(said) == ["vectors"] and not isinstance(x.vectors, Draw | str)
    plain = Projections(source=own.source, spread=own.spread, low=own.low, high=own.high)
    widths = {name: getattr(own, name) for name in ("width", "key_width", "value_width", "output_width")}
    return (
        (drawn or written)
        and x.memory is None
        and config.generator == STREAMS
        and not config.draws
        and own == replace(plain, **widths)
        and own.source in (*DISTRIBUTIONS, "identity")
    )


def redraw_projection(settings: Projections, name: str, array: Array, numbers: ManyNumbers) -> Array:
    if settings.source not in DISTRIBUTIONS:
        return np.broadcast_to(array, (len(numbers.seeds), *array.shape))
    shape = (1, array.size) if name in BIASES else (len(array), array.shape[1])
    drawn = drawn_by_name(settings, name, shape, numbers.array)
    return drawn.reshape(len(drawn), -1) if name in BIASES else drawn


def pile_problems(problems: Sequence[Problem]) -> Problem:
    first = problems[0]
    for other in problems[1:]:
        if (other.tokens, other.key_tokens, other.past) != (first.tokens, first.key_tokens, first.past):
            raise ApartError
    named: dict[str, Any] = {name: pile([getattr(problem, name) for problem in problems]) for name in ARRAYS}
    arrays = {name: pile([problem.projections.get(name) for problem in problems]) for name in first.projections}
    return replace(first, **named, projections=arrays)


def map_arrays(problem: Problem, change: Callable[[Array], Array]) -> Problem:
    given = {name: getattr(problem, name) for name in ARRAYS}
    changed: dict[str, Any] = {name: None if array is None else change(array) for name, array in given.items()}
    return replace(problem, **changed, projections={name: change(one) for name, one in problem.projections.items()})


def one(problem: Problem, place: int) -> Problem:
    return map_arrays(problem, lambda array: array[place])


def extreme(problem: Problem) -> Problem:
    """Return a problem whose numbers are as large as the largest of all seeds: what it fits, all fit."""
    return map_arrays(problem, lambda array: np.abs(array).max(axis=0))


POOL, WORDS = 4, 8
"""The numbers of 32-bit words that the hash mixes, and that seed a generator."""

WORD = 2**32
ENTROPY, STATE = (0x43B0D7E5, 0x931E8875), (0x8B51F9DD, 0x58F38DED)
"""The initial constant and the multiplier of the hash of the entropy, and of that of the state."""

LEFT, RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
HALF = np.uint32(16)


class Hashed(ISeedSequence):
    """A seed sequence with a precomputed state."""

    def __init__(self, state: Array) -> None:
        self.state = state

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Array:
        """Return the state: the 4 words of 64 bits that `PCG64` requests."""
        return self.state


@dataclass(frozen=True)
class ManyNumbers:
    """`drawing.Numbers` for many seeds: every random array from a stream of its own by name."""

    seeds: Sequence[int]

    def array(self, name: str, distribution: Distribution, shape: Shape) -> Array:
        """Return the arrays of that name, `[n *shape]`."""
        numbers = draw_many(self.seeds, name, distribution.name, shape, distribution.bounds(-1.0))
        return distribution.spread * numbers + distribution.mean


def draw_many(
    seeds: Sequence[int], name: str, distribution: str, shape: Shape, bounds: tuple[float, float] = (-1.0, 1.0)
) -> Array:
    if not all(0 <= seed < WORD for seed in seeds):
        return np.stack([draw(seed, name, distribution, shape, bounds) for seed in seeds])
    generators = (Generator(PCG64(Hashed(state))) for state in states(seeds, name))  # type: ignore[arg-type]
    return np.stack([draw_from(generator, distribution, shape, bounds) for generator in generators])


def states(seeds: Sequence[int], name: str) -> Array:
    """Return `SeedSequence([seed, *name]).generate_state(4, uint64)` of each seed, `[n 4]`."""
    whose = np.array(seeds, np.uint32)
    words = [whose, *(np.full_like(whose, byte) for byte in name.encode())]
    words += [np.zeros_like(whose)] * (POOL - len(words))
    constants = powers_of(*ENTROPY)
    pool = [hash_step(word, constants) for word in words[:POOL]]
    for source in range(POOL):
        for target in range(POOL):
            if source != target:
                pool[target] = mix(pool[target], hash_step(pool[source], constants))
    for word in words[POOL:]:
        pool = [mix(target, hash_step(word, constants)) for target in pool]
    constants = powers_of(*STATE)
    state = np.stack([hash_step(pool[place % POOL], constants) for place in range(WORDS)], axis=1)
    return np.ascontiguousarray(state.astype("<u4")).view("<u8").astype(np.uint64)


def powers_of(constant: int, factor: int) -> Iterator[tuple[np.uint32, np.uint32]]:
    """Yield consecutive pairs of a constant multiplied by a factor again and again, in 32 bits."""
    while True:
        following = constant * factor % WORD
        yield np.uint32(constant), np.uint32(following)
        constant = following


def hash_step(words: Array, constants: Iterator[tuple[np.uint32, np.uint32]]) -> Array:
    constant, following = next(constants)
    words = (words ^ constant) * following
    return np.asarray(words ^ (words >> HALF))


def mix(one: Array, other: Array) -> Array:
    mixture = np.asarray(one * LEFT - other * RIGHT, np.uint32)
    return np.asarray(mixture ^ (mixture >> HALF))
