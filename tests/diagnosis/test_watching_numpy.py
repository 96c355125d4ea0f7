"""Attention is seen among the operations of a call of NumPy as it is among those of PyTorch and JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.arrays import Array
from attn_exp.diagnosis.code.watching_numpy import Notes, plain, watching
from attn_exp.diagnosis.inside.cores import Core, cores

RNG = np.random.default_rng(3)
W = RNG.standard_normal((4, 12, 12)) / 3
X = RNG.standard_normal((2, 7, 12))


def shares(scores: Any, axis: int = -1) -> Any:
    powers = np.exp(scores - scores.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def in_products(x: Any) -> Any:
    q, k, v = ((x @ w).reshape(2, 7, 3, 4).transpose(0, 2, 1, 3) for w in W[:3])
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(4)
    scores[:, :, np.triu(np.ones((7, 7)), 1) == 1] = -np.inf
    return (shares(scores) @ v).transpose(0, 2, 1, 3).reshape(x.shape) @ W[3]


def in_einsums(x: Any) -> Any:
    q, k, v = (np.einsum("btm,mhd->bhtd", x, w.reshape(12, 3, 4)) for w in W[:3])
    scores = np.einsum("...td,...sd", q, k) if q.ndim < 4 else np.einsum("bhtd, bhsd -> bhts", q, k)
    scores *= 0.5
    return np.einsum("bhts,bhsd,hde->bte", shares(scores), v, W[3].reshape(3, 4, 12))


def in_loops(x: Any) -> Any:
    answer = np.zeros_like(x)
    for n in range(len(x)):
        for head in range(3):
            own = slice(4 * head, 4 * head + 4)
            q, k, v = (np.dot(x[n], w)[:, own] for w in W[:3])
            answer[n, :, own] = np.dot(shares(np.dot(q, k.T) / 2), v)
    return answer @ W[3]


def row_by_row(x: Any) -> Any:
    said = []
    for text in x:
        q, k, v = (np.asarray(text, np.float32) @ w for w in W[:3])
        scores = np.inner(q, k)
        weights = np.empty(scores.shape, dtype=np.float32)
        for t, row in enumerate(scores):
            weights[t] = shares(row)
        said.append(np.array([shares(row) for row in scores]) @ v + weights @ v)
    return np.array(said, dtype=np.float32)


def along_an_axis(x: Any) -> Any:
    q, k, v = (np.tensordot(x, w, axes=([2], [0])) for w in W[:3])
    return np.matmul(np.apply_along_axis(shares, 2, np.matmul(q, np.swapaxes(k, 1, 2))), v)


def seen(function: Callable[..., Any], notes: Notes) -> tuple[list[Core], Array]:
    with watching(notes):
        said = function(notes.of_x(X))
    return cores(notes.operations), np.asarray(plain(said))


@pytest.mark.parametrize(
    ("function", "count", "shape"),
    [(in_products, 1, (6, 7, 7)), (in_einsums, 1, (6, 7, 7)), (in_loops, 6, (1, 7, 7)), (row_by_row, 4, (1, 7, 7)),
     (along_an_axis, 1, (2, 7, 7))],
)  # fmt: skip
def test_attention_is_seen_however_it_is_written(function: Any, count: int, shape: tuple[int, ...]) -> None:
    notes = Notes({})
    found, said = seen(function, notes)
    assert [one.weights.shape for one in found] == [shape] * count
    for one in found:
        assert np.allclose(one.scores, one.q @ one.k.swapaxes(1, 2))
        assert np.allclose(one.weights.sum(-1), 1)
        assert np.allclose(shares(one.logits), one.weights)
    assert np.allclose(said, function(X), atol=1e-5)
    other = seen(function, Notes({found[0].at[2]: lambda one: one + 1}))[1]
    assert not np.allclose(other, said)


def test_numpy_is_as_it_was_afterwards_and_notes_are_closed() -> None:
    before, notes = dict(vars(np)), Notes({})
    _, kept = [], list[Any]()
    with watching(notes):
        kept.append(notes.of_x(X) + 1)
    assert vars(np) == before
    count = len(notes.operations)
    assert type(kept[0] * 2) is np.ndarray
    kept[0][0] = 1.0
    assert len(notes.operations) == count


class Bent:
    """Its queries, keys and values are bent, and so is its answer: none of its matrices can be found."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        self.num_heads, self.scale = num_heads, (d_model // num_heads) ** 0.5
        self.w = {side: np.random.default_rng(place).standard_normal((d_model, d_model)) * 0.3
                  for place, side in enumerate("qkv")}  # fmt: skip

    def side(self, word: str, x: Any) -> Any:
        return np.maximum(x @ self.w[word], 0).reshape(*x.shape[:2], self.num_heads, -1).transpose(0, 2, 1, 3)

    def hide(self, scores: Any) -> Any:
        return scores

    def forward(self, x: Any) -> Any:
        scores = self.hide(self.side("q", x) @ self.side("k", x).swapaxes(2, 3) / self.scale)
        said = (shares(scores) @ self.side("v", x)).transpose(0, 2, 1, 3).reshape(x.shape)
        return np.tanh(said + x) + (said + x) ** 2


