"""Functions of heads `[b h d t]`, whose docstring says so."""

from __future__ import annotations

from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")

pytestmark = pytest.mark.long


def by_the_second_axis(q: Any, k: Any, v: Any) -> Any:
    """Attend from step to step: each array is (entries, heads, size, steps)."""
    weights = (q.mT @ k / q.shape[1] ** 0.5).softmax(-1)
    return weights @ v.mT


def of_three_axes(q: Any, k: Any, v: Any) -> Any:
    """Attend from step to step: each array is (entries, size, steps)."""
    weights = (q.mT @ k / q.shape[1] ** 0.5).softmax(-1)
    return weights @ v.mT


def test_a_function_is_held_to_the_axes_of_its_docstring() -> None:
    assert attn_exp.check(by_the_second_axis).mistakes == ("scale_by_sqrt_heads",)


def test_a_function_that_speaks_of_no_heads_may_take_none() -> None:
    assert attn_exp.check(of_three_axes).passed
