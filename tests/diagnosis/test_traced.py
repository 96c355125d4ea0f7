"""Functions of JAX are traced anew in each call, and what they keep or ask of values stays as it is."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import attn_exp
from attn_exp.diagnosis.code.traced import called, keeps_nothing

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
jnp: Any = pytest.importorskip("jax.numpy")


@lru_cache
def causal(length: int) -> Any:
    return jnp.tril(jnp.ones((length, length))) == 1


def with_a_mask_that_is_kept(q: Any, k: Any, v: Any) -> Any:
    scores = q @ jnp.swapaxes(k, -1, -2) / q.shape[-1] ** 0.5
    mask = causal(max(q.shape[-2], k.shape[-2]))[: q.shape[-2], : k.shape[-2]]
    return jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), -1) @ v


def that_asks_for_values(q: Any, k: Any, v: Any) -> Any:
    scores = q @ jnp.swapaxes(k, -1, -2) / q.shape[-1] ** 0.5
    if float(jnp.abs(scores).max()) > 1e9:
        raise OverflowError("scores are large")
    return jax.nn.softmax(scores, -1) @ v


def test_a_mask_that_is_kept_from_call_to_call_is_no_traced_one() -> None:
    verdict = attn_exp.check(with_a_mask_that_is_kept, "mask=causal")
    assert verdict.passed, verdict


def test_a_function_that_asks_for_values_is_called_as_it_is() -> None:
    verdict = attn_exp.check(that_asks_for_values, quick=True)
    assert verdict.passed or verdict.mistakes == (), verdict
    x = np.ones((1, 2, 3), np.float32)
    np.testing.assert_allclose(called(that_asks_for_values, [x], {"k": x, "v": x}), x, rtol=1e-6)


def test_what_changes_from_call_to_call_is_seen() -> None:
    count = list[int]()

    def counted(x: Any) -> Any:
        count.append(1)
        return x + len(count)

    assert [float(called(counted, [np.float32(0)], {})) for _ in range(3)] == [1.0, 2.0, 3.0]


COUNTED = {"calls": 0}


def that_counts(x: Any) -> Any:
    COUNTED["calls"] += 1
    return x


def that_calls(x: Any) -> Any:
    return that_counts(x) + 1


def that_makes_a_mapping(x: Any) -> Any:
    made = {}
    made["x"] = jnp.tril(x)
    return made["x"]


def test_what_may_outlive_a_call_is_seen_in_the_code_that_a_function_reaches() -> None:
    assert keeps_nothing(that_makes_a_mapping) and keeps_nothing(that_asks_for_values)
    assert not keeps_nothing(that_calls) and not keeps_nothing(with_a_mask_that_is_kept)
