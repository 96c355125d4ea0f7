"""Modules that nobody here knows: made, called, and their matrices found by what they do."""

from __future__ import annotations

from typing import Any

import pytest

import attn_exp
from attn_exp.errors import UncalledError

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")

from tests.diagnosis import strange_modules as of


@pytest.mark.parametrize(
    ("kind", "around"),
    [
        (of.Nameless, ""),
        (of.Nameless(20, 5), ""),
        (of.Surrounded, "with GroupNorm before and a residual after"),
        (of.PostNorm, "with a residual after and LayerNorm after it"),
        (of.GroupedAndNormed, "with RMSNorm of k and q"),
        (of.NoParameters, ""),
        (of.Lazy, ""),
        (of.KeyMask, ""),
        (of.NormedAndNotScaled, "with RMSNorm of k and q and no other scale"),
        (of.OfLayers, ""),
        (of.ByDistance, ""),
        (of.OfImages, "with LayerNorm before"),
        (of.BesideAFeedforward, "after.weight set to 0"),
    ],
)
def test_a_module_whose_names_say_nothing_is_understood(kind: Any, around: str) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert verdict.passed, verdict
    assert around in verdict.findings[0].said


def test_its_mistake_is_named_as_that_of_any_other() -> None:
    assert attn_exp.check(of.NamelessUnscaled, quick=True).mistakes == ("no_scale",)
    assert attn_exp.check(of.BesideAFeedforwardUnscaled, quick=True).mistakes == ("no_scale",)


@pytest.mark.long
def test_a_layer_of_keras_needs_no_adapter() -> None:
    keras = pytest.importorskip("keras", reason="Keras is not installed")
    verdict = attn_exp.check(keras.layers.MultiHeadAttention(3, 8), quick=True)
    assert verdict.findings[0].state == "held", verdict
    assert not verdict.mistakes, verdict


@pytest.mark.long
def test_a_class_of_keras_is_made_and_called_as_it_stands() -> None:
    keras = pytest.importorskip("keras", reason="Keras is not installed")
    verdict = attn_exp.check(keras.layers.MultiHeadAttention, quick=True)
    assert verdict.passed, verdict
    verdict = attn_exp.check(keras.layers.Attention, "scale=false", quick=True)  # a list of queries, values and keys
    assert verdict.passed, verdict
    assert "padding" in [finding.rung for finding in verdict.findings if finding.state == "held"]


def test_a_layer_of_flax_is_made_and_understood() -> None:
    linen = pytest.importorskip("flax.linen", reason="flax is not installed: pip install flax")
    verdict = attn_exp.check(linen.MultiHeadDotProductAttention, quick=True)
    assert verdict.findings[0].state == "held", verdict
    assert not verdict.mistakes, verdict


def test_what_cannot_be_called_says_why() -> None:
    with pytest.raises(UncalledError, match=r"Uncallable cannot be called with x: .* has no attribute 'edges'"):
        attn_exp.check(of.Uncallable, quick=True)
