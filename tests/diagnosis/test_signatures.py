"""Functions of any signature are called: unknown arguments, arrays that come together, axes in another order."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.finding.ways_to_call import Tried, how_to_call, is_right
from attn_exp.errors import UserError
from attn_exp.own_code import find_function, function_at_hand


def softmax(s: Any) -> Any:
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def attend(q: Any, k: Any, v: Any) -> Any:
    return softmax(q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])) @ v


def found(function: Callable[..., Any]) -> Tried:
    """Return how a function is called."""
    return how_to_call(function_at_hand(function), Request())


# Arguments that nobody asks about


def with_d_k(q: Any, k: Any, v: Any, d_k: int) -> Any:
    return softmax(q @ np.swapaxes(k, -1, -2) / math.sqrt(d_k)) @ v


def with_module_of_functions(xp: Any, query: Any, key: Any, value: Any) -> Any:
    return attend(query, xp.asarray(key), value)


def with_dropout(q: Any, k: Any, v: Any, dropout: Any, training: bool, rng: Any) -> Any:
    assert training is False
    return dropout(softmax(q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1]))) @ v


def with_tables(q: Any, k: Any, v: Any, cos: Any, sin: Any) -> Any:
    def turn(x: Any) -> Any:
        return x * cos + np.concatenate([-x[..., 4:], x[..., :4]], -1) * sin

    return attend(turn(q), turn(k), v)


def in_chunks(query: Any, key: Any, value: Any, query_chunk_size: int = 1024, key_chunk_size: int = 1024) -> Any:
    """Lengths are so many times a size that is larger than any question is long."""
    count, parts = divmod(query.shape[-2], query_chunk_size)
    assert count and not parts and key.shape[-2] % key_chunk_size == 0
    return attend(query, key, value)


def with_settings(module: Any, query: Any, key: Any, value: Any, scaling: float, **rest: Any) -> Any:
    assert not module.training
    return softmax(query @ np.swapaxes(key, -1, -2) * scaling) @ value


def with_a_key(key: Any, q: Any, k: Any, v: Any) -> Any:
    return attend(q, k, v)


def keywords_alone(*, queries: Any, keys: Any, values: Any, head_dim: int) -> Any:
    return with_d_k(queries, keys, values, head_dim)


def stars(*arrays: Any) -> Any:
    return attend(*arrays)


def letters(a: Any, b: Any, c: Any) -> Any:
    return attend(b, c, a)


# Arrays that come together


def packed(qkv: Any) -> Any:
    q, k, v = np.moveaxis(qkv, 2, 0).swapaxes(2, 3)
    return attend(q, k, v).swapaxes(1, 2)


def packed_by_head(qkv: Any, n_heads: int) -> Any:
    batch, _, length = qkv.shape
    q, k, v = np.split(qkv.reshape(batch * n_heads, -1, length).swapaxes(1, 2), 3, -1)
    return attend(q, k, v).swapaxes(1, 2).reshape(batch, -1, length)


def keys_and_values(q: Any, kv: Any) -> Any:
    return attend(q, *kv)


def named(inputs: Any) -> Any:
    return attend(inputs["query"], inputs["key"], inputs["value"])


def one_matrix(x: Any, W: Any, NH: int, Wp: Any) -> Any:
    heads = [array.reshape(*array.shape[:-1], NH, -1).swapaxes(-2, -3) for array in np.split(x @ W, 3, axis=-1)]
    output = attend(*heads).swapaxes(-2, -3)
    return output.reshape(*output.shape[:-2], -1) @ Wp


def matrices_of_heads(x: Any, Wqs: Any, Wks: Any, Wvs: Any) -> Any:
    return np.concatenate([attend(x @ a, x @ b, x @ c) for a, b, c in zip(Wqs, Wks, Wvs, strict=True)], -1)


def keys_in_columns(q: Any, k: Any, v: Any) -> Any:
    assert k.shape[-2] == q.shape[-1]
    return softmax(q @ k / math.sqrt(q.shape[-1])) @ v


def two_inputs(xq: Any, xv: Any, Wqs: Any, Wks: Any, Wvs: Any, Wp: Any) -> Any:
    parts = [attend(xq @ a, xv @ b, xv @ c) for a, b, c in zip(Wqs, Wks, Wvs, strict=True)]
    return np.concatenate(parts, -1) @ Wp


def parameters(params: Any, x: Any) -> Any:
    return attend(x @ params["W_q"], x @ params["W_k"], x @ params["W_v"]) @ params["W_o"]


# Axes, and what comes back


def tokens_first(q: Any, k: Any, v: Any) -> Any:
    assert q.ndim == 3
    return np.einsum("bts,sbd->tbd", softmax(np.einsum("tbd,sbd->bts", q, k) / math.sqrt(q.shape[-1])), v)


def channels_first(q: Any, k: Any, v: Any) -> Any:
    return attend(*(array.swapaxes(-1, -2) for array in (q, k, v))).swapaxes(-1, -2)


def joined(q: Any, k: Any, v: Any) -> Any:
    return attend(q, k, v).swapaxes(1, 2).reshape(q.shape[0], q.shape[2], -1)


def weights_first(q: Any, k: Any, v: Any) -> Any:
    weights = softmax(q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1]))
    return weights, weights @ v


def an_object(q: Any, k: Any, v: Any) -> Any:
    weights, output = weights_first(q, k, v)
    return SimpleNamespace(probabilities=weights, y=output)


def nested(q: Any, k: Any, v: Any) -> Any:
    return None, (weights_first(q, k, v), {"cache": k})


class Temperature:
    def __init__(self, temperature: float) -> None:
        self.temperature = temperature

    def __call__(self, q: Any, k: Any, v: Any) -> Any:
        return softmax(q @ np.swapaxes(k, -1, -2) / self.temperature) @ v


ONE_LINE = [
    with_d_k, with_module_of_functions, with_dropout, with_tables, in_chunks, with_settings, with_a_key, keywords_alone,
    stars, letters, packed, packed_by_head, keys_and_values, named, one_matrix, matrices_of_heads,
    two_inputs, keys_in_columns, parameters, tokens_first, channels_first, joined, weights_first, an_object,
    nested, partial(with_d_k, d_k=8), Temperature(8**0.5).__call__,
]  # fmt: skip


@pytest.mark.parametrize("function", ONE_LINE, ids=lambda one: getattr(one, "__name__", "partial"))
def test_a_function_is_called_whatever_it_takes_and_returns(function: Callable[..., Any]) -> None:
    assert is_right(found(function))


@pytest.mark.parametrize("function", [with_d_k, one_matrix, joined, nested, Temperature])
def test_and_then_asked_all_else(function: Callable[..., Any]) -> None:
    verdict = attn_exp.check(function, quick=True)
    assert verdict.passed, str(verdict)


def test_the_verdict_says_what_was_given() -> None:
    said = [attn_exp.check(function, quick=True).findings[0].said for function in (with_d_k, weights_first, joined)]
    assert "d_k=q.shape[-1]" in said[0]
    assert "as what it returned 1" in said[1]
    assert "returns [b t h*d]" in said[2]


def test_a_mistake_is_named_through_any_signature() -> None:
    def by_d(q: Any, k: Any, v: Any, d_k: int) -> Any:
        return softmax(q @ np.swapaxes(k, -1, -2) / d_k) @ v

    def unscaled(qkv: Any) -> Any:
        q, k, v = np.moveaxis(qkv, 2, 0).swapaxes(2, 3)
        return attend(q * math.sqrt(q.shape[-1]), k, v).swapaxes(1, 2)

    assert attn_exp.check(by_d, quick=True).mistakes == ("scale_by_d",)
    assert attn_exp.check(unscaled, quick=True).mistakes == ("no_scale",)


def test_helpers_are_no_attention() -> None:
    def split(x: Any, n: int) -> Any:
        return x.reshape(*x.shape[:-1], n, -1)

    for helper in (softmax, split):
        with pytest.raises(UserError, match="expected q, k, v, or x"):
            found(helper)


def test_what_cannot_be_called_says_its_own_error() -> None:
    def odd(q: Any, k: Any, v: Any, gadget: Any) -> Any:
        return attend(q, gadget.turned(k), v)

    with pytest.raises(
        UserError, match=r"odd needs 'gadget'.*no attribute 'turned'|odd needs 'gadget'.*AttributeError"
    ):
        found(odd)


def test_a_method_of_a_class_is_that_of_an_object(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "with_methods.py").write_text(
        "class Layer:\n    def attend(self, q, k, v):\n        return self.inner(q, k, v)\n"
        "    def inner(self, q, k, v):\n        raise KeyError\nmine = Layer()\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    for name in ("Layer.attend", "mine.attend"):
        own = find_function(f"with_methods.py:{name}")
        assert type(own.function.__self__).__name__ == "Layer"


@pytest.mark.skipif(not find_spec("torch"), reason="PyTorch is not installed")
def test_a_module_without_parameters_is_a_function() -> None:
    import torch  # noqa: PLC0415 - one test of many needs it

    class DotProduct(torch.nn.Module):
        def __init__(self, temperature: float, dropout: float = 0.1) -> None:
            super().__init__()
            self.temperature, self.dropout = temperature, torch.nn.Dropout(dropout)

        def forward(self, q: Any, k: Any, v: Any, mask: Any = None) -> Any:
            scores = q @ k.transpose(2, 3) / self.temperature
            scores = scores if mask is None else scores.masked_fill(mask == 0, -1e9)
            weights = self.dropout(scores.softmax(-1))
            return weights @ v, weights

    assert attn_exp.check(DotProduct, quick=True).passed and attn_exp.check(DotProduct(math.sqrt(8)), quick=True).passed


def test_an_answer_that_is_transposed_does_not_pass() -> None:
    assert not attn_exp.check(lambda q, k, v: attend(q, k, v).swapaxes(-1, -2), quick=True).passed
    assert attn_exp.check(lambda q, k, v: attend(q, k, v).swapaxes(1, 2), quick=True).passed


def needs_its_mask(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """It says that it could do without a mask, and cannot."""
    scores = np.where(mask[..., :, :], q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]), -1e30)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ v


def test_a_mask_of_none_that_a_function_cannot_bear() -> None:
    verdict = attn_exp.check(needs_its_mask)
    assert verdict.passed, str(verdict)
