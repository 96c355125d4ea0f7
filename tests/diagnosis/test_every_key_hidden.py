"""A layer that answers only where all of its keys are hidden has no mistake that anybody could have seen."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

import attn_exp
from attn_exp.errors import UserError

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")


class OfATable(torch.nn.Module):  # type: ignore[misc, name-defined] # torch may be missing
    """Attention with a table of positions of 512 rows, which nobody outside of its model has; it is right."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.heads = num_heads
        self.q, self.k, self.v, self.o = (torch.nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x: Any, rel_embeddings: Any, attention_mask: Any = None) -> Any:
        q, k, v = (side(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for side in (self.q, self.k, self.v))
        known = torch.arange(512) < rel_embeddings.shape[1]
        places = torch.arange(x.shape[1])[:, None] - torch.arange(x.shape[1]) + 256
        table = torch.where(known[:, None], self.k(rel_embeddings[0]).mean(), torch.nan)
        scores = q @ k.mT / q.shape[-1] ** 0.5 + table[places].squeeze(-1)
        if attention_mask is not None:
            scores = scores.masked_fill(attention_mask == 0, -torch.inf)
        weights = torch.where(scores == -torch.inf, 0.0, torch.softmax(scores, -1))
        return self.o((weights @ v).transpose(1, 2).flatten(2))


def test_nothing_is_said_of_a_layer_whose_weights_are_all_0() -> None:
    with suppress(UserError):  # it cannot be read, which is so
        verdict = attn_exp.check(OfATable, quick=True)
        assert not verdict.mistakes, verdict
