"""PyTorch's generator and layers, held to PyTorch itself, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from attn_exp.problem.generators.generator import Start
from attn_exp.problem.generators.torch import Torch

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")

import torch

from attn_exp.arrays import Array

SEEDS = (0, 1, 123, -1, -(2**63), 2**32 - 1, 2**32 + 5, 2**64 - 1)
COUNTS = (1, 2, 3, 15, 16, 17, 31, 32, 33, 100, 1000)
"""Below 16, at it, and at the tails of one block and several."""

CALLS: tuple[tuple[Callable[[int], torch.Tensor], Callable[[Torch, int], Array]], ...] = (
    (torch.rand, lambda mine, n: mine.uniform((n,))),
    (lambda n: torch.empty(n).uniform_(-0.3, 0.7), lambda mine, n: mine.uniform((n,), -0.3, 0.7)),
    (torch.randn, lambda mine, n: mine.normal((n,))),
    (lambda n: torch.normal(0.1, 0.02, (n,)), lambda mine, n: mine.normal((n,), 0.1, 0.02)),
    (lambda n: torch.randint(-3, 40, (n,)), lambda mine, n: mine.integers((n,), -3, 40)),
    (lambda n: torch.randint(-3, 2**40, (n,)), lambda mine, n: mine.integers((n,), -3, 2**40)),
    (lambda n: torch.randint(7, 2**31, (n,)), lambda mine, n: mine.integers((n,), 7, 2**31)),
)


def begun(seed: int) -> Torch:
    torch.manual_seed(seed)
    return Torch(Start(seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_calls_in_any_order_draw_the_same_bits(seed: int) -> None:
    mine = begun(seed)
    order = np.random.default_rng(7)
    for _ in range(150):
        theirs, ours = CALLS[order.integers(len(CALLS))]
        count = int(order.choice(COUNTS))
        assert_array_equal(ours(mine, count), theirs(count).numpy())


def test_the_second_of_a_pair_waits_for_the_next_small_call_and_a_seed_forgets_it() -> None:
    mine = begun(4)
    assert_array_equal(mine.normal((3,)), torch.randn(3).numpy())
    assert_array_equal(mine.uniform((5,)), torch.rand(5).numpy())
    assert_array_equal(mine.normal((40,)), torch.randn(40).numpy())
    assert_array_equal(mine.normal((1,)), torch.randn(1).numpy())
    assert_array_equal(begun(4).normal((3,)), torch.randn(3).numpy())


@pytest.mark.long
def test_whole_numbers_of_every_span_and_uniform_ones_of_narrow_bounds_are_the_same() -> None:
    """Spans from 2^28 on take words of 64 bits; numbers that round up to the upper bound become the lower one."""
    rng = np.random.default_rng(3)
    spans = [2**power + more for power in range(1, 54) for more in (-1, 0, 1)]
    for seed, span in enumerate([*spans, *(int(2**power) for power in rng.uniform(27, 33, 200))]):
        mine, low = begun(seed), int(rng.integers(-1000, 1000))
        assert_array_equal(
            mine.integers((5,), low, low + span), torch.randint(low, low + span, (5,)).numpy(), str(span)
        )
    assert (begun(1).uniform((500,), 859.0, 859.001) == np.float32(859.0)).any()
    for seed, low in enumerate(rng.normal(0, 500, 100).tolist()):
        mine = begun(seed)
        assert_array_equal(mine.uniform((60,), low, low + 1e-3), torch.empty(60).uniform_(low, low + 1e-3).numpy())
