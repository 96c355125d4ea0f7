"""What several calls show of a function, and what it does with NaN, with rows without keys, and with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import attn_exp
from tests.diagnosis.functions import attend, logits, softmax


def keep_mask() -> Callable[..., Any]:
    kept: dict[Any, Any] = {}

    def function(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        return leak(q, k, v, None if mask is None else kept.setdefault(mask.shape, mask))

    return function


def keep_answers(key_of: Callable[..., Any]) -> Callable[..., Any]:
    kept: dict[Any, Any] = {}

    def function(q: Any, k: Any, v: Any) -> Any:
        return kept.setdefault((key_of(q, k, v), q.shape, k.shape), attend(q, k, v)).copy()

    return function


def refuse_other_orders(q: Any, k: Any, v: Any) -> Any:
    if not k.flags.c_contiguous:
        raise ValueError("expected C order")
    return attend(q, k, v)


def drop_an_axis(q: Any, k: Any, v: Any) -> Any:
    return attend(q, k, v)[0 if len(q) == 1 else slice(None)]


def leak(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    return softmax(logits(q, k) if mask is None else np.where(mask, logits(q, k), -1e30)) @ v


def narrow_its_mask(q: Any, k: Any, v: Any, mask: Any = None, is_causal: bool = False) -> Any:
    allowed = np.tri(q.shape[-2], k.shape[-2], dtype=bool) | (not is_causal)
    return leak(q, k, v, allowed if mask is None else np.logical_and(mask, allowed, out=mask))


def divide(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    powers = np.exp(logits(q, k)) * (True if mask is None else mask)
    with np.errstate(invalid="ignore"):
        return powers / powers.sum(-1, keepdims=True) @ v


def divide_safely(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    powers = np.exp(logits(q, k)) * (True if mask is None else mask)
    return powers / np.maximum(powers.sum(-1, keepdims=True), 1e-30) @ np.nan_to_num(v)


SHOWN: list[tuple[Callable[..., Any], str, str, str]] = [
    (keep_mask(), "another mask, another answer", "broken", "it reuses the mask of an earlier call"),
    (keep_mask(), "rows without keys", "held", "other numbers"),
    (keep_answers(lambda *given: [each.ctypes.data for each in given].__repr__()), "fresh data at the same address",
     "broken", "it caches by the address of its inputs, and returns an old answer"),
    (keep_answers(lambda q, k, v: (q.tobytes(), k.tobytes())), "only one input changed", "broken",
     "v changed, but the answer did not"),
    (refuse_other_orders, "odd strides, read-only inputs", "remark", "ValueError: expected C order"),
    (drop_an_axis, "examples independent", "broken",
     "example 1 alone gives different axes: shape [6, 9, 8], expected [1, 6, 9, 8]"),
    (leak, "another mask, another answer", "held", ""), (leak, "NaN behind a mask", "remark", "it reaches the answer"),
    (leak, "rows without keys", "held", "the mean of all values"), (divide, "rows without keys", "remark", "NaN"),
    (narrow_its_mask, "inputs unchanged", "broken", "it changed mask"),
    (divide_safely, "rows without keys", "held", "zeros"), (divide_safely, "NaN behind a mask", "held", ""),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    ("function", "question", "state", "said"), SHOWN, ids=lambda value: getattr(value, "__name__", "")
)
def test_what_several_calls_show_is_a_finding(
    function: Callable[..., Any], question: str, state: str, said: str
) -> None:
    verdict = attn_exp.check(function, quick=True)
    assert [(each.state, each.message) for each in verdict.findings if each.question == question] == [(state, said)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "state", "said"),
    [
        ("plain", "held", ""), ("without", "remark", "none: the function disables them"),
        ("cut", "broken", "none: its output is detached from its inputs"),
        ("double", "broken", "autograd and numerical gradients differ"), ("refuse", "remark", "none: no slope"),
    ],
)  # fmt: skip
def test_gradients_are_those_of_the_numbers(name: str, state: str, said: str) -> None:
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")

    def plain(q: Any, k: Any, v: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    class Slope(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(context: Any, slope: Any) -> Any:
            if name == "refuse":
                raise ValueError("no slope")
            return 2 * slope

    made: dict[str, Callable[..., Any]] = {
        "plain": plain,
        "without": torch.no_grad()(plain),
        "cut": lambda q, k, v: plain(q.detach(), k.detach(), v.detach()),
    }
    verdict = attn_exp.check(made.get(name, lambda q, k, v: Slope.apply(plain(q, k, v))), "takes=torch", quick=True)
    assert [(each.state, each.message) for each in verdict.findings if each.question == "gradients"] == [(state, said)]
