"""Functions are called by the names of their arguments; what no name tells is not guessed."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.errors import UserError
from tests.diagnosis.functions import attend, causal, logits, merge, raw, softmax, split

# Arguments that nobody asks about


def with_d_k(q: Any, k: Any, v: Any, d_k: int) -> Any:
    return softmax(raw(q, k) / math.sqrt(d_k)) @ v


def by_position(k: Any, q: Any, v: Any, /) -> Any:
    return attend(q, k, v)


def with_pair_of_tables(q: Any, k: Any, v: Any, rope: Any) -> Any:
    return with_tables(q, k, v, *rope)


def with_module_of_functions(xp: Any, query: Any, key: Any, value: Any) -> Any:
    return attend(query, xp.asarray(key), value)


def with_tables(q: Any, k: Any, v: Any, cos: Any, sin: Any) -> Any:
    def turn(x: Any) -> Any:
        return x * cos + np.concatenate([-x[..., 4:], x[..., :4]], -1) * sin

    return attend(turn(q), turn(k), v)


def keywords_alone(*, queries: Any, keys: Any, values: Any, head_dim: int) -> Any:
    return with_d_k(queries, keys, values, head_dim)


def stars(*arrays: Any) -> Any:
    return attend(*arrays)


def letters(a: Any, b: Any, c: Any) -> Any:
    return attend(b, c, a)


def of_an_odd_window(q: Any, k: Any, v: Any, window_size: int) -> Any:
    assert window_size % 2, "a window needs a middle"
    rows, keys = np.indices((q.shape[-2], k.shape[-2]))
    return softmax(np.where(abs(rows - keys) <= window_size // 2, logits(q, k), -np.inf)) @ v


def of_a_switch(q: Any, k: Any, v: Any, mask: bool = False) -> Any:
    """`mask` is no array, but the word for causal."""
    return softmax(causal(logits(q, k)) if mask else logits(q, k)) @ v


def of_a_default(q: Any, k: Any, v: Any, d_k: int = 512) -> Any:
    """The default is not the size of a head."""
    return with_d_k(q, k, v, d_k)


def of_a_dropout_mask(q: Any, k: Any, v: Any, dropout_mask: Any = None) -> Any:
    weights = softmax(logits(q, k))
    return (weights if dropout_mask is None else np.where(dropout_mask, weights, 0.0)) @ v


class Temperature:
    def __init__(self, temperature: float) -> None:
        self.temperature = temperature

    def __call__(self, q: Any, k: Any, v: Any) -> Any:
        return softmax(raw(q, k) / self.temperature) @ v


# Arrays that come together


def packed(qkv: Any) -> Any:
    q, k, v = np.moveaxis(qkv, 2, 0).swapaxes(2, 3)
    return attend(q, k, v).swapaxes(1, 2)


# Axes, and what comes back


def keys_in_columns(q: Any, k: Any, v: Any) -> Any:
    assert k.shape[-2] == q.shape[-1]
    return softmax(q @ k / math.sqrt(q.shape[-1])) @ v


def tokens_first(q: Any, k: Any, v: Any) -> Any:
    assert q.ndim == 3
    return np.einsum("bts,sbd->tbd", softmax(np.einsum("tbd,sbd->bts", q, k) / math.sqrt(q.shape[-1])), v)


def channels_first(q: Any, k: Any, v: Any) -> Any:
    return attend(*(array.swapaxes(-1, -2) for array in (q, k, v))).swapaxes(-1, -2)


def joined(q: Any, k: Any, v: Any) -> Any:
    return merge(attend(q, k, v))


def side_by_side(q: Any, k: Any, v: Any, num_heads: int) -> Any:
    return merge(attend(*(split(array, num_heads) for array in (q, k, v))))


def weights_first(q: Any, k: Any, v: Any) -> Any:
    weights = softmax(logits(q, k))
    return weights, weights @ v


def an_object(q: Any, k: Any, v: Any) -> Any:
    weights, output = weights_first(q, k, v)
    return SimpleNamespace(probabilities=weights, y=output)


def nested(q: Any, k: Any, v: Any) -> Any:
    return None, (weights_first(q, k, v), {"cache": k})


RIGHT = [
    by_position, with_pair_of_tables,
    with_d_k, with_tables, keywords_alone, of_an_odd_window, of_a_switch, of_a_default, of_a_dropout_mask,
    partial(with_d_k, d_k=8), Temperature, Temperature(8**0.5).__call__, tokens_first, channels_first, joined,
    side_by_side, weights_first, an_object, nested,
]  # fmt: skip


@pytest.mark.parametrize("function", RIGHT, ids=lambda one: getattr(one, "__name__", "partial"))
def test_a_right_function_passes_whatever_it_takes_and_returns(function: Callable[..., Any]) -> None:
    verdict = attn_exp.check(function, quick=True)
    assert verdict.outcome == "right" and not verdict.right_under, verdict


@pytest.mark.parametrize("function", [with_module_of_functions, stars, letters, packed])
def test_arguments_that_no_name_tells_are_not_guessed(function: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match=r"whose meaning is not known|expected q, k, v|argument names do not identify"):
        attn_exp.check(function)


def test_an_array_in_an_unusual_order_that_the_function_refuses_is_not_verified() -> None:
    assert attn_exp.check(keys_in_columns, quick=True).outcome == "not verified"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (with_d_k, "d_k=..."),
        (weights_first, "as result 1"),
        (joined, "returns [b t h*d]"),
        (side_by_side, "[b t h*d]"),
    ],
)
def test_the_verdict_says_what_was_given(function: Callable[..., Any], said: str) -> None:
    assert said in attn_exp.check(function, quick=True).findings[0].message


def by_d(q: Any, k: Any, v: Any, d_k: int) -> Any:
    return softmax(raw(q, k) / d_k) @ v


def merged_wrong(queries: Any, keys: Any, values: Any, n_heads: int = 2) -> Any:
    """Its queries are scaled as if a root had been taken in float32, which is no other scale."""
    q, k, v = (split(array, n_heads) for array in (queries * (1 + 2.0**-25), keys, values))
    return attend(q, k, v).reshape(queries.shape)


def tokens_before_heads(q: Any, k: Any, v: Any) -> Any:
    assert q.shape[1] == k.shape[1] == v.shape[1]
    weights = softmax(raw(q.swapaxes(0, 1), k.swapaxes(0, 1)))
    return (weights @ v.swapaxes(0, 1)).swapaxes(0, 1)


@pytest.mark.parametrize(
    ("function", "words", "name"),
    [
        (by_d, "layout=bhtd", "scale_by_d"), (merged_wrong, "head=2", "heads_merged_wrong"),
        (tokens_before_heads, "layout=thd", "no_scale"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_through_its_signature(function: Callable[..., Any], words: str, name: str) -> None:
    assert attn_exp.check(function, words, quick=True).mistakes == (name,)


def with_options(q: Any, k: Any, v: Any, reorder_ops: bool = False, rows_at_once: int = 64, near: bool = False) -> Any:
    outputs = []
    for start in range(0, q.shape[-2], rows_at_once):
        rows = q[..., start : start + rows_at_once, :]
        scores = raw(rows * q.shape[-1] ** -0.5, k) if reorder_ops else logits(rows, k)
        outputs.append(softmax(scores / 2 if near else scores) @ v)
    return np.concatenate(outputs, axis=-2)


def test_an_option_is_verified_where_its_other_value_gives_the_right_answers_too() -> None:
    verdict = attn_exp.check(with_options, quick=True)
    assert verdict.not_verified == ("argument `near` (right only with its default)",), verdict


@pytest.mark.parametrize("scaled_before", [False, True])
def test_what_is_passed_as_the_scale_may_divide_once(scaled_before: bool) -> None:
    def attention(q: Any, k: Any, v: Any, scale: float | None = None) -> Any:
        root = math.sqrt(q.shape[-1]) if scale is None else scale
        return softmax(raw(q / root if scaled_before else q, k) / root) @ v

    verdict = attn_exp.check(attention, quick=True)
    assert verdict.mistakes == (("scale_twice",) if scaled_before else ()), verdict
    assert scaled_before or "scores are divided by its scale argument" in str(verdict), verdict


def test_helpers_are_no_attention_and_what_cannot_be_called_says_its_own_error() -> None:
    def odd(q: Any, k: Any, v: Any, gadget: Any) -> Any:
        return attend(q, gadget.turned(k), v)

    for helper in (softmax, split):
        with pytest.raises(UserError, match="expected q, k, v, or x"):
            attn_exp.check(helper)
    with pytest.raises(UserError, match="odd needs `gadget`, whose meaning is not known"):
        attn_exp.check(odd)


@pytest.mark.parametrize("name", ["Layer.attend", "mine.attend"])
def test_a_method_of_a_class_is_that_of_an_object(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "with_methods.py").write_text(
        "from tests.diagnosis import functions\n\nclass Layer:\n    def attend(self, q, k, v):\n"
        "        return self.inner(q, k, v)\n    def inner(self, q, k, v):\n        return functions.attend(q, k, v)\n"
        "mine = Layer()\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    assert attn_exp.check(f"with_methods.py:{name}", quick=True).passed


def test_a_transposed_answer_does_not_pass_and_an_exchange_of_heads_and_tokens_does() -> None:
    assert not attn_exp.check(lambda q, k, v: attend(q, k, v).swapaxes(-1, -2), quick=True).passed
    assert attn_exp.check(lambda q, k, v: attend(q, k, v).swapaxes(1, 2), quick=True).passed


class OfWidth:
    """It holds a width and counts no heads."""

    def __init__(self, d_model: int, vocab_size: int) -> None:
        self.d_model = d_model
        self.W_out = np.ones((d_model, vocab_size))

    def attention(self, Q: Any, K: Any, V: Any) -> Any:
        scores = Q @ K.T / math.sqrt(self.d_model)
        return softmax(scores) @ V, scores


def test_a_width_without_heads_is_that_of_one_head() -> None:
    assert attn_exp.check(OfWidth(16, 5).attention, quick=True).passed
