"""Factories of the user: three lines that say how something is built and called."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch
from torch import Tensor, nn

from attn_exp.errors import UncalledError
from tests.diagnosis.layers import Layer, Masked, changed, hide_later


class OfTwoWidths(Layer):
    """Cross-attention from tokens of 24 numbers to a memory of 16; `attn_mask` is added to the logits."""

    def __init__(self, power: float = -0.5) -> None:
        super().__init__(24, 4)
        self.k_proj, self.v_proj, self.power = nn.Linear(16, 24), nn.Linear(16, 24), power

    def forward(self, x: Tensor, context: Tensor, attn_mask: Tensor | None) -> Any:  # type: ignore[override]
        q, k, v = map(self.split, (self.q_proj(x), self.k_proj(context), self.v_proj(context)))
        logits = q @ k.mT * 6**self.power
        return self.output(self.weigh(logits if attn_mask is None else logits + attn_mask) @ v)


@pytest.mark.parametrize("mask", [None, torch.full((5, 7), -math.inf).triu(3)])
@pytest.mark.parametrize(("power", "mistakes"), [(-0.5, ()), (0.5, ("scale_multiplied",))])
def test_a_factory_may_give_a_memory_of_another_width(
    mask: Tensor | None, power: float, mistakes: tuple[str, ...]
) -> None:
    def make() -> tuple[object, tuple[Tensor | None, ...]]:
        return OfTwoWidths(power).double(), (torch.randn(2, 5, 24).double(), torch.randn(2, 7, 16).double(), mask)

    verdict = attn_exp.check(make, quick=True)
    assert verdict.mistakes == mistakes
    assert verdict.outcome == ("wrong" if mistakes else "right" if mask is not None else "not verified"), verdict


def cross_attend(tokens: Tensor, context: Tensor, Wqs: Tensor, Wks: Tensor, Wvs: Tensor, swap: bool = False) -> Tensor:
    Wqs, Wks = (Wks, Wqs) if swap else (Wqs, Wks)
    q, k, v = tokens @ Wqs, context @ Wks, context @ Wvs
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v


@pytest.mark.parametrize(("swap", "outcome"), [(False, "right"), (True, "wrong")])
def test_a_factory_may_pass_keyword_arguments_whose_names_say_which_matrix_is_which(swap: bool, outcome: str) -> None:
    matrices = {name: torch.randn(8, 8).double() for name in ("Wqs", "Wks", "Wvs")}

    def make() -> tuple[object, dict[str, Tensor]]:
        inputs = {"tokens": torch.randn(2, 4, 8).double(), "context": torch.randn(2, 6, 8).double()}
        return partial(cross_attend, swap=swap), {**inputs, **matrices}

    verdict = attn_exp.check(make, quick=True)
    assert verdict.outcome == outcome, verdict
    assert verdict.mistakes == (("queries_keys_swapped",) if swap else ())


@pytest.mark.parametrize(("words", "outcome"), [((), "right"), (("mask=window", "mask.window.left=2"), "wrong")])
def test_a_factory_says_how_many_heads_a_layer_has(words: tuple[str, ...], outcome: str) -> None:
    causal = changed({"weigh": lambda _, logits: hide_later(logits).softmax(-1)})

    def make() -> tuple[object, dict[str, Tensor], dict[str, int]]:
        return causal(24, 4).double(), {"x": torch.randn(2, 5, 24, dtype=torch.float64)}, {"heads": 4}

    assert attn_exp.check(make, *words, quick=True).outcome == outcome


def test_inputs_without_a_role_are_said() -> None:
    with pytest.raises(UncalledError, match="returned queries: no name identifies the input"):
        attn_exp.check(lambda: (print, {"queries": np.ones(3)}))


class Cut(Masked):
    """A mask in which True hides."""

    def hide(self, logits: Any, mask: Any) -> Any:
        return logits.masked_fill(mask, -math.inf)


@pytest.mark.parametrize("told", [("mask", "hides"), {"keyword": "mask", "true": "hides"}])
@pytest.mark.parametrize(("polarity", "outcome"), [("hides", "right"), ("attends", "wrong")])
def test_a_factory_says_what_true_means_in_its_mask(told: Any, polarity: str, outcome: str) -> None:
    says = {**told, "true": polarity} if isinstance(told, dict) else (told[0], polarity)

    def make() -> tuple[object, dict[str, Tensor], dict[str, Any]]:
        layer = Cut(24, 3).double()
        return lambda x, mask=None: layer(x, mask), {"x": torch.randn(2, 5, 24).double()}, {"heads": 3, "mask": says}

    assert attn_exp.check(make, quick=True).outcome == outcome


def test_a_function_may_close_over_the_layer_that_projects_its_inputs() -> None:
    def make() -> tuple[object, dict[str, Tensor], dict[str, int]]:
        layer = Layer(24, 3).double()

        def call(query: Tensor, key: Tensor, value: Tensor) -> Any:
            q, k, v = map(layer.split, (layer.q_proj(query), layer.k_proj(key), layer.v_proj(value)))
            return layer.output(layer.weigh(layer.score(q, k)) @ v)

        return call, {name: torch.randn(2, 5, 24).double() for name in ("query", "key", "value")}, {"heads": 3}

    assert attn_exp.check(make, quick=True).outcome == "right"


def attend_of_three_heads(q: Tensor, k: Tensor, v: Tensor, left: int | None = None) -> Tensor:
    """Attend within `[t h d]` for three heads; `left` is the number of earlier tokens in a window."""
    q, k, v = (one.reshape(len(one), 3, -1).transpose(0, 1) for one in (q, k, v))
    logits = q @ k.mT / math.sqrt(q.shape[-1])
    behind = torch.arange(q.shape[1])[:, None] - torch.arange(k.shape[1])
    hidden = torch.zeros_like(behind).bool() if left is None else (behind < 0) | (behind > left)
    return (logits.masked_fill(hidden, -math.inf).softmax(-1) @ v).transpose(0, 1)


@pytest.mark.parametrize(
    ("left", "words", "under"),
    [
        (None, (), ""),
        (2, ("mask=window",), "mask.window.left=2"),
        (4, ("mask=[causal,window]",), "mask.window.left=4"),
    ],
)
def test_layout_heads_and_library_of_a_factory_are_used(left: int | None, words: tuple[str, ...], under: str) -> None:
    def make() -> tuple[object, dict[str, Tensor], dict[str, Any]]:
        inputs = {side: torch.randn(5, 3, 8).double() for side in "qkv"}
        return partial(attend_of_three_heads, left=left), inputs, {"heads": 3, "layout": "thd"}

    verdict = attn_exp.check(make, *words, quick=True)
    assert (verdict.outcome, verdict.right_under) == ("right", under), verdict
    assert ("to have it checked" in verdict.computes) is bool(under)


def test_a_width_that_was_told_is_not_replaced() -> None:
    def make() -> tuple[object, dict[str, Tensor], dict[str, Any]]:
        inputs = {side: torch.randn(5, 3, 8).double() for side in "qkv"}
        return partial(attend_of_three_heads, left=3), inputs, {"heads": 3, "layout": "thd"}

    verdict = attn_exp.check(make, "mask=window", "mask.window.left=2", quick=True)
    assert verdict.mistakes == ("window_one_wide",), verdict


@pytest.mark.parametrize(
    ("methods", "stage"),
    [
        ({"weigh": lambda _, logits: logits.softmax(-1) * 1.1}, "weights"),
        ({"weigh": lambda _, logits: (logits + 0.1 * logits**2).softmax(-1)}, "logits"),
    ],
)
def test_a_mistake_without_a_name_is_located_inside_a_layer(methods: Any, stage: str) -> None:
    kind = changed(methods)

    def make() -> tuple[object, dict[str, Tensor], dict[str, int]]:
        return kind(24, 3).double(), {"x": torch.randn(2, 5, 24).double()}, {"heads": 3}

    verdict = attn_exp.check(make, quick=True)
    assert (verdict.outcome, verdict.mistakes, verdict.stage) == ("wrong", (), stage)


@pytest.mark.parametrize(("power", "stage"), [(2, "weights"), (1, "")])
def test_a_mistake_without_a_name_is_located_inside_a_function(power: int, stage: str) -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) ** power @ v

    def make() -> tuple[object, dict[str, Tensor], dict[str, int]]:
        return attend, {side: torch.randn(2, 3, 5, 8).double() for side in "qkv"}, {"heads": 3}

    verdict = attn_exp.check(make, quick=True)
    assert (verdict.outcome, verdict.stage) == ("wrong" if stage else "right", stage)


def test_roles_are_passed_to_arguments_of_other_names() -> None:
    def attend(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
        logits = Q @ K.mT / math.sqrt(Q.shape[-1])
        return (logits if mask is None else logits.masked_fill(~mask, -math.inf)).softmax(-1) @ V

    def make() -> tuple[object, dict[str, Tensor]]:
        return attend, {side: torch.randn(2, 3, 5, 8).double() for side in "qkv"}

    verdict = attn_exp.check(make, quick=True)
    assert verdict.outcome == "right", verdict


def test_weights_of_a_factory_may_be_parameters() -> None:
    layer = Layer(24, 3).double()

    def attend(x: Tensor) -> Tensor:
        return layer(x)

    def make() -> tuple[object, dict[str, Tensor], dict[str, Any]]:
        named = {"W_q": layer.q_proj, "W_k": layer.k_proj, "W_v": layer.v_proj, "W_o": layer.out_proj}
        matrices = {name: linear.weight.T for name, linear in named.items()}
        return attend, {"x": torch.randn(2, 5, 24).double()}, {"heads": 3, "weights": matrices}

    assert attn_exp.check(make, quick=True).outcome == "right"


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    logits = q @ k.mT / math.sqrt(q.shape[-1])
    return (logits if mask is None else logits.masked_fill(~mask, -math.inf)).softmax(-1) @ v


def draw(*shape: int) -> dict[str, Tensor]:
    return {side: torch.randn(*shape).double() for side in "qkv"}


@pytest.mark.parametrize("options", [{"heads": 3}, {"layout": "b s h d"}, {"heads": 3, "layout": "bthd"}])
def test_tokens_may_come_before_heads(options: dict[str, Any]) -> None:
    def swapped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(*(one.transpose(1, 2) for one in (q, k, v))).transpose(1, 2)

    assert attn_exp.check(lambda: (swapped, draw(2, 5, 3, 8), options), quick=True).outcome == "right"


def test_heads_may_come_before_the_batch() -> None:
    assert attn_exp.check(lambda: (attend, draw(3, 2, 5, 8), {"layout": "hbtd"}), quick=True).outcome == "right"


@pytest.mark.parametrize("options", [{}, {"layout": {"q": "bhtd", "k": "bsd", "v": "bsd"}}])
def test_keys_without_an_axis_of_heads_are_not_verified(options: dict[str, Any]) -> None:
    def shared(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(q, k.unsqueeze(1), v.unsqueeze(1))

    inputs = {**draw(2, 5, 8), "q": torch.randn(2, 4, 5, 8).double()}
    verdict = attn_exp.check(lambda: (shared, inputs, options), quick=True)
    assert verdict.outcome == "not verified"
    assert "must have the same axes" in verdict.computes


def test_images_of_queries_are_not_verified() -> None:
    def pixels(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attend(*(one.flatten(2).mT for one in (q, k, v))).mT.reshape(q.shape)

    verdict = attn_exp.check(lambda: (pixels, draw(2, 8, 3, 4), {"layout": "bchw"}), quick=True)
    assert verdict.outcome == "not verified"


@pytest.mark.parametrize("width", [24, 7])
def test_a_function_may_close_over_several_layers(width: int) -> None:
    def make() -> tuple[object, dict[str, Tensor], dict[str, int]]:
        project_q, project_k, project_v, project = (nn.Linear(24, 24).double() for _ in "qkvo")
        embed = nn.Linear(width, 24).double()

        def call(x: Tensor) -> Any:
            x = embed(x) if x.shape[-1] == 7 else x
            q, k, v = (one.unflatten(-1, (3, 8)).transpose(1, 2) for one in (project_q(x), project_k(x), project_v(x)))
            return project(attend(q, k, v).transpose(1, 2).flatten(2))

        return call, {"x": torch.randn(2, 5, 24).double()}, {"heads": 3}

    assert attn_exp.check(make, quick=True).outcome == "right"


class Settings:
    """Like a configuration that raises KeyError for unknown names."""

    def __init__(self) -> None:
        self.size = 8

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


def test_a_function_may_close_over_anything() -> None:
    def make() -> tuple[object, dict[str, Tensor]]:
        settings = Settings()

        def call(q: Tensor, k: Tensor, v: Tensor) -> Any:
            return attend(q, k, v) if settings.size else late(q)

        if not settings.size:
            late = print  # its cell stays empty
        return call, draw(2, 3, 5, 8)

    assert attn_exp.check(make, quick=True).outcome == "right"


def test_a_mask_polarity_needs_no_keyword() -> None:
    def call(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        return attend(q, k, v, None if mask is None else ~mask)

    assert attn_exp.check(lambda: (call, draw(2, 3, 5, 8), {"mask": {"true": "hides"}}), quick=True).outcome == "right"


def test_a_layer_has_its_own_layout() -> None:
    def make() -> tuple[object, dict[str, Tensor], dict[str, int]]:
        return Layer(24, 3).double(), {"x": torch.randn(2, 5, 24).double()}, {"heads": 3}

    assert attn_exp.check(make, "layout=tbm", quick=True).outcome == "right"


def of_a_mask_of_keys(q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor) -> Tensor:
    logits = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~key_mask[:, None, None], -torch.inf)
    return logits.softmax(-1) @ v


def of_two_packed_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:  # [b h d t]
    q, k, v = (one.reshape(len(one), 2, -1, one.shape[-1]).mT for one in (q, k, v))
    return ((q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v).mT


class Block(nn.Module):
    """Attention over the places of an image, with a norm, a residual and a projection that may be left out."""

    def __init__(self, is_projected: bool) -> None:
        super().__init__()
        self.norm, self.is_projected = nn.GroupNorm(4, 8), is_projected
        self.q, self.k, self.v, self.proj_out = (nn.Conv2d(8, 8, 1) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (one(self.norm(x)).flatten(2).mT for one in (self.q, self.k, self.v))
        context = ((q @ k.mT / 8**0.5).softmax(-1) @ v).mT.reshape(x.shape)
        return x + (self.proj_out(context) if self.is_projected else context)


HEADS, IMAGE = torch.randn(2, 3, 7, 4).double(), {"x": torch.randn(2, 8, 2, 3).double()}
MADE = {
    "right": (of_a_mask_of_keys, {"q": HEADS, "k": HEADS, "v": HEADS, "key_mask": torch.ones(2, 7) > 0},
              {"mask": ("key_mask", "attends")}),
    "right ": (of_two_packed_heads, dict.fromkeys("qkv", torch.randn(2, 2, 4, 5).double()), {}),
    "not verified": (Block(True).double(), IMAGE, {"heads": 1}),  # its norm mixes tokens
    "wrong": (Block(False).double(), IMAGE, {"heads": 1}),
}  # fmt: skip


@pytest.mark.parametrize("outcome", MADE)
def test_what_factories_return_is_read_as_its_author_meant_it(outcome: str) -> None:
    verdict = attn_exp.check(lambda: MADE[outcome], quick=True)
    assert verdict.outcome == outcome.strip(), verdict
    assert verdict.mistakes == (("no_output_projection",) if outcome == "wrong" else ()), verdict
