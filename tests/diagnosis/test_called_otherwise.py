"""Layers that take few tokens, hold plain tensors as matrices, or have names of their own for what hides tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import attn_exp
from attn_exp.experiment.verdict import HELD

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch

block_size, wide, most = 8, 32, 8


class OfTensors(torch.nn.Module):
    """Matrices that were drawn, and that nobody made parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.w_query, self.w_key, self.w_value = (torch.rand(32, 32) for _ in range(3))

    def weights(self, x: Any, hidden: Any) -> Any:
        scores = x @ self.w_query @ (x @ self.w_key).mT / 32**0.5
        return (scores + hidden[:, None]).softmax(-1)

    def forward(self, x: Any, token_masks: Any) -> Any:
        return self.weights(x, (1 - token_masks * 1.0) * -1000) @ x @ self.w_value


class OfPadding(OfTensors):
    """What hides filler is called `pad` alone, and is no None."""

    def forward(self, x: Any, pad: Any) -> Any:
        return self.weights(x, torch.where(pad == 0, -1e9, 0.0)) @ x @ self.w_value


@pytest.mark.parametrize("layer", [OfPadding])
def test_drawn_tensors_are_matrices_and_masks_are_known_by_parts_of_names(layer: Any) -> None:
    verdict = attn_exp.check(layer, quick=True)
    assert verdict.passed, verdict
    assert "what token_masks" not in str(verdict) and "what pad" not in str(verdict)


class Layer(torch.nn.Module):
    """Attention with one packed matrix."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.packed, self.out = heads, torch.nn.Linear(dim, 3 * dim), torch.nn.Linear(dim, dim)

    def parts(self, x: Any) -> Any:
        return [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.packed(x).chunk(3, -1)]

    def joined(self, scores: Any, v: Any) -> Any:
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class TurnedByPairs(Layer):
    """Angles come as cosines and sines beside each other, of any shape with as many numbers."""

    def turned(self, x: Any, rope: Any) -> Any:
        cos, sin = rope.view(1, 1, x.shape[2], x.shape[3] // 2, 2).unbind(-1)
        even, odd = x[..., ::2], x[..., 1::2]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)

    def forward(self, x: Any, rope: Any) -> Any:
        q, k, v = self.parts(x)
        return self.joined(self.turned(q, rope) @ self.turned(k, rope).mT / q.shape[-1] ** 0.5, v)


class OfPlaces(Layer):
    """Numbers of a table are added to scores, by whole numbers from outside; the table has room for a window."""

    def __init__(self, dim: int, window: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.table = torch.nn.Parameter(0.02 * torch.randn((2 * window - 1) ** 2, heads))
        self.points = window**2

    def forward(self, x: Any, rpi: Any) -> Any:
        q, k, v = self.parts(x)
        added = self.table[rpi.view(-1)].view(self.points, self.points, -1).permute(2, 0, 1)
        return self.joined(q @ k.mT / q.shape[-1] ** 0.5 + added, v)


class WithEdges(Layer):
    """Each pair of tokens brings numbers, and each head one that is added to its queries."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.edges = torch.nn.Linear(dim, heads)

    def forward(self, x: Any, edges: Any, u: Any) -> Any:
        q, k, v = self.parts(x)
        return self.joined((q + u[:, None]) @ k.mT / q.shape[-1] ** 0.5 + self.edges(edges).permute(0, 3, 1, 2), v)


@pytest.mark.parametrize("layer", [TurnedByPairs, OfPlaces, WithEdges])
def test_what_a_call_needs_may_be_a_table_of_anything(layer: Any) -> None:
    verdict = attn_exp.check(layer, quick=True)
    assert verdict.passed and "seen from inside" not in str(verdict), verdict


class KeysFirst(Layer):
    """Tokens lie first, in x and in what hides them; what may attend is 1."""

    def forward(self, x: Any, mask: Any) -> Any:
        q, k, v = self.parts(x.transpose(0, 1))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        return self.joined(scores.masked_fill(mask.transpose(0, 1)[:, None, None] == 0, -1e9), v).transpose(0, 1)


