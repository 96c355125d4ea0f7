"""Modules and functions that PyTorch compiled: they have a schema, and no signature."""

from __future__ import annotations

from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch says that its compiler is old


class Tokens(torch.nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.packed, self.last = torch.nn.Linear(dim, 3 * dim), torch.nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        b, t, m = x.shape
        q, k, v = self.packed(x).view(b, t, 3, self.heads, m // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q @ k.transpose(-2, -1) / float(q.shape[-1]) ** 0.5).masked_fill(mask == 0, -1e9)
        said: torch.Tensor = self.last((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, m))
        return said


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    said: torch.Tensor = (q @ k.transpose(-2, -1) / float(q.shape[-1]) ** 0.5).softmax(-1) @ v
    return said


def unscaled(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (q @ k.transpose(-2, -1)).softmax(-1) @ v


@pytest.mark.long
def test_a_module_is_read() -> None:
    verdict = attn_exp.check(torch.jit.script(Tokens(24, 3)))
    assert verdict.passed, str(verdict)


@pytest.mark.long
def test_a_traced_module_is_read() -> None:
    given = torch.zeros(2, 5, 24), torch.ones(5, 5)
    verdict = attn_exp.check(torch.jit.trace(Tokens(24, 3), given))
    assert verdict.passed, str(verdict)


@pytest.mark.parametrize("function, names", [(attention, ()), (unscaled, ("no_scale",))])
def test_a_function_is_read(function: Any, names: tuple[str, ...]) -> None:
    assert attn_exp.check(torch.jit.script(function)).mistakes == names
