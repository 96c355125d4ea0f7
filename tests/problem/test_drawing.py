"""Arrays of a run against what a notebook with the same seed and the same calls would hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from attn_exp.problem.problem import Problem, build
from tests.compose import config
from tests.refusal import refusal

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
pytest.importorskip("jax", reason="JAX is not installed: pip install 'attn-exp[libraries]'")

import jax
import torch
from torch import nn

SIZES = ("embeddings=random", "embeddings.tokens=5", "embeddings.d_model=6", "head=2")


def problem(*words: str) -> Problem:
    return build(config(*words))


def assert_arrays(found: Problem, **arrays: Any) -> None:
    for name, array in arrays.items():
        expected = array.detach().numpy() if isinstance(array, torch.Tensor) else np.asarray(array)
        mine = found.x if name == "x" else found.projections[name]
        assert mine is not None
        assert_array_equal(mine, expected.astype(np.float64), name)


@pytest.mark.parametrize("seed", [0, 5, -3, 2**40])
def test_one_torch_generator_draws_x_and_then_the_projections(seed: int) -> None:
    found = problem(*SIZES, "generator=torch", f"seed={seed}", "projections=uniform")
    torch.manual_seed(seed)
    assert_arrays(found, x=torch.randn(5, 6), W_q=torch.rand(6, 6), W_k=torch.rand(6, 6), W_v=torch.rand(6, 6))


def test_sizes_bounds_spread_and_another_order() -> None:
    found = problem(
        "embeddings=random", "embeddings.tokens=3", "embeddings.d_model=4", "embeddings.distribution=integers",
        "embeddings.low=-2", "embeddings.high=9", "generator=torch", "seed=8", "projections=normal", "head=1",
        "projections.order=[W_k,W_q,W_v]", "projections.width=3", "projections.value_width=5",
        "projections.spread=0.1",
    )  # fmt: skip
    torch.manual_seed(8)
    x, key, query, value = torch.randint(-2, 9, (3, 4)), torch.randn(4, 3), torch.randn(4, 3), torch.randn(4, 5)
    assert_arrays(found, x=x, W_k=key * 0.1, W_q=query * 0.1, W_v=value * 0.1)


@pytest.mark.parametrize("bias", [False, True])
def test_torch_linear_is_what_new_layers_hold_right_after_the_seed(bias: bool) -> None:
    words = (*SIZES, "projections=torch_linear", "projections.width=4", f"bias={bias}".lower(), "seed=21")
    torch.manual_seed(21)
    layers = {name: nn.Linear(6, 4, bias=bias) for name in "qkv"} | {"o": nn.Linear(4, 6, bias=bias)}
    expected = {f"W_{name}": layer.weight.T for name, layer in layers.items()}
    assert_arrays(problem(*words), **expected | {f"b_{name}": layer.bias for name, layer in layers.items() if bias})


def test_torch_linear_after_x_in_another_order_with_one_bias() -> None:
    found = problem(
        *SIZES, "generator=torch", "projections=torch_linear", "projections.order=[W_k,W_q,W_v,W_o,b_o]", "bias=true"
    )
    torch.manual_seed(0)
    x = torch.randn(5, 6)
    key, query, value = (nn.Linear(6, 6, bias=False) for _ in range(3))
    output = nn.Linear(6, 6)
    zeros = torch.zeros(6)
    matrices = {"W_k": key.weight.T, "W_q": query.weight.T, "W_v": value.weight.T, "W_o": output.weight.T}
    assert_arrays(found, x=x, **matrices, b_q=zeros, b_k=zeros, b_v=zeros, b_o=output.bias)


def test_heads_that_are_modules_of_their_own_are_drawn_head_by_head() -> None:
    found = problem(
        *SIZES, "projections=torch_linear", "projections.seed=123", "projections.order_per_head=[W_q,W_k,W_v]",
        "projections.width=8",
    )  # fmt: skip
    torch.manual_seed(123)
    heads = [{name: nn.Linear(6, 4, bias=False).weight.T for name in ("W_q", "W_k", "W_v")} for _ in range(2)]
    assert_arrays(found, **{name: torch.hstack([head[name] for head in heads]) for name in heads[0]})


@pytest.mark.parametrize("bias", [False, True])
def test_torch_mha_is_a_new_multi_head_attention(bias: bool) -> None:
    found = problem(*SIZES, "projections=torch_mha", f"bias={bias}".lower(), "seed=4")
    torch.manual_seed(4)
    layer = nn.MultiheadAttention(6, 2, bias=bias)
    query, key, value = layer.in_proj_weight.detach().chunk(3)
    assert_arrays(found, W_q=query.T, W_k=key.T, W_v=value.T, W_o=layer.out_proj.weight.T)
    assert not bias or not any(found.projections[f"b_{letter}"].any() for letter in "qkvo")


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("width", [6, 4, 10])
def test_torch_mha_of_a_memory_has_a_width_for_keys_and_values(bias: bool, width: int) -> None:
    memory = ("embeddings.memory.text=a b c", f"embeddings.memory.d_model={width}")
    found = problem(*SIZES, "projections=torch_mha", f"bias={bias}".lower(), "seed=4", *memory)
    torch.manual_seed(4)
    layer = nn.MultiheadAttention(6, 2, bias=bias, kdim=width, vdim=width)
    sides = (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight)
    query, key, value = layer.in_proj_weight.detach().chunk(3) if width == 6 else (side.detach() for side in sides)
    assert_arrays(found, W_q=query.T, W_k=key.T, W_v=value.T, W_o=layer.out_proj.weight.T)


def test_draws_say_every_call_in_its_order_and_some_are_not_used() -> None:
    found = problem(
        "embeddings=inline", "projections=identity", "generator=torch", "seed=1337", "head=1",
        "draws={x:{distribution:normal,shape:[4,8,6],entry:2},noise:{distribution:uniform,shape:[3,3]},"
        "W_k:{distribution:normal,shape:[6,5],spread:0.5},W_q:{distribution:uniform,shape:[6,5],low:-1},"
        "W_v:{distribution:integers,shape:[6,5],low:-3,high:4}}",
    )  # fmt: skip
    torch.manual_seed(1337)
    x, _, key = torch.randn(4, 8, 6)[2], torch.rand(3, 3), torch.randn(6, 5) * 0.5
    query, value = torch.empty(6, 5).uniform_(-1, 1), torch.randint(-3, 4, (6, 5))
    assert_arrays(found, x=x, W_k=key, W_q=query, W_v=value)


def test_an_array_may_have_a_generator_of_its_own_and_be_rows_of_a_table() -> None:
    found = problem(
        "embeddings=inline", "projections=identity", "head=1",
        "embeddings.vectors={distribution:normal,generator:torch,seed:123,shape:[50,3],rows:[7,0,7]}",
    )  # fmt: skip
    torch.manual_seed(123)
    assert_arrays(found, x=nn.Embedding(50, 3)(torch.tensor([7, 0, 7])))


def test_rows_may_be_calls_of_their_own() -> None:
    vectors = "embeddings.vectors={distribution:normal,generator:torch,seed:3,shape:[3,7],by_row:true}"
    found = problem("embeddings=inline", "projections=identity", "head=1", vectors)
    torch.manual_seed(3)
    assert_arrays(found, x=torch.stack([torch.randn(7) for _ in range(3)]))


def test_a_generator_of_the_embeddings_alone_leaves_the_streams_to_the_others() -> None:
    found = problem(*SIZES, "embeddings.generator=torch", "embeddings.seed=-9", "seed=2")
    torch.manual_seed(-9)
    assert_arrays(found, x=torch.randn(5, 6), W_q=problem(*SIZES, "seed=2").projections["W_q"])


@pytest.mark.long
def test_jax_draws_each_array_with_a_key_of_its_own() -> None:
    words = (*SIZES, "embeddings.distribution=uniform", "projections=uniform", "projections.spread=0.5", "seed=7")
    key = jax.random.key(7)
    subs = []
    for _ in range(4):
        key, sub = jax.random.split(key)
        subs.append(sub)
    names = ("W_q", "W_k", "W_v")
    for generator, keys in (("jax", subs), ("jax_split", list(jax.random.split(jax.random.key(7), 4)))):
        arrays = {name: jax.random.uniform(key, (6, 6)) * 0.5 for name, key in zip(names, keys[1:], strict=True)}
        assert_arrays(problem(*words, f"generator={generator}"), x=jax.random.uniform(keys[0], (5, 6)), **arrays)
    alone = problem(*words, "embeddings.generator=jax")
    assert_arrays(alone, x=jax.random.uniform(jax.random.key(7), (5, 6)))


def test_whole_numbers_come_from_streams_too_and_change_no_other_array() -> None:
    words = (*SIZES, "embeddings.distribution=integers", "embeddings.low=-1", "embeddings.high=2")
    found = problem(*words, "projections=integers")
    assert found.x is not None and set(np.unique(found.x)) == {-1, 0, 1}
    assert set(np.unique(found.projections["W_q"])) == {-2, -1, 0, 1, 2}
    assert_arrays(problem(*words), W_q=problem(*SIZES).projections["W_q"])


def test_a_given_matrix_wins_over_one_that_a_generator_draws() -> None:
    found = problem(*SIZES, "projections=torch_mha", f"+projections.given.W_q={np.eye(6).tolist()}")
    assert_arrays(found, W_q=np.eye(6))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("generator=pytorch", "unknown generator 'pytorch'; did you mean torch? choose one of streams, jax, jax_key"),
        ("generator=numpy seed=-1", "seed=-1: expected at least 0 for generator=numpy"),
        ("generator=legacy seed=4294967296", "seed=4294967296: expected a whole number from 0 to 4294967295"),
        ("embeddings.distribution=integers", "embeddings.distribution=integers needs embeddings.high"),
        ("embeddings.distribution=uniform embeddings.low=2", "embeddings.low=2 and embeddings.high=1: expected high"),
        (
            "embeddings.distribution=integers embeddings.low=0.5 embeddings.high=3",
            "embeddings.low=0.5 and embeddings.high=3: expected whole numbers",
        ),
        ("embeddings.distribution=integers embeddings.high=1e30", "expected whole numbers up to 2^53, high above low"),
        (
            "embeddings.distribution=uniform embeddings.low=-1e308 embeddings.high=1e308",
            "expected high above low, by a finite amount",
        ),
        ("generator=jax embeddings.distribution=integers embeddings.high=4294967296", "expected 32-bit bounds"),
        ("projections.seed=3", "projections.seed=3 needs projections.generator, such as torch"),
        ("projections=torch_linear projections.generator=jax", "torch_linear can be drawn only by torch"),
        ("projections=torch_linear projections.order=[W_x]", "unknown array of projections 'W_x'"),
        ("generator=torch projections.order=[W_q,W_k]", "projections.order leaves out W_v; name every matrix"),
        ("projections=the_cat_sat projections.order=[W_v]", "projections.order leaves out W_q and W_k; name"),
        ("projections=torch_linear projections.order=[] projections.order_per_head=[W_k,W_v]", "leaves out W_q; name"),
        ("projections.order=[W_q,W_k,W_v]", "projections.order needs projections.generator, such as torch"),
        ("projections=torch_mha projections.width=4", "takes its sizes and order from nn.MultiheadAttention"),
        ("projections.legacy_seed=1 projections.seed=2", "projections.legacy_seed sets both generator and seed"),
        ("draws={x:{distribution:normal,shape:[5,6]}}", "embeddings and draws.x both define x"),
        ("draws={W_q:{distribution:normal,shape:[5,6]}}", "projections.W_q has the shape [5, 6]; expected d_model=6"),
        (
            "projections=identity +projections.given.W_q=[[1]] draws={W_q:{distribution:normal,shape:[6,6]}}",
            "projections.given.W_q and draws.W_q both define W_q",
        ),
        (
            "draws={a:{distribution:normal,shape:[2,2],entry:1}}",
            "draws.a.entry=1: entries start at 0, and shape=[2, 2] has only 1",
        ),
        (
            "draws={a:{distribution:normal,shape:[2,2],rows:[2]}}",
            "draws.a.rows names row 2; there are 2",
        ),
        ("draws={a:{distribution:normal,shape:[2,2],seed:1,legacy_seed:1}}", "leave out draws.a.generator and seed"),
        (
            "draws={a:{distribution:normal,shape:[2,2],seed:-1}}",
            "draws.a.seed=-1: expected a whole number",
        ),
        ("draws=5", "draws=5: expected a name and its settings"),
    ],
)
def test_what_cannot_be_drawn_is_told_in_one_line(words: str, message: str) -> None:
    assert message in refusal(problem, *SIZES, *words.split())
