"""Layers of alignments: x has rows of texts, in any order of axes, and the rows may share their weights."""

from __future__ import annotations

from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch
from torch import nn


class Rows(nn.Module):
    """One softmax for all rows; `says` names the axes of x."""

    says, sums = "r c b", True

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, dim // heads
        self.to_q, self.to_k, self.to_v, self.last = (nn.Linear(dim, dim) for _ in range(4))

    def scale(self, rows: int) -> float:
        return float((self.size * rows) ** -0.5) if self.sums else float(self.size**-0.5)

    def cut(self, x: Any) -> Any:
        places = [self.says.split().index(axis) for axis in "brc"]
        return x.permute(*places, 3).unflatten(-1, (self.heads, self.size))

    def forward(self, x: Any) -> Any:
        q, k, v = self.cut(self.to_q(x)), self.cut(self.to_k(x)), self.cut(self.to_v(x))
        if self.sums:
            weights = (torch.einsum("brihd,brjhd->bhij", q, k) * self.scale(q.shape[1])).softmax(-1)
            made = torch.einsum("bhij,brjhd->brihd", weights, v)
        else:
            weights = (torch.einsum("bichd,bjchd->bchij", q, k) * self.scale(1)).softmax(-1)
            made = torch.einsum("bchij,bjchd->bichd", weights, v)
        back = ["brc".index(axis) for axis in self.says.split()]
        return self.last(made.flatten(-2).permute(*back, 3))


class RowsOfEntries(Rows):
    says = "b r c"


class RowsBehind(Rows):
    says = "c r b"


class Columns(Rows):
    sums = False


class ColumnsOfEntries(Columns):
    says = "b r c"


class ByWidth(Rows):
    def scale(self, rows: int) -> float:
        return float((self.size * self.heads * rows) ** -0.5)


class Unscaled(Columns):
    def scale(self, rows: int) -> float:
        return 1.0


@pytest.mark.parametrize(
    ("layer", "names"),
    [
        (Rows, ()), (RowsOfEntries, ()), (RowsBehind, ()), (Columns, ()), (ColumnsOfEntries, ()),
        (ByWidth, ("scale_by_sqrt_d_model",)), (Unscaled, ("no_scale",)),
    ],
)  # fmt: skip
def test_rows_that_share_weights_and_columns_are_asked_alone(layer: type[nn.Module], names: tuple[str, ...]) -> None:
    verdict = attn_exp.check(layer, quick=True)
    assert verdict.mistakes == names, verdict
    assert verdict.passed == (not names)
