"""Modules that want other things than numbers are made, called and judged as any other."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

import attn_exp
from attn_exp.diagnosis.matrices.sizes_of_files import exchanged
from attn_exp.errors import UserError

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")

import torch

from tests.diagnosis import layers_of_no_library as numpy_ones
from tests.diagnosis import modules_made_of_things as of

KINDS = [kind for kind in vars(of).values() if inspect.isclass(kind) and issubclass(kind, torch.nn.Module)
         and kind not in (of.Packed, of.Plain, of.Turning)]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_it_is_made_of_and_called_with_is_found(kind: Any) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert verdict.passed, verdict


@pytest.mark.parametrize("kind", [of.OfDictionary, of.OfVideo], ids=lambda kind: kind.__name__)
def test_its_mistake_is_named(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of, "mixed", lambda q, k, v: (q @ k.mT).softmax(-1) @ v)
    assert attn_exp.check(kind, quick=True).mistakes == ("no_scale",)


@pytest.mark.parametrize("kind", [of.OfAbstractSettings, of.OfASwitchOfItsSettings], ids=lambda kind: kind.__name__)
def test_what_settings_are_given_is_what_most_people_mean(kind: Any) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert verdict.passed, verdict
    assert "made with" not in verdict.findings[0].said


class OfASwitchInside(of.OfASwitch):
    """It makes q, k and v in a way of its own, so that its attention is seen from inside alone."""

    def sides(self, x: Any) -> Any:
        return super().sides(x + x.sin())


@pytest.mark.parametrize("kind", [of.OfASwitch, OfASwitchInside], ids=lambda kind: kind.__name__)
def test_a_switch_that_is_not_left_as_it_is_by_default_is_said(kind: Any) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert verdict.passed, verdict
    assert "made with scaling=True" in verdict.findings[0].said


def test_sizes_of_a_file_are_those_of_one_thread_at_a_time() -> None:
    seen = list[int]()

    def other() -> None:
        with exchanged(of.OfItsFile, {"d_model": 4}):
            seen.append(of.d_model)

    thread = Thread(target=other)
    with exchanged(of.OfItsFile, {"d_model": 3}):
        thread.start()
        thread.join(0.2)
        assert thread.is_alive() and of.d_model == 3
    thread.join()
    assert seen == [4] and of.d_model == 512


def test_layers_that_want_each_other_are_not_made_without_end() -> None:
    verdict = attn_exp.check(of.OfOthers, quick=True)
    assert verdict.passed, verdict


@pytest.mark.parametrize(
    "kind", [numpy_ones.OfLayers, numpy_ones.OfOneText, numpy_ones.Narrow], ids=lambda kind: kind.__name__
)
def test_a_layer_of_no_library_is_asked_as_any_other(kind: Any) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert verdict.passed, verdict


def test_the_mistake_of_a_layer_of_no_library_is_named() -> None:
    assert attn_exp.check(numpy_ones.Unscaled, quick=True).mistakes == ("no_scale",)
    assert attn_exp.check(numpy_ones.Unscaled(12, 2), quick=True).mistakes == ("no_scale",)
    assert attn_exp.check(numpy_ones.NarrowByWidth, quick=True).mistakes == ("scale_by_sqrt_d_model",)


@pytest.mark.long
def test_an_object_of_nobodys_library_under_jax_is_made_of_a_key_and_compiled_as_a_whole() -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed: pip install jax")

    class Holder:
        """It says of all that it lacks that no such key is there."""

        def __init__(self) -> None:
            vars(self)["arrays"] = {}

        def __setattr__(self, name: str, value: Any) -> None:
            self.arrays[name] = value

        def __getattr__(self, name: str) -> Any:
            return vars(self)["arrays"][name]

    class Layer(Holder):
        calls = 0

        def __init__(self, rnd_key: Any, heads: int, d_model: int) -> None:
            super().__init__()
            self.heads, keys = heads, jax.random.split(rnd_key, 4)
            self.w_q, self.w_k, self.w_v, self.last = (jax.random.normal(key, (d_model, d_model)) / 5 for key in keys)

        def __call__(self, *, query: Any, key: Any, value: Any) -> Any:
            Layer.calls += 1
            sides = ((query, self.w_q), (key, self.w_k), (value, self.w_v))
            q, k, v = ((x @ w).reshape(len(x), self.heads, -1).swapaxes(0, 1) for x, w in sides)
            shares = jax.nn.softmax(q @ k.swapaxes(1, 2) / q.shape[-1] ** 0.5, -1)
            return (shares @ v).swapaxes(0, 1).reshape(query.shape) @ self.last

    verdict = attn_exp.check(Layer, quick=True)
    assert verdict.passed, verdict
    assert Layer.calls < 60  # traced once for each shape, and called some hundred times


class Refusing(torch.nn.Module):
    """Small ones are refused; one of the size of its default has millions of numbers."""

    made: list[int] = []  # noqa: RUF012 - of the class
    called: list[int] = []  # noqa: RUF012

    def __init__(self, hidden_size: int = 4096, ways: int = 1) -> None:
        super().__init__()
        self.made.append(hidden_size)
        self.mix = torch.nn.Linear(hidden_size, hidden_size)

    def forward(self, x: Any) -> Any:
        self.called.append(len(self.mix.weight))
        raise ValueError("of another kind")


def test_a_large_layer_is_not_called_where_small_ones_were_refused() -> None:
    with pytest.raises(UserError, match="of another kind"):
        attn_exp.check(Refusing, quick=True)
    assert 4096 in Refusing.made
    assert max(Refusing.called) < 4096


class OfClippedSides(torch.nn.Module):
    """Its configuration says at which number queries, keys and values are clipped, or None."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.heads, self.at = config.n_heads, config.attn_config.clip_qkv
        self.packed, self.last = (
            torch.nn.Linear(config.d_model, 3 * config.d_model),
            torch.nn.Linear(config.d_model, config.d_model),
        )

    def forward(self, x: Any) -> Any:
        made = self.packed(x)
        made = made.clamp(
            -self.at if self.at is not None else -torch.inf, self.at if self.at is not None else torch.inf
        )
        q, k, v = (side.unflatten(-1, (self.heads, -1)).transpose(1, 2) for side in made.chunk(3, -1))
        said = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return self.last(said.transpose(1, 2).flatten(2))


