"""Layers whose values are x itself."""

from __future__ import annotations

from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
from torch import nn


class WeighsItself(nn.Module):
    """Queries and keys of one matrix weigh x, whose numbers are shared out to heads."""

    def __init__(self, dim: int, heads: int, scaled: bool = True, last: bool = False) -> None:
        super().__init__()
        self.heads, self.scaled = heads, scaled
        self.both, self.out = nn.Linear(dim, 2 * dim), nn.Linear(dim, dim) if last else None

    def forward(self, x: Any) -> Any:
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (*self.both(x).chunk(2, -1), x))
        scores = q @ k.mT / (q.shape[-1] ** 0.5 if self.scaled else 1.0)
        said = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return said if self.out is None else self.out(said)


@pytest.mark.parametrize("heads, last", [(1, False), (3, False), (3, True)])
def test_values_may_be_x_itself(heads: int, last: bool) -> None:
    verdict = attn_exp.check(WeighsItself(24, heads, last=last))
    assert verdict.passed, str(verdict)


def test_a_scale_is_still_seen() -> None:
    assert attn_exp.check(WeighsItself(24, 3, scaled=False)).mistakes == ("no_scale",)
