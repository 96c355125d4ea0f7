"""Random arrays of many seeds at once: NumPy's own streams, seed by seed."""

from __future__ import annotations

import numpy as np
import pytest

from attn_exp.problem.stack import draw_many, states

SEEDS = [0, 1, 2, 77, 2**31, 2**32 - 1]


@pytest.mark.parametrize("name", ["x", "W_q", "vectors of a memory with a long name"])
def test_the_hash_of_many_seeds_is_that_of_numpy(name: str) -> None:
    expected = [np.random.SeedSequence([seed, *name.encode()]).generate_state(4, np.uint64) for seed in SEEDS]
    np.testing.assert_array_equal(states(SEEDS, name), expected)


@pytest.mark.parametrize("seeds", [SEEDS, [5, 2**32, 2**64 + 3]])
def test_each_seed_has_the_numbers_of_its_own_stream(seeds: list[int]) -> None:
    streams = [np.random.default_rng(np.random.SeedSequence([seed, *b"W_k"])) for seed in seeds]
    normal, uniform = draw_many(seeds, "W_k", "normal", (3, 2)), draw_many(seeds, "W_k", "uniform", (4,), (-2.0, 3.0))
    np.testing.assert_array_equal(normal, [stream.standard_normal((3, 2)) for stream in streams])
    streams = [np.random.default_rng(np.random.SeedSequence([seed, *b"W_k"])) for seed in seeds]
    np.testing.assert_array_equal(uniform, [stream.uniform(-2.0, 3.0, (4,)) for stream in streams])
    streams = [np.random.default_rng(np.random.SeedSequence([seed, *b"W_k"])) for seed in seeds]
    whole = draw_many(seeds, "W_k", "integers", (2, 5), (-3.0, 9.0))
    np.testing.assert_array_equal(whole, [stream.integers(-3, 9, (2, 5)) for stream in streams])
