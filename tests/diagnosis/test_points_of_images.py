"""Attention over the points of an image has one head, narrow queries and no scale: so its authors meant it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import attn_exp  # noqa: E402


class Points(nn.Module):
    """Each point of an image sees all others; what that gives is added to the image, nothing of it at first."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.asks, self.answers = (nn.Conv2d(channels, channels // 4, 1) for _ in range(2))
        self.gives, self.share = nn.Conv2d(channels, channels, 1), nn.Parameter(torch.zeros(()))

    def mixed(self, weights: Any, v: Any) -> Any:
        return v @ weights.transpose(1, 2)

    def forward(self, x: Any) -> Any:
        q, k, v = (side(x).flatten(2) for side in (self.asks, self.answers, self.gives))
        weights = (q.transpose(1, 2) @ k).softmax(-1)
        return x + self.share * self.mixed(weights, v).view(x.shape)


def test_no_scale_over_the_points_of_an_image_is_meant() -> None:
    verdict = attn_exp.check(Points, quick=True)
    assert (verdict.passed, verdict.right_under) == (True, "scale=1"), verdict


def test_whoever_asks_for_a_scale_is_told_that_there_is_none() -> None:
    assert attn_exp.check(Points, "scale=true", quick=True).mistakes == ("no_scale",)


def test_rows_of_an_image_are_no_texts_that_lie_beside_each_other() -> None:
    keras: Any = pytest.importorskip("keras", reason="Keras is not installed: pip install keras")

    class OfMaps(keras.layers.Layer):  # type: ignore[misc] # of a library without types
        """It takes images `[b h w c]`, and fails with three axes as what takes several texts does."""

        def __init__(self, dim: int, size: int = 8) -> None:
            super().__init__()
            self.size, self.qkv, self.out = size, keras.layers.Dense(3 * dim), keras.layers.Dense(dim)

        def call(self, x: Any) -> Any:
            batch, high, wide, width = x.shape
            sides = keras.ops.reshape(self.qkv(x), (batch, high * wide, 3, width // self.size, self.size))
            q, k, v = keras.ops.transpose(sides, (2, 0, 3, 1, 4))
            weights = keras.ops.softmax(q @ keras.ops.swapaxes(k, 2, 3) / self.size**0.5)
            return self.out(keras.ops.reshape(keras.ops.transpose(weights @ v, (0, 2, 1, 3)), x.shape))

    verdict = attn_exp.check(OfMaps, quick=True)
    assert verdict.passed, verdict
    assert "values" in {one.rung for one in verdict.findings}, verdict  # its matrices are found, not its inside alone


class OfOneSize(nn.Module):
    """It takes maps of one size alone, queries, keys and values of their own, and says so with an error of its own."""

    def __init__(self, dim: int, heads: int = 4, resolution: int = 4) -> None:
        super().__init__()
        self.heads, self.resolution = heads, resolution
        self.after = nn.Sequential(nn.GELU(), nn.Conv2d(dim, dim, 1))

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        assert tuple(q.shape[-2:]) == (self.resolution, self.resolution), "maps of another size"
        q, k, v = (one.flatten(2).unflatten(1, (self.heads, -1)).mT for one in (q, k, v))
        context = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        return self.after(self.joined(context).unflatten(-1, (self.resolution, -1)))

    def joined(self, context: Any) -> Any:
        return context.mT.flatten(1, 2)


class OfOneSizeJoinedWrongly(OfOneSize):
    def joined(self, context: Any) -> Any:
        return context.reshape(len(context), -1, self.resolution**2)


@pytest.mark.parametrize(("layer", "names"), [(OfOneSize, ()), (OfOneSizeJoinedWrongly, ("heads_merged_wrong",))])
def test_maps_of_one_size_are_asked(layer: type[nn.Module], names: tuple[str, ...]) -> None:
    verdict = attn_exp.check(layer, quick=True)
    assert verdict.mistakes == names and verdict.passed == (not names), verdict


def of_points(q: Any, k: Any, v: Any, power: float = 0.5) -> Any:
    """The points of an image `[b c h w]` are tokens."""
    flat = [side.reshape(*side.shape[:2], -1) for side in (q, k, v)]
    scores = np.einsum("bct,bcs->bts", *flat[:2]) / q.shape[1] ** power
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    said = np.einsum("bts,bcs->bct", powers / powers.sum(-1, keepdims=True), flat[2])
    return said.reshape(*v.shape[:2], *q.shape[2:])


def of_points_by_d(q: Any, k: Any, v: Any) -> Any:
    return of_points(q, k, v, 1.0)


def over_time(q: Any, k: Any, v: Any, axis: int = -1) -> Any:
    """Of some images `[b t c h w]` in a row, each point asks what was at its place."""
    assert q.ndim == len("btchw"), f"images in a row are wanted, not {q.shape}"
    scores = np.einsum("btchw,bschw->bhwts", q, k) / q.shape[2] ** 0.5
    powers = np.exp(scores - scores.max(axis, keepdims=True))
    return np.einsum("bhwts,bschw->btchw", powers / powers.sum(axis, keepdims=True), v)


def over_time_and_queries(q: Any, k: Any, v: Any) -> Any:
    return over_time(q, k, v, -2)


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (of_points, ()),
        (of_points_by_d, ("scale_by_d",)),
        (over_time, ()),
        (over_time_and_queries, ("softmax_over_queries",)),
    ],
)
def test_functions_of_images_are_asked(function: Any, names: tuple[str, ...]) -> None:
    verdict = attn_exp.check(function, quick=True)
    assert (verdict.passed, verdict.mistakes) == (not names, names), verdict


class OfItsQueries(Points):
    """Keys are made of queries, behind a norm over the points of each channel, and scores grow instead of shrink."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.norm, self.asks = nn.GroupNorm(channels // 2, channels), nn.Conv2d(channels, channels, 1)

    def forward(self, x: Any) -> Any:
        h = self.norm(x)
        q, v = self.asks(h).flatten(2), self.gives(h).flatten(2)
        weights = (q.mT @ q * q.shape[1] ** 0.5).softmax(-1)
        return x + self.mixed(weights, v).view(x.shape)


def test_half_a_matrix_is_not_taken_for_queries_and_the_other_half_for_keys() -> None:
    verdict = attn_exp.check(OfItsQueries, quick=True)
    assert not verdict.passed and "scale_multiplied" in verdict.mistakes, verdict


class HeadsOfPoints(nn.Module):
    """Several heads of an image's points, behind a norm over all of them."""

    def __init__(self, channels: int, num_heads: int = 4) -> None:
        super().__init__()
        self.heads, self.norm = num_heads, nn.GroupNorm(4, channels)
        self.all, self.last = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x: Any) -> Any:
        q, k, v = self.all(self.norm(x)).flatten(2).unflatten(1, (3, self.heads, -1)).mT.unbind(1)
        mixed = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
        return x + self.last(self.merged(mixed).reshape(x.shape))

    def merged(self, mixed: Any) -> Any:
        return mixed.mT


class HeadsOfPointsMerged(HeadsOfPoints):
    def merged(self, mixed: Any) -> Any:
        return mixed


@pytest.mark.parametrize(("kind", "names"), [(HeadsOfPoints, ()), (HeadsOfPointsMerged, ("heads_merged_wrong",))])
def test_the_answer_is_told_apart_behind_a_norm_over_all_points(kind: Any, names: tuple[str, ...]) -> None:
    verdict = attn_exp.check(kind, quick=True)
    assert (verdict.passed, verdict.mistakes) == (not names, names), verdict
