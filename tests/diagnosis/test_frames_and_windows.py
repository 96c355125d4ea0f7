"""Attention of frames and of windows, with means and several terms of its scores, and what has no softmax of them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")

from torch import nn  # noqa: E402 - after what may be missing

import attn_exp  # noqa: E402
from tests.diagnosis.test_inner import Bent  # noqa: E402

pytestmark = pytest.mark.long


class OfFrames(nn.Module):
    """The points of one video see those of their own frame, and of the frames before it."""

    sign = 1

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.last = (nn.Conv3d(channels, channels, 1) for _ in range(4))

    def forward(self, video: Any) -> Any:
        count, width, frames, *rest = video.shape
        assert count == 1
        frame = torch.arange(frames).repeat_interleave(rest[0] * rest[1])
        q, k, v = (side(video).flatten(2).mT for side in (self.q, self.k, self.v))
        hidden = self.sign * frame[None] > self.sign * frame[:, None]
        weights = (q @ k.mT / width**0.5).masked_fill(hidden, -torch.inf).softmax(-1)
        return video + self.last((weights @ v).mT.reshape(video.shape))


class OfLaterFrames(OfFrames):
    """They see those of later frames, which a causal mask hides."""

    sign = -1


def test_what_is_causal_by_frames_is_right_and_not_what_sees_later_ones() -> None:
    verdict = attn_exp.check(OfFrames)
    assert verdict.passed, verdict
    assert any(one.rung == "the mask inside, by frames" for one in verdict.findings)
    assert not attn_exp.check(OfLaterFrames).passed


class Windows(nn.Module):
    """Windows of an image with tokens of 0 where it ends, which the others see as they see each other."""

    def __init__(self, dim: int, window: list[int], heads: int) -> None:
        super().__init__()
        self.window, self.heads = window.copy(), heads
        self.sides, self.last = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, image: Any) -> Any:
        _, height, width, size = image.shape
        down, right = self.window
        padded: Any = nn.functional.pad(image, (0, 0, 0, -width % right, 0, -height % down))
        cut = padded.unflatten(2, (-1, right)).unflatten(1, (-1, down)).transpose(2, 3)
        q, k, v = self.sides(cut.flatten(3, 4)).unflatten(-1, (3, self.heads, -1)).transpose(3, 5).unbind(4)
        mixed = (q @ k.mT / (size // self.heads) ** 0.5).softmax(-1) @ v
        joined = mixed.transpose(3, 4).flatten(4).reshape(cut.shape).transpose(2, 3)
        return self.last(joined.flatten(3, 4).flatten(1, 2)[:, :height, :width])


def test_windows_told_as_a_list_are_right_and_filler_in_them_is_nothing_that_turns() -> None:
    assert attn_exp.check(Windows, quick=True).passed


class Means(Bent):
    """Pairs of neighbours have one key and one value, the mean of theirs."""

    def side(self, matrix: Any, x: Any) -> Any:
        rows = super().side(matrix, x)
        return rows if matrix is self.a else rows.repeat_interleave(2, 2).unflatten(2, (-1, 2)).sum(3) / 2


def test_a_mean_of_keys_is_no_other_scale() -> None:
    assert attn_exp.check(Means(24, 3), quick=True).passed


class OfThreeTerms(Bent):
    """Its scores have three terms, of which two are the same for every x, and so the scale has a 3."""

    count = 3

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.places, self.others = torch.randn(2, heads, 99, 99, dtype=torch.float64)

    def beside(self, scores: Any, q: Any) -> Any:
        keys = scores.shape[-1]
        return scores / self.count**0.5 + self.places[:, :keys, :keys] + self.others[:, :keys, :keys]


class OfThreeTermsOverSeven(OfThreeTerms):
    count = 7


def test_a_scale_that_counts_the_terms_of_scores_is_right_and_another_is_not() -> None:
    assert attn_exp.check(OfThreeTerms(32, 4), quick=True).passed
    assert attn_exp.check(OfThreeTermsOverSeven(32, 4), quick=True).mistakes == ("scale_other",)


class Linear(Bent):
    """Keys meet values first."""

    def forward(self, x: Any) -> Any:
        q, k, v = (self.side(matrix, x) for matrix in (self.a, self.b, self.c))
        return self.joined(q.softmax(-1) @ (k.softmax(-2).mT @ v)) + x.tanh()