def test_nothing_is_clipped_where_a_configuration_says_at_which_number() -> None:
    assert attn_exp.check(OfClippedSides, quick=True).passed


def test_sides_that_are_all_zero_are_no_right_attention() -> None:
    layer = OfClippedSides(SimpleNamespace(n_heads=3, d_model=24, attn_config=SimpleNamespace(clip_qkv=0.0)))
    with pytest.raises(UserError, match="no matrix that it holds changes its answer"):
        attn_exp.check(layer, quick=True)


class OfAnEncoder(torch.nn.Module):
    """What keys and values are made of may be left out by its name alone; its sizes have longer names."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.heads, self.shared = config.cross_num_attention_heads, config.cross_num_key_value_heads
        size = config.hidden_size // self.heads
        self.q_proj, self.o_proj = (torch.nn.Linear(config.hidden_size, config.hidden_size) for _ in range(2))
        self.k_proj, self.v_proj = (torch.nn.Linear(config.hidden_size, size * self.shared) for _ in range(2))

    def forward(self, x: Any, cross_attention_states: Any = None) -> Any:
        q = self.q_proj(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = (
            made(cross_attention_states).unflatten(-1, (self.shared, -1)).transpose(1, 2)
            for made in (self.k_proj, self.v_proj)
        )
        said = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return self.o_proj(said.transpose(1, 2).flatten(2))


def test_keys_are_made_of_the_states_of_cross_attention() -> None:
    verdict = attn_exp.check(OfAnEncoder, quick=True)
    assert verdict.passed, verdict
    assert ("keys of another input", "held") in {(one.rung, one.state) for one in verdict.findings}


@dataclass
class Strict:
    """A configuration that takes no number for a word, and counts key/value heads by itself."""

    hidden_size: int = 64
    num_attention_heads: int = 8
    hidden_act: Any = "gelu"
    output_hidden_states: Any = False

    def __post_init__(self) -> None:
        if not (isinstance(self.hidden_act, str) and isinstance(self.output_hidden_states, bool)):
            raise TypeError("a word is wanted")
        self.num_key_value_heads = self.num_attention_heads


class OfStrictSettings(torch.nn.Module):
    """Its key/value heads are as many as its configuration says."""

    def __init__(self, config: Strict) -> None:
        super().__init__()
        self.heads, self.groups = config.num_attention_heads, config.num_attention_heads // config.num_key_value_heads
        self.sides = torch.nn.ModuleDict(
            {f"{side}_proj": torch.nn.Linear(config.hidden_size, config.hidden_size) for side in "qkvo"}
        )

    def forward(self, x: Any) -> Any:
        q, k, v = (
            self.sides[f"{side}_proj"](x).unflatten(-1, (self.heads, -1)).transpose(1, 2).repeat(1, times, 1, 1)
            for side, times in (("q", 1), ("k", self.groups), ("v", self.groups))
        )
        said = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return self.sides["o_proj"](said.transpose(1, 2).flatten(2))


def test_a_configuration_is_given_no_size_for_a_word_or_a_switch() -> None:
    verdict = attn_exp.check(OfStrictSettings, quick=True)
    assert verdict.passed, verdict
