"""Tokens that a reshape cuts out of x, and matrices of which only the diagonal is used, in every library."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import attn_exp
from attn_exp.diagnosis.making.constructing import tells_all_of

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch
from torch import Tensor, nn

CUT, DIAGONAL = "tokens_not_transposed", "projection_diagonal"


def attend(q: Any, k: Any, v: Any) -> Any:
    logits = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True) @ v


# Tokens


def columns(x: Any, W_q: Any, W_k: Any, W_v: Any) -> Any:
    """Read `[b m t]` as `[b t m]`, and put the answer back so."""
    rows = x.swapaxes(1, 2).reshape(x.shape)
    return attend(rows @ W_q, rows @ W_k, rows @ W_v).reshape(len(x), -1, x.shape[1]).swapaxes(1, 2)


def test_tokens_of_a_function_that_a_view_cuts_are_named() -> None:
    verdict = attn_exp.check(columns, quick=True)
    assert verdict.mistakes == (CUT,), verdict


class OfPoints(nn.Module):
    """Attention of the points of an image `[b c h w]`; `cut` says how it brings them to rows."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, channels)
        self.q, self.k, self.v, self.proj = (nn.Linear(channels, channels) for _ in range(4))

    def cut(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        return x.reshape(b, c, h * w).transpose(1, 2)

    def back(self, rows: Tensor, x: Tensor) -> Tensor:
        return rows.transpose(1, 2).reshape(x.shape)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.cut(self.norm(x))
        q, k, v = self.q(rows), self.k(rows), self.v(rows)
        mixed = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v
        return x + self.back(self.proj(mixed), x)


class OfPieces(OfPoints):
    def cut(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        return x.reshape(b, h * w, c)

    def back(self, rows: Tensor, x: Tensor) -> Tensor:
        return rows.reshape(x.shape)


def test_points_of_an_image_that_a_view_cuts_are_named_behind_a_norm_over_all_of_them() -> None:
    verdict = attn_exp.check(OfPieces, quick=True)
    assert verdict.mistakes == (CUT,), verdict
    right = attn_exp.check(OfPoints, quick=True)
    assert not right.mistakes, right


class OfFrames(nn.Module):
    """Attention among the points of each frame `[b c t h w]`, as far as channels and frames change places."""

    is_right = True

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.proj_out = (nn.Conv3d(in_channels, in_channels, 1) for _ in range(4))

    def rows(self, sides: Tensor) -> Tensor:
        b, c, t, h, w = sides.shape
        turned = sides.transpose(1, 2) if self.is_right else sides
        return turned.reshape(b * t, c, h * w).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        b, c, t, h, w = x.shape
        q, k, v = (self.rows(side(x)) for side in (self.q, self.k, self.v))
        mixed = ((q @ k.mT * c**-0.5).softmax(-1) @ v).transpose(1, 2)
        back = mixed.reshape(b, t, c, h, w).transpose(1, 2) if self.is_right else mixed.reshape(x.shape)
        made: Tensor = self.proj_out(back)
        return made


class OfMixedFrames(OfFrames):
    is_right = False


def test_channels_of_several_frames_in_one_row_are_named() -> None:
    verdict = attn_exp.check(OfMixedFrames)
    assert verdict.mistakes == (CUT,), verdict
    right = attn_exp.check(OfFrames)
    assert not right.mistakes, right


class OfTimes(nn.Module):
    """Attention among the frames of each place of a video `[b c f h w]`, which a view alone makes rows of."""

    is_right = False

    def __init__(self, channels: int, num_heads: int = 4) -> None:
        super().__init__()
        self.num_heads, self.norm = num_heads, nn.GroupNorm(4, channels)
        self.qkv, self.proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        b, c, f, h, w = x.shape
        x = self.norm(x)
        laid = x.permute(0, 3, 4, 2, 1) if self.is_right else x.permute(0, 2, 3, 4, 1)
        rows = self.qkv(laid.reshape(b * h * w, f, c)).reshape(b * h * w, f, 3, self.num_heads, c // self.num_heads)
        q, k, v = rows.permute(2, 0, 3, 1, 4)
        mixed = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v
        made = self.proj(mixed.transpose(1, 2).reshape(b * h * w, f, c))
        back: Tensor = made.reshape(b, h, w, f, c).permute(0, 4, 3, 1, 2)
        return back


class OfTimesRightly(OfTimes):
    is_right = True


def test_frames_that_a_view_puts_into_sequences_are_no_mistake_of_heads() -> None:
    verdict = attn_exp.check(OfTimes, quick=True)
    assert verdict.mistakes == (CUT,), verdict
    right = attn_exp.check(OfTimesRightly, quick=True)
    assert not right.mistakes, right


# Diagonals


class Diagonal:
    """A layer of no library whose einsum names both axes of W_o with one letter."""

    letters = "btd,dd->btd"

    def __init__(self, d_model: int) -> None:
        rng = np.random.default_rng(0)
        self.W_q, self.W_k, self.W_v, self.W_o = rng.standard_normal((4, d_model, d_model)) / d_model**0.5

    def forward(self, x: Any) -> Any:
        mixed = attend(x @ self.W_q, x @ self.W_k, x @ self.W_v)
        return np.einsum(self.letters, mixed, self.W_o)


class Whole(Diagonal):
    letters = "btd,de->bte"


def test_a_matrix_of_which_the_diagonal_alone_is_used_is_named_in_a_layer() -> None:
    verdict = attn_exp.check(Diagonal, quick=True)
    assert verdict.mistakes == (DIAGONAL,), verdict
    assert attn_exp.check(Whole, quick=True).passed


def test_a_letter_that_stands_twice_is_named_in_functions() -> None:
    def of_output(x: Any, W_q: Any, W_k: Any, W_v: Any, W_o: Any) -> Any:
        return np.einsum("btd,dd->btd", attend(x @ W_q, x @ W_k, x @ W_v), W_o)

    def of_weights(q: Any, k: Any, v: Any) -> Any:
        logits = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return np.einsum("bhtt,bhte->bhte", powers / powers.sum(axis=-1, keepdims=True), v)

    assert attn_exp.check(of_output, quick=True).mistakes == (DIAGONAL,)
    assert attn_exp.check(of_weights, quick=True).mistakes == ("weights_diagonal",)


class BothDiagonals(nn.Module):
    """Heads one by one whose weights, and whose output projection, are used along the diagonal alone."""

    def __init__(self, d_model: int, num_heads: int = 3) -> None:
        super().__init__()
        self.queries, self.keys, self.values = (
            nn.ModuleList(nn.Linear(d_model, d_model // num_heads, bias=False) for _ in range(num_heads))
            for _ in range(3)
        )
        self.out = nn.Parameter(torch.randn(d_model, d_model))

    def forward(self, x: Tensor) -> Tensor:
        heads = []
        for query, key, value in zip(self.queries, self.keys, self.values, strict=True):
            q, k = query(x), key(x)
            weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
            heads.append(weights.diagonal(dim1=1, dim2=2)[..., None] * value(x))
        return torch.cat(heads, -1) * self.out.diagonal()


@pytest.mark.full_search
def test_both_diagonals_are_named_at_once() -> None:
    verdict = attn_exp.check(BothDiagonals)
    assert set(verdict.mistakes) == {DIAGONAL, "weights_diagonal"}, verdict


# Scores of the wrong sign


def test_keys_of_the_wrong_sign_are_no_other_factor() -> None:
    verdict = attn_exp.check(lambda q, k, v: attend(q, -k, v), quick=True)
    assert verdict.mistakes == ("scores_negated",), verdict


# Names that only numbers give


class Layer(nn.Module):
    """Several heads, of which some kinds below make a side of something else besides."""

    def __init__(self, d_model: int, num_heads: int = 3) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.q, self.k, self.v, self.out = (nn.Linear(d_model, d_model) for _ in range(4))

    def cut(self, rows: Tensor) -> Tensor:
        return rows.reshape(*rows.shape[:2], self.num_heads, -1).transpose(1, 2)

    def sides(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.cut(self.q(x)), self.cut(self.k(x)), self.cut(self.v(x))

    def finish(self, merged: Tensor) -> Tensor:
        made: Tensor = self.out(merged)
        return made

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.sides(x)
        mixed = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v
        return self.finish(mixed.transpose(1, 2).flatten(2))


class QueriesOfTheTokenBefore(Layer):
    def sides(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().sides(x)
        return q.roll(1, 2), k, v


class ValuesBesideTheFirstQuery(Layer):
    def sides(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().sides(x)
        return q, k, v + q[:, :, :1]


@pytest.mark.long
@pytest.mark.parametrize("kind", [QueriesOfTheTokenBefore, ValuesBesideTheFirstQuery])
def test_a_token_elsewhere_is_no_merging_of_heads_and_no_view(kind: type[nn.Module]) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert not verdict.passed and not verdict.mistakes and verdict.stage, verdict


class ThroughTheValues(Layer):
    def finish(self, merged: Tensor) -> Tensor:
        made: Tensor = self.v(merged)
        return made


def test_an_answer_that_goes_through_the_matrix_of_values_is_named() -> None:
    assert attn_exp.check(ThroughTheValues, quick=True).mistakes == ("output_through_another",)
    assert attn_exp.check(Layer, quick=True).passed


class OfOneHead(nn.Module):
    """One head behind a norm, and x added to what it answers; `raw` leaves its values as they are."""

    raw = False

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.q, self.k, self.v, self.out = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        rows = self.norm(x)
        shares = (self.q(rows) @ self.k(rows).mT * x.shape[-1] ** -0.5).softmax(-1)
        made: Tensor = x + self.out(shares @ (rows if self.raw else self.v(rows)))
        return made


class OfRawValues(OfOneHead):
    raw = True


def test_values_that_are_x_itself_before_a_projection_of_the_output_are_named() -> None:
    assert attn_exp.check(OfRawValues, quick=True).mistakes == ("projections_unused",)
    assert attn_exp.check(OfOneHead, quick=True).passed


class MeansOfValues(Layer):
    def sides(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().sides(x)
        return q, k, v.mean(2, keepdim=True).expand_as(v)


class KeysOfTheTokenBefore(Layer):
    def sides(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().sides(x)
        return q, k.roll(1, 2), v


@pytest.mark.long
@pytest.mark.parametrize("kind", [MeansOfValues, KeysOfTheTokenBefore])
def test_equal_values_are_no_pair_of_mistakes_and_keys_beside_other_values_are_seen(kind: type[nn.Module]) -> None:
    verdict = attn_exp.check(kind)
    assert not verdict.passed and not verdict.mistakes and not verdict.right_under, verdict


class NeverCut(nn.Module):
    """Is told how many heads there are, and never reads it."""

    def __init__(self, d_model: int, num_heads: int = 3, qk_size: int = 4) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(d_model, qk_size), nn.Linear(d_model, qk_size)
        self.v, self.out = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.q(x), self.k(x), self.v(x)
        made: Tensor = self.out((q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v)
        return made


def test_heads_that_are_told_and_never_read_are_one_head() -> None:
    assert attn_exp.check(NeverCut, quick=True).mistakes == ("single_head",)


def test_tokens_that_are_cut_end_no_search_for_sizes() -> None:
    """Of a class of other sizes they may lie right: x was laid in columns by chance."""
    seen = attn_exp.check(Diagonal, quick=True)
    for names, ends in (((CUT,), False), (("no_scale",), True)):
        look: Any = Mock(is_rich=True, return_value=replace(seen, mistakes=names))
        assert tells_all_of(look) == ends