class ByWidth(Bent):
    """It divides by the root of the whole width, and multiplies scores by what is 0 at later keys."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads)
        self.scale = d_model**0.5

    def hide(self, scores: Any) -> Any:
        return scores * np.tril(np.ones(scores.shape[2:]))


class OfKeysUnasked(Bent):
    """Its softmax runs over the queries."""

    def hide(self, scores: Any) -> Any:
        return np.log(shares(scores, 2))

    def forward(self, x: Any) -> Any:
        weights = shares(self.side("q", x) @ self.side("k", x).swapaxes(2, 3) / self.scale, 2)
        said = (weights @ self.side("v", x)).transpose(0, 2, 1, 3).reshape(x.shape)
        return np.tanh(said + x) + (said + x) ** 2


def test_a_layer_whose_matrices_nobody_finds_is_judged_by_what_is_seen_inside() -> None:
    verdict = attn_exp.check(Bent, quick=True)
    assert verdict.passed, verdict


@pytest.mark.parametrize(
    ("layer", "names"),
    [(ByWidth, {"scale_by_sqrt_d_model", "mask_multiplied"}), (OfKeysUnasked, {"softmax_over_queries"})],
)
def test_its_mistakes_are_named(layer: type, names: set[str]) -> None:
    assert set(attn_exp.check(layer, quick=True).mistakes) == names


class Learned:
    """A matrix with what an optimizer keeps of it."""

    def __init__(self, into: int, out: int) -> None:
        self.w = np.random.default_rng(into).standard_normal((into, out)) / 5
        self.grad, self.momentum = np.zeros_like(self.w), np.zeros((into, out))


class Drops:
    """Each call is one of training where it is not told otherwise; its scale is a number of NumPy."""

    def __init__(self, d_model: int, heads: int, dropout: float = 0.1) -> None:
        self.heads, self.rate, self.scale = heads, dropout, np.sqrt(d_model // heads)
        self.each = [Learned(d_model, d_model) for _ in range(4)]

    def forward(self, x: Any, training: bool = True) -> Any:
        q, k, v = ((x @ one.w).reshape(*x.shape[:2], self.heads, -1).transpose(0, 2, 1, 3) for one in self.each[:3])
        weights = shares(q @ k.swapaxes(2, 3) / self.scale)
        if training:
            weights = weights * np.random.default_rng().binomial(1, 1 - self.rate, weights.shape)
        return (weights @ v).transpose(0, 2, 1, 3).reshape(x.shape) @ self.each[3].w


class Number:
    """What counts in float32, and knows its gradient."""

    def __init__(self, data: Any) -> None:
        self.data = np.array(data).astype(np.float32)
        self.grad = np.zeros(self.data.shape, np.float32)

    def __matmul__(self, other: Number) -> Number:
        return Number(self.data @ other.data)

    def __mul__(self, other: float) -> Number:
        return Number(self.data * other)

    def softmax(self) -> Number:
        self.data -= self.data.max(-1, keepdims=True)
        return Number(np.exp(self.data) / np.exp(self.data).sum(-1, keepdims=True))

    def cut(self, heads: int) -> Number:
        return Number(self.data.reshape(*self.data.shape[:2], heads, -1).transpose(0, 2, 1, 3))

    def joined(self) -> Number:
        return Number(self.data.transpose(0, 2, 1, 3).reshape(self.data.shape[0], self.data.shape[2], -1))

    @property
    def mirrored(self) -> Number:
        return Number(self.data.swapaxes(-1, -2))


class OfNumbers:
    """It takes no plain array."""

    scale = 1.0

    def __init__(self, width: int, num_heads: int) -> None:
        rng, self.num_heads = np.random.default_rng(2), num_heads
        self.size = width // num_heads
        self.wq, self.wk, self.wv, self.wo = (Number(rng.standard_normal((width, width)) / 5) for _ in range(4))

    def forward(self, x: Number) -> Number:
        q, k, v = ((x @ one).cut(self.num_heads) for one in (self.wq, self.wk, self.wv))
        heads: Number = ((q @ k.mirrored) * (self.scale / self.size**0.5)).softmax() @ v
        return heads.joined() @ self.wo


class OfNumbersUnscaled(OfNumbers):
    scale = 2.5


@pytest.mark.parametrize("layer", [Drops, OfNumbers])
def test_what_an_optimizer_keeps_and_what_boxes_numbers_are_in_hinders_nobody(layer: type) -> None:
    verdict = attn_exp.check(layer, quick=True)
    assert verdict.passed, verdict
    assert not any(finding.said.endswith("never used") for finding in verdict.findings)


def test_the_mistake_of_a_layer_of_boxed_numbers_is_named() -> None:
    assert attn_exp.check(OfNumbersUnscaled, quick=True).mistakes == ("scale_other",)


class InOneText(Bent):
    """One text `[t m]`; how its weights are made of its scores is its own affair."""

    def weigh(self, scores: Any) -> Any:
        return shares(scores)

    def forward(self, x: Any) -> Any:
        q, k, v = (np.maximum(x @ self.w[side], 0) + x for side in "qkv")
        said = self.weigh(q @ k.T / np.sqrt(q.shape[1])) @ v
        return np.tanh(said + x) + (said + x) ** 2


class OfOneHead(InOneText):
    def __init__(self, d_model: int) -> None:
        super().__init__(d_model, 1)


class OtherSums(OfOneHead):
    def weigh(self, scores: Any) -> Any:
        return np.exp(scores) / np.exp(scores).sum(axis=1)


class OtherMaxima(OfOneHead):
    def weigh(self, scores: Any) -> Any:
        powers = np.exp(scores - scores.max(axis=1))
        return powers / powers.sum(axis=1, keepdims=True)


class OfAll(OfOneHead):
    def weigh(self, scores: Any) -> Any:
        powers = np.exp(scores - np.max(scores))
        return powers / np.sum(powers)


class Twice(OfOneHead):
    def weigh(self, scores: Any) -> Any:
        return shares(shares(scores))


class OfTwo(OfOneHead):
    def weigh(self, scores: Any) -> Any:
        powers = np.exp2(scores - scores.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)


class Scores(OfOneHead):
    def weigh(self, scores: Any) -> Any:
        return scores


class Raw(OfOneHead):
    def weigh(self, scores: Any) -> Any:
        return np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)


class RawUnscaled(OfOneHead):
    def weigh(self, scores: Any) -> Any:
        powers = np.exp(scores * scores.shape[0] ** 0.5)
        return powers / powers.sum(axis=1, keepdims=True)


class Means(OfOneHead):
    """It takes means of products, and no softmax, on purpose."""

    def weigh(self, scores: Any) -> Any:
        return scores * np.sqrt(self.w["q"].shape[0]) / len(scores)


@pytest.mark.long
@pytest.mark.parametrize(
    ("layer", "names"),
    [(OtherSums, {"keepdims_missing"}), (OtherMaxima, {"keepdims_missing"}),
     (OfAll, {"softmax_over_all"}), (Twice, {"softmax_twice"}), (OfTwo, {"softmax_base_2"}), (Scores, {"no_softmax"})],
)  # fmt: skip
def test_what_is_wrong_with_weights_is_named_by_what_is_seen_inside(layer: type, names: set[str]) -> None:
    assert set(attn_exp.check(layer, quick=True).mistakes) == names


def test_powers_of_large_logits_are_a_remark_beside_what_is_right_and_what_is_wrong() -> None:
    right, wrong = (attn_exp.check(layer, quick=True) for layer in (Raw, RawUnscaled))
    assert right.passed and not wrong.passed, (right, wrong)
    for verdict in (right, wrong):
        assert "large inputs inside" in {one.rung for one in verdict.findings if one.state == "remark"}, verdict
        assert "no_max_subtraction" not in verdict.mistakes, verdict


class MeansBehind(Means):
    """It takes them behind the product with the values."""

    def forward(self, x: Any) -> Any:
        q, k, v = (np.maximum(x @ self.w[side], 0) + x for side in "qkv")
        said = q @ k.T @ v / len(x)
        return np.tanh(said + x) + (said + x) ** 2


@pytest.mark.parametrize("layer", [Means, MeansBehind])
def test_what_means_no_softmax_has_no_name(layer: type) -> None:
    with pytest.raises(attn_exp.UserError):
        attn_exp.check(layer, quick=True)


class HeadsUncounted:
    """It is told how many heads it has, and has one."""

    def __init__(self, d_model: int, num_heads: int, root: bool = True) -> None:
        self.num_heads, self.scale = num_heads, d_model**0.5 if root else 1.0
        self.wq, self.wk, self.wv = np.random.default_rng(4).standard_normal((3, d_model, d_model)) / 5

    def forward(self, x: Any) -> Any:
        return shares((x @ self.wq) @ (x @ self.wk).swapaxes(1, 2) / self.scale) @ (x @ self.wv)


class HeadsUncountedUnscaled(HeadsUncounted):
    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, num_heads, root=False)


class HeadOfSize:
    """What it calls `n_head` is how many numbers its one head has."""

    def __init__(self, n_in: int, n_head: int) -> None:
        self.n_head = n_head
        self.wq, self.wk, self.wv = np.random.default_rng(4).standard_normal((3, n_in, n_head)) / 3

    def __call__(self, x: Any) -> Any:
        return shares((x @ self.wq) @ (x @ self.wk).swapaxes(1, 2) / np.sqrt(self.n_head)) @ (x @ self.wv)


class HeadOfSeveral(HeadOfSize):
    """It is one of so many heads as it is told."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__(d_model, d_model // num_heads)
        self.num_heads = num_heads


@pytest.mark.parametrize("layer", [HeadOfSize, HeadOfSeveral])
def test_a_head_that_is_smaller_than_x_is_none_for_several(layer: type) -> None:
    verdict = attn_exp.check(layer, quick=True)
    assert verdict.passed, verdict


def test_one_head_of_a_class_that_is_told_several_is_named_also_beside_another_mistake() -> None:
    assert attn_exp.check(HeadsUncounted, quick=True).mistakes == ("single_head",)
    assert set(attn_exp.check(HeadsUncountedUnscaled, quick=True).mistakes) == {"single_head", "no_scale"}
