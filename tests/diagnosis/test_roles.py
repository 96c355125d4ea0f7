"""Modules that nobody here knows: made, called, and their matrices found by what they do."""

from __future__ import annotations

from typing import Any

import pytest

import attn_exp

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
    ],
)
def test_a_module_whose_names_say_nothing_is_understood(kind: Any, around: str) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert verdict.passed, verdict
    assert around in verdict.findings[0].said


def test_its_mistake_is_named_as_that_of_any_other() -> None:
    assert attn_exp.check(of.NamelessUnscaled, quick=True).mistakes == ("no_scale",)
