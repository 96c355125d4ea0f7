"""The right functions of the zoo are right for whatever their keywords ask, by loops and by PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.zoo import calls, oracle
from tests.zoo.case import Case
from tests.zoo.oracle import Asked
from tests.zoo.rights import RIGHT
from tests.zoo.test_zoo import Array, gap


def asks(case: Case) -> Iterator[Asked]:
    """Yield what the settings ask, and then each thing more that a keyword of the function can ask."""
    ask, names = oracle.asked(case.settings), set(calls.takes(case.function))
    yield ask
    if names & {"is_causal", "causal"}:
        yield replace(ask, causal=True)
    if names & {"scale", "sm_scale"}:
        yield replace(ask, scale=0.3)
    if "enable_gqa" in names:
        yield replace(ask, kv_head=3)
    if "window_size" in names:
        yield from (replace(ask, window=sides) for sides in ((2, 1), (0, 0), (-1, 1), (1, -1)))
    if "lengths" in names:
        yield from (replace(ask, length=length) for length in (0, 1, 4))


def masks(case: Case, arrays: dict[str, Array]) -> Iterator[Array | None]:
    """Yield no mask, one that leaves every query a key, and one that leaves one query none."""
    yield None
    if set(calls.MASKS) & set(calls.takes(case.function)):
        mask = calls.some_mask(arrays, seed=5)
        yield mask
        empty = mask.copy()
        empty[1, :, 2] = False
        yield empty


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_a_right_function_is_right(case: Case) -> None:
    for ask in asks(case):
        if calls.is_layer(case.function):
            arrays = calls.layer_arrays(case.function, ask, seed=4)
            given, expected = calls.call(case.function, arrays, ask), calls.expected(case.function, arrays, ask)
            assert gap(given, expected) < 1e-10
            continue
        for square in (False, True):
            arrays = calls.core_arrays(ask, 4, square)
            for mask in masks(case, arrays):
                given = calls.call(case.function, arrays, ask, mask)
                assert gap(given, calls.expected(case.function, arrays, ask, mask)) < 1e-10


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
def test_large_numbers_do_not_overflow(case: Case) -> None:
    ask = oracle.asked(case.settings)
    if calls.is_layer(case.function):
        arrays = calls.layer_arrays(case.function, ask, seed=6)
        assert np.isfinite(calls.call(case.function, {**arrays, "x": arrays["x"] * 100}, ask)).all()
        return
    arrays = calls.core_arrays(ask, 6)
    large = {**arrays, "q": arrays["q"] * 300, "k": arrays["k"] * 300}
    assert np.isfinite(calls.call(case.function, large, ask)).all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("groups", [None, 2])
def test_the_loops_agree_with_pytorch(causal: bool, groups: int | None) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
    arrays = calls.core_arrays(Asked(kv_head=groups), seed=8)
    mask = calls.some_mask(arrays, seed=8) & (np.tri(5, 7, dtype=np.bool_) | (not causal))
    q, k, v, keep = (torch.from_numpy(array) for array in (*arrays.values(), mask))
    theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=keep, enable_gqa=groups is not None)
    ours = oracle.attention(arrays["q"], arrays["k"], arrays["v"], Asked(causal=causal), mask)
    np.testing.assert_allclose(theirs.numpy(), ours, rtol=0, atol=1e-13)
