"""PyTorch's generator and layers, held to PyTorch itself, bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from attn_exp.problem.draw_order import bias_of_linear, multi_head_attention, weight_of_linear
from attn_exp.problem.generators.generator import Start
from attn_exp.problem.generators.torch import Torch

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")

import torch
from torch import nn

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
    (torch.randperm, lambda mine, n: mine.permutation(n)),
    (lambda n: nn.functional.dropout(torch.ones(n), 0.3) != 0, lambda mine, n: mine.keeps((n,), 0.3)),
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


def test_dropout_keeps_what_a_book_prints() -> None:
    """Raschka 2024, chapter 3: `nn.Dropout(0.5)` of ones after `torch.manual_seed(123)`, as its notebook prints it."""
    rows = ("220220", "000202", "222202", "022002", "020202", "022220")
    assert ["".join("2" if kept else "0" for kept in row) for row in Torch(Start(123)).keeps((6, 6), 0.5)] == list(rows)


@pytest.mark.long
def test_a_million_normal_and_uniform_numbers_are_the_same_bits() -> None:
    mine = begun(11)
    assert_array_equal(mine.normal((1000, 1000)), torch.randn(1000, 1000).numpy())
    assert_array_equal(mine.uniform((10**6,), -0.123, 0.217), torch.empty(10**6).uniform_(-0.123, 0.217).numpy())


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


@pytest.mark.long
def test_on_processors_without_fused_steps_the_last_bits_differ_and_no_more(tmp_path: Path) -> None:
    """PyTorch can be told to compute as on such a processor, in a process of its own."""
    code = (
        "import sys, numpy, torch; torch.manual_seed(5);"
        "draws = torch.rand(10**5), torch.randn(10**5), torch.randn(3), torch.empty(10**5).uniform_(-0.123, 0.217);"
        "numpy.savez(sys.argv[1], *draws)"
    )
    environment = os.environ | {"ATEN_CPU_CAPABILITY": "default"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "draws.npz")], env=environment, check=True, timeout=60)
    mine = begun(5)
    with np.load(tmp_path / "draws.npz") as theirs:
        assert_array_equal(mine.uniform((10**5,)), theirs["arr_0"])
        assert 0 < np.abs(mine.normal((10**5,)) - theirs["arr_1"]).max() <= 3e-6
        assert_array_equal(mine.normal((3,)), theirs["arr_2"])
        assert (
            0 < np.abs(mine.uniform((10**5,), -0.123, 0.217) - theirs["arr_3"]).max() <= np.spacing(np.float32(0.217))
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_layers_one_after_another_hold_what_new_layers_hold(seed: int) -> None:
    mine = begun(seed)
    for inputs, outputs, has_bias in ((3, 2, False), (1, 1, True), (7, 4, True), (512, 64, True), (2, 2, True)):
        layer = nn.Linear(inputs, outputs, bias=has_bias)
        assert_array_equal(weight_of_linear(mine, inputs, outputs), layer.weight.detach().numpy().T)
        if has_bias:
            assert_array_equal(bias_of_linear(mine, inputs, outputs), layer.bias.detach().numpy())
        table = mine.normal((inputs, outputs), 0.0, 1.0)
        assert_array_equal(table, nn.Embedding(inputs, outputs).weight.detach().numpy())


@pytest.mark.parametrize(("size", "heads", "has_bias"), [(4, 2, True), (6, 3, False), (64, 8, True), (1, 1, True)])
def test_multi_head_attention_draws_its_output_first(size: int, heads: int, has_bias: bool) -> None:
    mine = begun(size)
    for _ in range(2):
        layer = nn.MultiheadAttention(size, heads, bias=has_bias)
        arrays = multi_head_attention(mine, size, has_bias)
        sides = np.concatenate([arrays[f"W_{letter}"].T for letter in "qkv"])
        assert_array_equal(sides, layer.in_proj_weight.detach().numpy())
        assert_array_equal(arrays["W_o"].T, layer.out_proj.weight.detach().numpy())
        assert ("b_q" in arrays) == has_bias
        assert not has_bias or not np.any([arrays[f"b_{letter}"] for letter in "qkvo"])
