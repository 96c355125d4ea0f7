"""What must hold of attention whatever the numbers are, for every form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn_exp import forms
from attn_exp import rules as all_rules
from attn_exp.arrays import Array
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.padding import Padding
from attn_exp.rules.masks.window import Window
from attn_exp.rules.normalizers.normalizer import Normalizer
from attn_exp.rules.positions.rope import Rope
from attn_exp.rules.rules import Rules
from attn_exp.rules.scores.added import Added
from attn_exp.rules.scores.sink import Sink
from tests.forms.by_form import largest_logit, tolerance

NORMALIZERS = [all_rules.normalizer(name) for name in all_rules.names("normalizer")]
SUMMED = [normalizer for normalizer in NORMALIZERS if normalizer.sums_to_one and not normalizer.signed]
PLAIN = [name for name in forms.NAMES if not forms.refuses(name, Rules())]
CAUSAL = [name for name in forms.NAMES if not forms.refuses(name, Rules(masks=(Causal(),)))]
SEALED = [name for name in CAUSAL if not forms.form(name).leaks]


@st.composite
def inputs(draw: Any) -> tuple[Array, Array, Array]:
    """Draw queries `[h t d]`, keys `[g s d]` and values `[g s e]`, as many queries as keys."""
    g, per_group, t, d, e = (draw(st.integers(1, most)) for most in (2, 3, 7, 5, 4))
    rng = np.random.default_rng(draw(st.integers(0, 9999)))
    size = draw(st.sampled_from([0.1, 1.0, 10.0]))
    return (
        rng.standard_normal((g * per_group, t, d)) * size,
        rng.standard_normal((g, t, d)),
        rng.standard_normal((g, t, e)),
    )


def context(form: str, arrays: tuple[Array, ...], **settings: Any) -> Array:
    found = forms.form(form).attend(*arrays, Rules(**settings)).context
    assert found is not None
    return found


@pytest.mark.parametrize("form", PLAIN)
@given(arrays=inputs())
def test_outputs_lie_in_the_hull_of_the_values(form: str, arrays: tuple[Array, Array, Array]) -> None:
    q, _, v = arrays
    found = context(form, arrays)
    each = np.repeat(v, len(q) // len(v), axis=0)
    rounding = tolerance(form, 1e-9)
    assert (found <= each.max(axis=1, keepdims=True) + rounding).all()
    assert (found >= each.min(axis=1, keepdims=True) - rounding).all()


@pytest.mark.parametrize("form", PLAIN)
@given(arrays=inputs(), seed=st.integers(0, 99))
def test_tokens_in_another_order_give_outputs_in_that_order(
    form: str, arrays: tuple[Array, Array, Array], seed: int
) -> None:
    order = np.random.default_rng(seed).permutation(arrays[0].shape[1])
    shuffled = tuple(each[:, order] for each in arrays)
    absolute, relative = (tolerance(form, each, largest_logit(*arrays[:2])) for each in (1e-12, 1e-9))
    found = context(form, shuffled)
    np.testing.assert_allclose(found, context(form, arrays)[:, order], atol=absolute, rtol=relative)


@pytest.mark.parametrize("form", CAUSAL)
@given(arrays=inputs(), seed=st.integers(0, 99))
def test_the_future_cannot_change_a_causal_output(form: str, arrays: tuple[Array, Array, Array], seed: int) -> None:
    rng = np.random.default_rng(seed)
    cut = int(rng.integers(0, arrays[0].shape[1]))
    changed = tuple(each.copy() for each in arrays)
    for each in changed:
        each[:, cut + 1 :] = rng.standard_normal(each[:, cut + 1 :].shape)
    before, after = (context(form, each, masks=(Causal(),))[:, : cut + 1] for each in (arrays, changed))
    relative, absolute = (tolerance(form, each) for each in (1e-12, 1e-13))
    np.testing.assert_allclose(after, before, rtol=relative, atol=absolute)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("form", SEALED)
@given(arrays=inputs(), cut=st.integers(0, 7), masks=st.sampled_from(["causal", "window", "padding", "array"]))
def test_what_masked_keys_and_values_hold_cannot_leak(
    form: str, poison: float, arrays: tuple[Array, Array, Array], cut: int, masks: str
) -> None:
    q, k, v = arrays
    length = q.shape[1]
    allowed = np.tril(np.ones((length, length), bool)) & (np.arange(length) < cut)
    chosen = {
        "causal": (Causal(),),
        "window": (Causal(), Window(1, 0)),
        "padding": (Causal(), Padding(cut)),
        "array": (Causal(), Allowed(allowed)),
    }[masks]
    bad = k.copy(), v.copy()
    for each in bad:
        each[:, cut:] = poison
    with np.errstate(all="ignore"):  # queries that do see the poison may complain
        found = context(form, (q, *bad), masks=chosen)
    clean = context(form, arrays, masks=chosen)
    rows = slice(None, cut if masks in ("causal", "window") else None)
    np.testing.assert_allclose(found[:, rows], clean[:, rows], rtol=1e-12, atol=1e-13)
    assert np.isfinite(found[:, rows]).all()


@pytest.mark.parametrize("form", forms.NAMES)
def test_queries_that_see_nothing_get_zeros(form: str) -> None:
    arrays = tuple(np.ones((2, 3, 4)) for _ in range(3))
    for masks in ((Causal(), Padding(0)), (Causal(), Allowed(np.zeros((1, 1), bool)))):
        for normalizer in NORMALIZERS:
            if forms.refuses(form, Rules(masks=masks, normalizer=normalizer)):
                continue
            np.testing.assert_array_equal(context(form, arrays, masks=masks, normalizer=normalizer), 0.0)


@pytest.mark.parametrize("form", CAUSAL)
@given(arrays=inputs(), shift=st.sampled_from([-700.0, 3.0, 700.0]))
def test_a_constant_added_to_every_logit_changes_nothing(
    form: str, arrays: tuple[Array, Array, Array], shift: float
) -> None:
    settings: dict[str, Any] = {"masks": (Causal(),), "scores": (Added(np.array([[shift]])),)}
    if not forms.refuses(form, Rules(**settings)):
        relative, absolute = (tolerance(form, each, largest_logit(*arrays[:2]) + abs(shift)) for each in (1e-9, 1e-11))
        found = context(form, arrays, **settings)
        np.testing.assert_allclose(found, context(form, arrays, masks=(Causal(),)), rtol=relative, atol=absolute)


@given(arrays=inputs(), normalizer=st.sampled_from(SUMMED), cut=st.integers(0, 3))
def test_rows_of_weights_sum_to_one_or_zero(
    arrays: tuple[Array, Array, Array], normalizer: Normalizer, cut: int
) -> None:
    rules = Rules(masks=(Causal(), Window(2, 0)), normalizer=normalizer, offset=-cut)
    weights = forms.form("matrix").attend(*arrays, rules).weights
    assert weights is not None
    assert (weights >= 0).all()
    sums = weights.sum(axis=-1)
    np.testing.assert_allclose(sums[:, cut:], 1.0, atol=1e-12)
    np.testing.assert_array_equal(sums[:, :cut], 0.0)


@given(arrays=inputs(), logit=st.floats(-5, 5))
def test_a_sink_takes_its_share(arrays: tuple[Array, Array, Array], logit: float) -> None:
    found = forms.form("matrix").attend(*arrays, Rules(scores=(Sink(logit),)))
    assert found.weights is not None and found.masked is not None
    shares = np.exp(found.masked).sum(axis=-1)
    np.testing.assert_allclose(found.weights.sum(axis=-1), shares / (shares + np.exp(logit)), rtol=1e-9)


@given(shift=st.integers(-50, 50), interleaved=st.booleans(), base=st.sampled_from([10.0, 10000.0]))
def test_rope_depends_on_the_distance_alone(shift: int, interleaved: bool, base: float) -> None:
    rng = np.random.default_rng(0)
    q, k, places = rng.standard_normal((2, 5, 6)), rng.standard_normal((2, 5, 6)), np.arange(5)
    rope = Rope(base=base, interleaved=interleaved)
    near, far = (rope.turn(q, at) @ rope.turn(k, at).swapaxes(-1, -2) for at in (places, places + shift))
    np.testing.assert_allclose(far, near, atol=1e-11)
    np.testing.assert_allclose(np.linalg.norm(rope.turn(q, places), axis=-1), np.linalg.norm(q, axis=-1))
