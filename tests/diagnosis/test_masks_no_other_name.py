"""Mistakes of masks that look like another: what fills with inf, what adds where it should take, and what hides all."""

from __future__ import annotations

import math

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
from torch import Tensor, nn


class Masked(nn.Module):
    """Several heads with a mask `[b t s]`; `hide` is where it is put on the scores, `axis` that of the softmax."""

    axis = -1

    def __init__(self, d_model: int, num_heads: int = 3) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.q, self.k, self.v, self.out = (nn.Linear(d_model, d_model) for _ in range(4))

    def cut(self, rows: Tensor) -> Tensor:
        return rows.reshape(*rows.shape[:2], self.num_heads, -1).transpose(1, 2)

    def hide(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.masked_fill(mask == 0, -math.inf)

    def attend(self, x: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = self.cut(self.q(x)), self.cut(self.k(memory)), self.cut(self.v(memory))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        weights = (scores if mask is None else self.hide(scores, mask)).softmax(self.axis)
        made: Tensor = self.out((weights @ v).transpose(1, 2).flatten(2))
        return made

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.attend(query, key, mask)


class FilledWithInf(Masked):
    def hide(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.masked_fill(mask == 0, math.inf)


def test_inf_filled_in_is_a_wrong_sign_and_hides_no_query_of_which_nothing_is_hidden() -> None:
    assert attn_exp.check(FilledWithInf, quick=True).mistakes == ("mask_sign",)
    assert not attn_exp.check(Masked, quick=True).mistakes


class KeysFirst(Masked):
    """Takes keys before queries, and a mask `[b s t]` in this order, which is added with the wrong sign."""

    def forward(self, context: Tensor, x: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
        return self.attend(x, context, mask)

    def hide(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores - mask.mT[:, None] * -1e20


@pytest.mark.long
def test_a_mask_whose_keys_come_first_is_not_called_turned_for_what_it_adds() -> None:
    assert "mask_transposed" not in attn_exp.check(KeysFirst).mistakes


class AddedOverHeads(Masked):
    """Adds its mask, which is the same for all heads, over which its softmax runs."""

    axis = 1

    def hide(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores + mask

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        return self.attend(x, x, mask)


def test_a_mask_that_is_added_is_no_small_fill_where_the_softmax_runs_over_heads() -> None:
    assert attn_exp.check(AddedOverHeads, quick=True).mistakes == ("softmax_over_heads",)


class NextToNothing(Masked):
    """Adds next to nothing where its mask says that one may not attend, and merges heads by a view of columns."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        q, k, v = self.cut(self.q(x)), self.cut(self.k(x)), self.cut(self.v(x))
        scores = q @ k.mT / math.sqrt(x.shape[-1])
        scores = scores if mask is None else scores + mask[:, None] * -1e-9
        made: Tensor = self.out((scores.softmax(-1) @ v).transpose(-1, -2).reshape(x.shape))
        return made


def test_inf_that_is_added_for_next_to_nothing_is_no_wrong_sign() -> None:
    names = set(attn_exp.check(NextToNothing, quick=True).mistakes)
    assert names == {"scale_by_sqrt_d_model", "heads_merged_wrong", "mask_small_fill"}