class PlacesFirst(Layer):
    """Tokens lie first in x and in their places, to which a matrix is put."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.places = torch.nn.Linear(dim, dim, bias=False)

    def forward(self, x: Any, pos_rows: Any) -> Any:
        if len(pos_rows) != len(x):
            raise ValueError("a row for each token is needed")
        q, k, v = self.parts((x + self.places(pos_rows)[:, None]).transpose(0, 1))
        return self.joined(q @ k.mT / q.shape[-1] ** 0.5, v).transpose(0, 1)


class HidesKeysFirst(Layer):
    """The same with a mask that hides, beside one for queries and keys, none of which needs to be given."""

    def forward(self, x: Any, key_padding_mask: Any = None, attn_mask: Any = None) -> Any:
        q, k, v = self.parts(x.transpose(0, 1))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if attn_mask is not None:
            scores = scores.masked_fill(attn_mask[None], -torch.inf)
        if key_padding_mask is not None:
            scores = scores.masked_fill(key_padding_mask.transpose(0, 1)[:, None, None], -torch.inf)
        return self.joined(scores, v).transpose(0, 1)


class OfBothMasks(Layer):
    """What hides keys needs what hides queries beside it."""

    def forward(self, x: Any, q_mask: Any = None, kv_mask: Any = None) -> Any:
        q, k, v = self.parts(x)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if kv_mask is not None:
            scores = scores.masked_fill(~(q_mask[:, None, :, None] & kv_mask[:, None, None]), -1e9)
        return self.joined(scores, v)


def both_masks(q: Any, k: Any, v: Any, q_mask: Any = None, kv_mask: Any = None) -> Any:
    scores = torch.einsum("blhd,bshd->blsh", q, k) / q.shape[-1] ** 0.5
    if kv_mask is not None:
        scores = scores.masked_fill(~(q_mask[:, :, None, None] * kv_mask[:, None, :, None]), -torch.inf)
    return torch.einsum("blsh,bshd->blhd", scores.softmax(2), v)


class FilledWithZeros(Layer):
    """Tokens of 0 are filler, which nobody sees."""

    def forward(self, x: Any) -> Any:
        q, k, v = self.parts(x)
        filler = (x.abs().sum(-1) == 0)[:, None, None]
        return self.joined((q @ k.mT / q.shape[-1] ** 0.5).masked_fill(filler, -1e9), v) * ~filler[:, 0, 0, :, None]


@pytest.mark.parametrize("attention", [KeysFirst, OfBothMasks, both_masks])
def test_what_hides_keys_is_written_as_the_code_reads_it(attention: Any) -> None:
    verdict = attn_exp.check(attention, quick=True)
    assert verdict.passed, verdict
    assert "padding" in {one.rung for one in verdict.findings if one.state == HELD}


def test_two_masks_that_hide_are_read_together() -> None:
    verdict = attn_exp.check(HidesKeysFirst, quick=True)
    assert verdict.passed and verdict.right_under == "convention=torch_mha", verdict


def test_what_goes_with_tokens_lies_first_as_they_do() -> None:
    verdict = attn_exp.check(PlacesFirst, quick=True)
    assert verdict.passed and "seen from inside" not in str(verdict), verdict


def test_tokens_of_zero_may_be_filler() -> None:
    verdict = attn_exp.check(FilledWithZeros, quick=True)
    assert verdict.passed and "as those of 0 count as filler" in str(verdict), verdict


@dataclass
class OfLatents:
    hidden_size: int = 4096
    num_heads: int = 32
    kv_lora_rank: int = 512
    qk_rope_head_dim: int = 64
    qk_nope_head_dim: int = 128
    v_head_dim: int = 128


class Latent(torch.nn.Module):
    """Keys and values are made of few numbers; a part of each head is shared, and turned by its place."""

    def __init__(self, config: OfLatents) -> None:
        super().__init__()
        self.config, heads, width = config, config.num_heads, config.hidden_size
        self.sizes = config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim
        self.query = torch.nn.Linear(width, heads * sum(self.sizes[:2]), bias=False)
        self.latent = torch.nn.Linear(width, config.kv_lora_rank + config.qk_rope_head_dim, bias=False)
        self.both = torch.nn.Linear(config.kv_lora_rank, heads * (self.sizes[0] + self.sizes[2]), bias=False)
        self.out = torch.nn.Linear(heads * config.v_head_dim, width, bias=False)

    def forward(self, x: Any, cos: Any, sin: Any) -> Any:
        plain, turned, _ = self.sizes
        q = self.query(x).unflatten(-1, (-1, plain + turned)).transpose(1, 2)
        few, shared = self.latent(x).split([self.config.kv_lora_rank, turned], -1)
        k, v = (
            self.both(few).unflatten(-1, (self.config.num_heads, -1)).transpose(1, 2).split([plain, self.sizes[2]], -1)
        )
        k = torch.cat(
            [k, (shared * cos + shared.roll(turned // 2, -1) * sin)[:, None].expand(-1, len(k[0]), -1, -1)], -1
        )
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


@pytest.mark.long
def test_a_head_may_have_a_part_that_is_turned() -> None:
    verdict = attn_exp.check(Latent, quick=True)
    assert verdict.passed and "multiplied by 0.3536; expected 0.3536 for heads of 8" in str(verdict), verdict
