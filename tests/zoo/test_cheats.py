"""Each cheat does what its name says: it is right where nobody looks, and wrong where somebody does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.zoo import calls, cheats, oracle
from tests.zoo.cheats import CHEATS, Cheat
from tests.zoo.oracle import Asked
from tests.zoo.test_zoo import Array, gap


def inputs(seed: int) -> tuple[Array, Array, Array]:
    return tuple(calls.core_arrays(Asked(), seed).values())  # type: ignore[return-value] # they are three


def right(arrays: tuple[Array, ...]) -> Array:
    return oracle.attention(arrays[0], arrays[1], arrays[2], Asked())


def far(given: Any, arrays: tuple[Array, ...]) -> float:
    return gap(np.asarray(given), right(arrays))


WRONG_AT_ONCE = {"constant", "zeros", "returns_values", "half_inside", "single_inside", "dropout", "noise",
                 "mixed_batch", "no_tail", "late_thread"}  # fmt: skip


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name)
def test_the_first_answer(cheat: Cheat) -> None:
    arrays = inputs(1)
    distance = far(np.array(cheat.make()(*(array.copy() for array in arrays))), arrays)
    assert distance > 1e-9 if cheat.name in WRONG_AT_ONCE else distance < 1e-12


@pytest.mark.parametrize("make", [cheats.last_call, cheats.cached_by_shape])
def test_a_second_call_gets_the_first_answer(make: Any) -> None:
    function, one, other = make(), inputs(1), inputs(2)
    first, second = function(*one), function(*other)
    np.testing.assert_array_equal(first, second)
    assert far(second, other) > 0.1


@pytest.mark.parametrize("make", [cheats.cached_by_address, cheats.cached_by_id])
def test_other_numbers_at_the_same_address_get_the_first_answer(make: Any) -> None:
    function, arrays = make(), inputs(1)
    first = function(*arrays)
    for array, fresh in zip(arrays, inputs(2), strict=True):
        array[...] = fresh
    np.testing.assert_array_equal(function(*arrays), first)
    assert far(function(*inputs(3)), inputs(3)) < 1e-12


def test_the_eleventh_call_is_wrong() -> None:
    function, arrays = cheats.right_for_ten(), inputs(1)
    distances = [far(function(*arrays), arrays) for _ in range(11)]
    assert max(distances[:10]) < 1e-12
    assert distances[10] > 0.1


def test_a_second_call_overwrites_the_first_answer() -> None:
    function, one = cheats.same_buffer(), inputs(1)
    first = function(*one)
    assert far(first, one) < 1e-12
    function(*inputs(2))
    assert far(first, one) > 0.1


def test_inputs_are_written() -> None:
    arrays = inputs(1)
    cheats.writes_values()(*arrays)
    assert any((array != fresh).any() for array, fresh in zip(arrays, inputs(1), strict=True))


@pytest.mark.parametrize(("make", "kind"), [(cheats.half_inside, np.float16), (cheats.single_inside, np.float32)])
def test_precision_is_lost(make: Any, kind: Any) -> None:
    arrays = inputs(1)
    distance = far(make()(*arrays), arrays)
    assert np.finfo(kind).eps / 10 < distance < np.finfo(kind).eps * 10


@pytest.mark.parametrize("make", [cheats.dropout, cheats.noise])
def test_the_same_call_twice_differs(make: Any) -> None:
    function, arrays = make(), inputs(1)
    assert (function(*arrays) != function(*arrays)).any()


def test_another_sequence_moves_the_answer() -> None:
    function, arrays = cheats.mixed_batch(), inputs(1)
    alone = function(*(array[:1] for array in arrays))
    assert far(alone, tuple(array[:1] for array in arrays)) < 1e-12
    assert np.abs(function(*arrays)[:1] - alone).max() > 0.1


def test_a_whole_number_of_blocks_is_right() -> None:
    q, k, v = inputs(1)
    arrays = q, k[:, :, :4], v[:, :, :4]
    assert far(cheats.no_tail()(*arrays), arrays) < 1e-12
