"""Mistakes that one call does not show, each shown by the calls that do; and that other functions do not make them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.zoo import calls, oracle
from tests.zoo.case import Case
from tests.zoo.cases import CASES, HARD
from tests.zoo.oracle import Asked
from tests.zoo.test_zoo import Array, gap

PLAIN = Asked()
MASKED = [
    case for case in CASES if set(calls.MASKS) & set(calls.takes(case.function)) and case.mistake != "empty_row_nan"
]


def cases(*mistakes: str) -> pytest.MarkDecorator:
    chosen = [case for case in CASES if case.mistake in mistakes]
    return pytest.mark.parametrize("case", chosen, ids=lambda case: case.name)


def inputs(case: Case, seed: int = 9) -> dict[str, Array]:
    ask = oracle.asked(case.settings)
    layered = calls.is_layer(case.function)
    return calls.layer_arrays(case.function, ask, seed) if layered else calls.core_arrays(ask, seed)


def answer(case: Case, arrays: dict[str, Array], mask: Array | None = None) -> Array:
    return np.array(calls.call(case.function, arrays, oracle.asked(case.settings), mask))


@cases("no_max_subtraction")
def test_large_numbers_overflow(case: Case) -> None:
    arrays = inputs(case)
    with np.errstate(all="ignore"):
        assert np.isnan(answer(case, {**arrays, "q": 1000 * arrays["q"]})).any()


@cases("dropout_on", "not_deterministic")
def test_the_same_call_twice_differs(case: Case) -> None:
    arrays = inputs(case)
    assert any((answer(case, arrays) != answer(case, arrays)).any() for _ in range(5))


@cases(*{case.mistake for case in CASES} - {"dropout_on", "not_deterministic"})
def test_all_others_answer_alike_twice(case: Case) -> None:
    arrays = inputs(case)
    if case.mistake in ("weights_transposed", "queries_keys_swapped", "mask_transposed"):
        arrays = calls.core_arrays(PLAIN, 9, square=True) if "q" in arrays else arrays
    np.testing.assert_array_equal(answer(case, arrays), answer(case, arrays))


@cases("changes_inputs")
def test_inputs_change(case: Case) -> None:
    given = calls.arguments(case.function, inputs(case), PLAIN)
    case.function(**given)
    fresh = calls.arguments(case.function, inputs(case), PLAIN)
    assert any((np.asarray(given[name]) != np.asarray(fresh[name])).any() for name in given)


@cases("reuses_output")
def test_a_second_call_overwrites_the_first(case: Case) -> None:
    first = case.function(**calls.arguments(case.function, inputs(case, 1), PLAIN))
    kept = first.copy()
    case.function(**calls.arguments(case.function, inputs(case, 2), PLAIN))
    assert gap(first, kept) > 0.1


@cases("batch_mixed")
def test_a_sequence_alone_gets_another_answer(case: Case) -> None:
    arrays = inputs(case)
    second = {name: array[1:2] for name, array in arrays.items()}
    alone = answer(case, second)
    assert gap(alone, calls.expected(case.function, second, PLAIN)) < 1e-12
    assert gap(answer(case, arrays)[1:2], alone) > 0.1


@cases("tail_dropped")
def test_whole_blocks_are_right(case: Case) -> None:
    random = np.random.default_rng(0)
    arrays = {name: random.normal(size=(2, 3, 48, 8)) for name in "qkv"}
    assert gap(answer(case, arrays), calls.expected(case.function, arrays, PLAIN)) < 1e-12
    odd = {name: array[:, :, :45] for name, array in arrays.items()}
    assert gap(answer(case, odd), calls.expected(case.function, odd, PLAIN)) > 1e-3


@cases("half_accumulation", "half_softmax")
def test_half_precision_is_as_wrong_as_its_rounding(case: Case) -> None:
    arrays = inputs(case)
    assert 2**-15 < gap(answer(case, arrays), calls.expected(case.function, arrays, PLAIN)) < 2**-6


@cases("nan_leaks")
def test_nan_of_a_masked_key_comes_through(case: Case) -> None:
    arrays = inputs(case)
    mask = calls.some_mask(arrays, 9)
    mask[..., 6] = False
    arrays["v"][:, :, 6] = np.nan
    given = answer(case, arrays, mask)
    arrays["v"][:, :, 6] = 0.0
    assert np.isnan(given).all()
    assert gap(answer(case, arrays, mask), calls.expected(case.function, arrays, PLAIN, mask)) < 1e-12


def blind(arrays: dict[str, Array]) -> Array:
    """Return a mask under which one query sees no key."""
    mask = calls.some_mask(arrays, 9)
    mask[1, :, 2] = False
    return mask


@cases("empty_row_nan")
def test_a_row_without_keys_is_nan(case: Case) -> None:
    arrays = inputs(case)
    given = answer(case, arrays, blind(arrays))
    assert np.isnan(given[1, :, 2]).all()
    assert np.isfinite(np.delete(given, 2, axis=2)).all()


@pytest.mark.parametrize("case", MASKED, ids=lambda case: case.name)
def test_no_other_function_gives_nan_there(case: Case) -> None:
    arrays = calls.core_arrays(PLAIN, 9, square=True)
    mask = blind(arrays)
    for read in (mask, ~mask, mask.swapaxes(2, 3)):
        assert np.isfinite(answer(case, arrays, read)).all()


def hard(name: str) -> Case:
    return next(case for case in HARD if case.function.__name__ == name)


def test_the_side_path_loses_the_causal_mask() -> None:
    case = hard("lost_side_path")
    arrays = inputs(case)
    mask = calls.some_mask(arrays, 9)
    causal = oracle.asked(case.settings)
    assert gap(answer(case, arrays), calls.expected(case.function, arrays, causal)) > 1e-3
    assert gap(answer(case, arrays, mask), calls.expected(case.function, arrays, causal, mask)) < 1e-12


def test_only_a_mask_beside_a_causal_one_is_changed() -> None:
    function, arrays = hard("masks_in_place").function, inputs(hard("masks_in_place"))
    mask = calls.some_mask(arrays, 9)
    for ask, changes in ((PLAIN, False), (replace(PLAIN, causal=True), True)):
        given = calls.arguments(function, arrays, ask, mask.copy())
        function(**given)
        assert (given["mask"] != mask).any() == changes


def test_fused_layouts_differ() -> None:
    case = hard("order_per_head")
    arrays = inputs(case)
    assert gap(answer(case, arrays), calls.expected(case.function, arrays, oracle.asked(case.settings))) > 0.1


def test_a_default_of_one_is_no_scale() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
    function, arrays = hard("no_scale_default").function, inputs(hard("no_scale_default"))
    unscaled, right = (calls.expected(function, arrays, Asked(scale=scale)) for scale in (1.0, 1 / math.sqrt(8)))
    assert gap(calls.call(function, arrays, PLAIN), unscaled) < 1e-12
    assert gap(calls.call(function, arrays, Asked(scale=1 / math.sqrt(8))), right) < 1e-12


def test_a_first_row_of_equal_fills_is_the_mean() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
    case = hard("causal_strict_fill")
    arrays = inputs(case)
    np.testing.assert_allclose(answer(case, arrays)[:, :, 0], arrays["v"].mean(axis=2), rtol=0, atol=1e-12)
