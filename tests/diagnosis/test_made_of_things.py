"""Modules that want other things than numbers are made, called and judged as any other."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import attn_exp
from tests.long import thinned

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")

import torch

from tests.diagnosis import layers_of_no_library as numpy_ones
from tests.diagnosis import modules_made_of_things as of

KINDS = [kind for kind in vars(of).values() if inspect.isclass(kind) and issubclass(kind, torch.nn.Module)
         and kind not in (of.Packed, of.Plain, of.Turning)]  # fmt: skip


@pytest.mark.parametrize("kind", thinned(KINDS, 2), ids=lambda kind: kind.__name__)
def test_what_it_is_made_of_and_called_with_is_found(kind: Any) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert verdict.passed, verdict


@pytest.mark.parametrize("kind", [of.OfDictionary, of.OfVideo, of.Pooling], ids=lambda kind: kind.__name__)
def test_its_mistake_is_named(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of, "mixed", lambda q, k, v: (q @ k.mT).softmax(-1) @ v)
    assert attn_exp.check(kind, quick=True).mistakes == ("no_scale",)


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
