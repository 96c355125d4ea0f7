"""The other generators, held to their libraries, and the seeds that each takes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from attn_exp.problem import generators
from attn_exp.problem.generators import jax as ours
from attn_exp.problem.generators.generator import Stream
from tests.refusal import refusal

SEEDS = (0, 42, -1, 2**32 + 7, -(2**63))
SHAPES = ((1,), (4, 5), (333, 3, 7))


def begun(seed: int, name: str = "jax_key") -> Stream:
    return generators.begin(name, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_keys_are_jaxs_own(seed: int) -> None:
    random = pytest.importorskip("jax.random", reason="JAX is not installed: pip install 'attn-exp[libraries]'")
    theirs, mine = random.PRNGKey(seed), ours.first_key(seed)
    assert_array_equal(mine, theirs)
    assert_array_equal(mine, random.key_data(random.key(seed)))
    for count in (2, 3, 10):
        assert_array_equal(ours.split(mine, count), random.split(theirs, count))
    for number in (0, 1, 2**32 - 1):
        assert_array_equal(ours.fold_in(mine, number), random.fold_in(theirs, number))


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_uniform_and_whole_numbers_are_jaxs_own_bits(seed: int) -> None:
    random = pytest.importorskip("jax.random", reason="JAX is not installed: pip install 'attn-exp[libraries]'")
    key, mine = random.PRNGKey(seed), begun(seed)
    for shape in SHAPES:
        assert_array_equal(mine.uniform(shape, 0, 1), random.uniform(key, shape))
        assert_array_equal(mine.uniform(shape, -0.1, 0.3), random.uniform(key, shape, minval=-0.1, maxval=0.3))
        for low, high in ((0, 10), (-5, 7), (0, 1), (3, 65539), (-(2**31), 2**31 - 1)):
            assert_array_equal(mine.integers(shape, low, high), random.randint(key, shape, low, high))


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_normal_numbers_are_within_four_units_of_jaxs_and_nearly_all_equal(seed: int) -> None:
    random = pytest.importorskip("jax.random", reason="JAX is not installed: pip install 'attn-exp[libraries]'")
    theirs = np.asarray(random.normal(random.PRNGKey(seed), (100_000,)))
    mine = begun(seed).normal((100_000,), 0.0, 1.0)
    assert (np.abs(mine - theirs) <= 4 * np.spacing(np.abs(theirs))).all()
    assert (mine == theirs).mean() > 0.97


def test_each_draw_has_the_key_that_a_notebook_would_give_it() -> None:
    random = pytest.importorskip("jax.random", reason="JAX is not installed: pip install 'attn-exp[libraries]'")
    key = random.PRNGKey(5)
    mine = begun(5, "jax_split")
    for sub in random.split(key, 3):
        assert_array_equal(mine.uniform((4,), 0, 1), random.uniform(sub, (4,)))
    mine = generators.begin("jax", 5, draws_once=True)
    assert_array_equal(mine.uniform((4,), 0, 1), random.uniform(key, (4,)))
    mine = begun(5, "jax")
    for _ in range(3):
        key, sub = random.split(key)
        assert_array_equal(mine.uniform((4,), 0, 1), random.uniform(sub, (4,)))


@pytest.mark.parametrize("seed", [0, 3, 2**32 - 1])
def test_numpys_two_generators_in_the_order_of_a_notebook(seed: int) -> None:
    rng, mine = np.random.default_rng(seed), generators.begin("numpy", seed)
    assert_array_equal(mine.normal((3, 4), 0, 1), rng.standard_normal((3, 4)))
    assert_array_equal(mine.uniform((5,), 0, 1), rng.random(5))
    assert_array_equal(mine.integers((2, 3), -2, 9), rng.integers(-2, 9, (2, 3)))
    assert_array_equal(mine.normal((6,), 0, 0.1), rng.normal(0, 0.1, 6))
    old, mine = np.random.RandomState(seed), generators.begin("legacy", seed)
    assert_array_equal(mine.normal((3, 4), 0, 1), old.randn(3, 4))
    assert_array_equal(mine.uniform((5,), 0, 1), old.rand(5))
    assert_array_equal(mine.integers((2, 3), -2, 9), old.randint(-2, 9, (2, 3)))
    assert_array_equal(mine.normal((3,), 0, 1), old.normal(size=3))


@pytest.mark.parametrize(
    ("name", "seed", "message"),
    [
        ("legacy", 2**32, "seed=4294967296: expected a whole number from 0 to 4294967295 for generator=legacy"),
        ("numpy", -1, "seed=-1: expected at least 0 for generator=numpy"),
        ("torch", 2**64, "expected a whole number from -9223372036854775808 to 18446744073709551615"),
        ("jax", 2**63, "for generator=jax"),
        ("troch", 0, "unknown generator 'troch'; did you mean torch?"),
    ],
)
def test_a_seed_that_a_library_does_not_take_is_refused(name: str, seed: int, message: str) -> None:
    assert message in refusal(generators.begin, name, seed)


@pytest.mark.parametrize("name", tuple(generators.GENERATORS))
def test_a_generator_repeats_itself_after_its_seed_and_keeps_to_its_bounds(name: str) -> None:
    seed = max(1, generators.GENERATORS[name].least)
    one, again, other = (generators.begin(name, start) for start in (seed, seed, seed + 1))
    for draw in ("uniform", "normal", "integers"):
        numbers = getattr(one, draw)((40, 5), 3, 9)
        assert_array_equal(numbers, getattr(again, draw)((40, 5), 3, 9))
        assert numbers.shape == (40, 5) and not np.array_equal(numbers, getattr(other, draw)((40, 5), 3, 9))
        assert draw == "normal" or (numbers.min() >= 3 and numbers.max() < 9)
        assert draw != "integers" or set(np.unique(numbers)) == {3, 4, 5, 6, 7, 8}
