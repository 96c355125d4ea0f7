"""Words for masks that a function takes and never reads: the word that counts is the one that it reads."""

from __future__ import annotations

from typing import Any

import pytest

import attn_exp

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
import torch

from attn_exp.diagnosis.asking.unread import never_read


class Layer(torch.nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = torch.nn.Linear(dim, 3 * dim), torch.nn.Linear(dim, dim)

    def attend(self, x: Any, hidden: Any) -> Any:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        scores = scores if hidden is None else scores.masked_fill(hidden, -1e9)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class SecondWord(Layer):
    def forward(self, x: Any, mask: Any = None, attn_mask: Any = None) -> Any:
        return self.attend(x, None if attn_mask is None else ~attn_mask)


class OfKeys(Layer):
    def forward(self, x: Any, attention_mask: Any = None, key_padding_mask: Any = None) -> Any:
        return self.attend(x, None if key_padding_mask is None else key_padding_mask[:, None, None])


class FirstTurned(Layer):
    """What is wrong with the word that is read is named."""

    def forward(self, x: Any, mask: Any = None, attn_mask: Any = None) -> Any:
        return self.attend(x, None if attn_mask is None else ~attn_mask.mT)


class WithHint(Layer):
    """It has the words of `torch.nn.MultiheadAttention`, where `is_causal` is a hint beside the mask."""

    def forward(self, x: Any, attn_mask: Any = None, need_weights: bool = False, is_causal: bool = False) -> Any:
        return self.attend(x, None if attn_mask is None else ~attn_mask)


class WithoutHint(Layer):
    """Of a function like PyTorch's, `is_causal` is no hint: it does what it says."""

    def forward(self, x: Any, attn_mask: Any = None, is_causal: bool = False) -> Any:
        return self.attend(x, None if attn_mask is None else ~attn_mask)


class OnlyWord(Layer):
    def forward(self, x: Any, mask: Any = None) -> Any:
        return self.attend(x, None)


def second_word(q: Any, k: Any, v: Any, mask: Any = None, attn_mask: Any = None) -> Any:
    scores = q @ k.mT / q.shape[-1] ** 0.5
    return (scores if attn_mask is None else scores.masked_fill(~attn_mask, -1e9)).softmax(-1) @ v


def only_word(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v


@pytest.mark.parametrize("attention", [SecondWord, OfKeys, WithHint, second_word])
def test_the_word_for_a_mask_that_is_read_is_asked(attention: Any) -> None:
    verdict = attn_exp.check(attention)
    assert verdict.passed, verdict
    assert any(said.endswith("(its code never reads it)") for said in verdict.not_asked)
    assert not any(said.startswith("masks") for said in verdict.not_asked)


@pytest.mark.parametrize(
    ("attention", "name"),
    [
        (OnlyWord, "mask_ignored"),
        (only_word, "mask_ignored"),
        (FirstTurned, "mask_transposed"),
        (WithoutHint, "causal_ignored"),
    ],
)
def test_what_is_wrong_with_the_word_that_counts_is_named(attention: Any, name: str) -> None:
    assert attn_exp.check(attention).mistakes == (name,)


def test_a_word_that_is_handed_on_or_read_within_is_read() -> None:
    def attend(x: Any, mask: Any = None, pad: Any = None, key_mask: Any = None, other: Any = None) -> Any:
        def within() -> Any:
            return attend(x, pad)

        key_mask = key_mask if other else None
        return within

    assert never_read(attend, ("mask", "pad", "key_mask", "other")) == {"mask"}
    assert never_read(Layer, ("mask",)) == set()


def test_layers_of_keras_have_a_word_for_masks_because_all_have() -> None:
    keras: Any = pytest.importorskip("keras", reason="Keras is not installed: pip install keras")

    class OfProtocol(keras.layers.Layer):
        def __init__(self, dim: int) -> None:
            super().__init__()
            self.sides = [keras.layers.Dense(dim) for _ in "qkv"]

        def call(self, x: Any, mask: Any = None) -> Any:
            q, k, v = (side(x) for side in self.sides)
            scores = q @ keras.ops.swapaxes(k, 1, 2) / q.shape[-1] ** 0.5
            return keras.ops.softmax(scores, -1) @ v

    verdict = attn_exp.check(OfProtocol)
    assert verdict.passed, verdict
    assert "mask (its code never reads it)" in verdict.not_asked
