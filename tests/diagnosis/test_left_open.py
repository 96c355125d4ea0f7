"""Layers that no definition describes: what holds of them, what is left open, and how a user sets that aside."""

from __future__ import annotations

from pathlib import Path

import pytest

import attn_exp

pytest.importorskip("torch", reason="it is not installed")

ADDITIVE = """
import torch
from torch import nn


class Additive(nn.Module):
    def __init__(self, width=10):
        super().__init__()
        self.of_q, self.of_k, self.v = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, query, key, value):
        hidden = torch.tanh(self.of_q(query) + self.of_k(key))
        weights = self.v(hidden).squeeze(-1).SOFTMAX
        return weights.unsqueeze(1) @ value


def make():
    torch.manual_seed(0)
    memory = torch.randn(2, 7, 10)
    return Additive().eval(), {"query": torch.randn(2, 1, 10), "key": memory, "value": memory + 1}
"""
CHANNELS = """
import torch
from torch import nn


class Channels(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Conv1d(12, 12, 1) for _ in range(4))

    def forward(self, x, c):
        q, k, v = (one.reshape(one.shape[0], 3, 4, -1).transpose(2, 3) for one in (self.q(x), self.k(c), self.v(c)))
        context = (q @ k.transpose(2, 3) / SCALE).softmax(-1) @ v
        return self.o(context.transpose(2, 3).reshape(x.shape))


def make():
    torch.manual_seed(0)
    return Channels().eval(), {"x": torch.randn(2, 12, 5), "c": torch.randn(2, 12, 7)}
"""
WINDOWS = """
import torch
from torch import nn


class Windows(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.o = nn.Linear(10, 30, bias=False), nn.Linear(10, 10)

    def forward(self, x):
        b, h, w, m = x.shape
        windows = x.reshape(b, h // 2, 2, w // 2, 2, m).transpose(2, 3).reshape(-1, 4, m)
        q, k, v = self.qkv(windows).chunk(3, -1)
        context = (q @ k.transpose(1, 2) / m**0.5).softmax(-1) @ v
        return self.o(context).reshape(b, h // 2, w // 2, 2, 2, m).transpose(2, 3).reshape(b, h, w, m)


def make():
    torch.manual_seed(0)
    return Windows().eval(), {"x": torch.randn(2, 8, 4, 10)}
"""


OF_PLACES = """
import flax.linen as nn
import jax


class OfPlaces(nn.Module):
    @nn.compact
    def __call__(self, x):
        q, k, v = (nn.Dense(6)(x) for _ in range(3))
        places = self.param("places", nn.initializers.normal(1.0), (9, 6))[: x.shape[1]]
        weights = jax.nn.softmax(q @ (k + places).swapaxes(-1, -2) / 6**0.5)
        return nn.Dense(6)(weights @ v)
"""


ARGUMENTS = """
import numpy as np


def make(q, k, v, mask=None, is_causal=False, scale=None, return_weights=False, **options):
    groups = q.shape[-3] // k.shape[-3]
    k, v = k.repeat(groups, -3), v.repeat(groups, -3)
    scores = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    allowed = np.tril(np.ones(scores.shape[-2:], bool))
    BODY
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ v
"""
USUAL = "scores = q @ k.swapaxes(-1, -2) * (scale or q.shape[-1] ** -0.5)"
HIDDEN = "scores = np.where(allowed | (not is_causal), scores, -np.inf)"
LOST = {
    "`is_causal` together with `scale`": f"{HIDDEN} if is_causal else (scale or 1 / q.shape[-1] ** 0.5) * (q @ k.mT)",
    "`masks` together with fewer key/value heads": f"{USUAL}; {HIDDEN}; "
    "scores = scores if mask is None or groups > 1 else np.where(mask, scores, -np.inf)",
    "argument `return_weights`": f"{USUAL.replace('scale', '(not return_weights and scale)')}; {HIDDEN}",
    "argument `options`": f"{USUAL}; {HIDDEN}; scores = scores + options.get('past', 0)",
}
"""What is lost where two arguments meet, or with an option that should change nothing."""


def checked(code: str, folder: Path, *words: str) -> attn_exp.Verdict:
    path = folder / f"layer{len(list(folder.iterdir()))}.py"  # bytecode of a changed file may be as old as the file
    path.write_text(code, encoding="utf-8")
    return attn_exp.check(f"{path}:make", *words, quick=True)


@pytest.mark.long
def test_additive_attention_is_left_open_by_name(tmp_path: Path) -> None:
    code = ADDITIVE.replace("SOFTMAX", "softmax(-1)")
    verdict = checked(code, tmp_path)
    assert verdict.outcome == "not verified" and verdict.verified == ("weights sum to 1",), verdict
    assert [one.split(" (")[0] for one in verdict.not_verified] == [
        "`scores`",
        "`projections` before and after attention",
    ]
    assert checked(code, tmp_path, "ignore=[scores,projections]").passed
    with pytest.raises(attn_exp.UserError, match="neither scores nor weights"):
        checked(ADDITIVE.replace("SOFTMAX", "sigmoid()"), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("left", LOST)
def test_what_only_two_arguments_or_an_option_lose_is_left_open(left: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(ARGUMENTS.replace("BODY", LOST[left]), encoding="utf-8")
    verdict = attn_exp.check(f"{tmp_path / 'own.py'}:make")
    assert [one.split(" (")[0] for one in verdict.not_verified] == [left], verdict


@pytest.mark.long
def test_the_width_of_a_matrix_tells_the_axis_of_the_channels(tmp_path: Path) -> None:
    assert checked(CHANNELS.replace("SCALE", "2"), tmp_path).passed
    assert checked(CHANNELS.replace("SCALE", "4"), tmp_path).mistakes == ("scale_by_d",)


@pytest.mark.long
def test_an_image_keeps_the_size_that_its_factory_gives(tmp_path: Path) -> None:
    verdict = checked(WINDOWS, tmp_path)
    assert verdict.outcome == "not verified" and "weights sum to 1" in verdict.verified, verdict


@pytest.mark.long
def test_parameters_of_flax_that_the_definition_has_no_place_for_leave_it_open(tmp_path: Path) -> None:
    pytest.importorskip("flax", reason="it is not installed")
    path = tmp_path / "layer.py"
    path.write_text(OF_PLACES, encoding="utf-8")
    verdict = attn_exp.check(f"{path}:OfPlaces", quick=True)
    assert verdict.outcome == "not verified" and "`constant`" in str(verdict), verdict
