"""Functions with two mistakes have both: they differ from the right one and from each with one alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.zoo import calls, oracle, pairs
from tests.zoo.case import Case
from tests.zoo.pairs import PAIRS
from tests.zoo.test_zoo import Array, gap


def both(case: Case, settings: tuple[str, ...], seed: int = 3) -> tuple[Array, Array]:
    """Return what the function gives and what is right, on as many keys as queries, under these settings."""
    ask = oracle.asked(settings)
    layered = calls.is_layer(case.function)
    arrays = calls.layer_arrays(case.function, ask, seed) if layered else calls.core_arrays(ask, seed, square=True)
    mask = np.random.default_rng(seed).random(calls.some_mask(arrays, seed).shape) < 0.6
    given = calls.call(case.function, arrays, ask, mask)
    return given, calls.expected(case.function, arrays, ask, mask)


def in_the_same_clothes(case: Case, *mistakes: str) -> Case:
    """Return a function with some of a pair's mistakes and the pair's own keywords."""
    return replace(case, function=pairs.dressed(frozenset(mistakes), frozenset(case.mistake.split("+"))))


@pytest.mark.parametrize("case", PAIRS, ids=lambda case: case.mistake)
def test_a_pair_is_neither_right_nor_one_mistake_alone(case: Case) -> None:
    given, right = both(case, case.settings)
    assert gap(given, right) > 1e-4
    for mistake in case.mistake.split("+"):
        single, _ = both(in_the_same_clothes(case, mistake), case.settings)
        assert gap(given, single) > 1e-4


@pytest.mark.parametrize("case", PAIRS, ids=lambda case: case.mistake)
def test_the_writer_is_right_where_nothing_is_switched_on(case: Case) -> None:
    given, right = both(in_the_same_clothes(case), case.settings)
    assert gap(given, right) < 1e-12
