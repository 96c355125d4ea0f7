"""Masks, score rules, positions and normalizers: each held to a number that comes from outside this project."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attn_exp import rules
from attn_exp.forms import decode
from attn_exp.rules.grid import Grid
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.document import Document
from attn_exp.rules.masks.mask import AllOf, AnyOf, Holes, Mask
from attn_exp.rules.masks.padding import Padding
from attn_exp.rules.masks.prefix import Prefix
from attn_exp.rules.masks.window import Window
from attn_exp.rules.positions.rope import Rope
from attn_exp.rules.positions.rope_llama3 import RopeLlama3
from attn_exp.rules.positions.sinusoidal import Sinusoidal
from attn_exp.rules.rules import Rules, allowed_entries, queries_with_keys, whole_grid
from attn_exp.rules.scores.added import Added
from attn_exp.rules.scores.additive import Additive
from attn_exp.rules.scores.alibi import Alibi, slopes
from attn_exp.rules.scores.sink import Sink
from attn_exp.rules.scores.softcap import Softcap
from attn_exp.rules.scores.t5 import T5, bucket
from tests.refusal import refusal


def drawn(mask: Mask, rows: int, keys: int, offset: int = 0) -> list[str]:
    """Draw a mask as rows of 1 and 0."""
    allowed = np.broadcast_to(mask.allows(whole_grid(Rules(offset=offset), 1, rows, keys)), (1, rows, keys))
    return ["".join("1" if place else "0" for place in row) for row in allowed[0]]


@pytest.mark.parametrize(
    ("rows", "keys", "bottom_right", "expected"),
    [
        (2, 5, True, ["11110", "11111"]),
        (5, 2, True, ["00", "00", "00", "10", "11"]),
        (2, 5, False, ["10000", "11000"]),
        (5, 2, False, ["10", "11", "11", "11", "11"]),
    ],
)
def test_causal_masks_are_those_of_the_flash_attention_readme(
    rows: int, keys: int, bottom_right: bool, expected: list[str]
) -> None:
    assert drawn(Causal(), rows, keys, keys - rows if bottom_right else 0) == expected


def test_padding_has_a_length_for_each_sequence() -> None:
    allowed = np.broadcast_to(Padding((1, 3)).allows(whole_grid(Rules(), 1, 1, 4, batches=2)), (2, 1, 1, 4))
    assert allowed.reshape(2, 4).tolist() == [[True, False, False, False], [True, True, True, False]]


MASKS = st.one_of(
    st.just(Causal()),
    st.builds(Window, st.integers(-1, 4), st.integers(-1, 4)),
    st.builds(Prefix, st.integers(0, 8)),
    st.lists(st.integers(0, 2), min_size=7, max_size=7).map(Document),
    st.integers(0, 9).map(Padding),
    st.lists(st.booleans(), min_size=7, max_size=7).map(lambda kept: Holes(tuple(kept))),
)
COMPOSED = st.one_of(
    MASKS, st.lists(MASKS, min_size=1, max_size=3).map(lambda all_of: AllOf(tuple(all_of))),
    st.lists(MASKS, min_size=1, max_size=3).map(lambda any_of: AnyOf(tuple(any_of))),
)  # fmt: skip


@given(COMPOSED, st.integers(-9, 9), st.integers(0, 6))
def test_a_span_bounds_what_its_mask_allows(mask: Mask, first: int, more: int) -> None:
    keys, last = 7, first + more
    span = mask.span(0, first, last, keys)
    place = Grid(0, 0, np.arange(more + 1)[:, None], np.arange(first, last + 1)[:, None], np.arange(keys), 1, 9, keys)
    allowed = np.broadcast_to(mask.allows(place), (more + 1, keys))
    seen = set(np.flatnonzero(allowed.any(axis=0)).tolist())
    assert seen <= set(range(span.some_start, span.some_stop))
    assert allowed[:, span.every_start : span.every_stop].all()
    assert 0 <= span.some_start <= span.some_stop <= keys
    assert 0 <= span.every_start <= span.every_stop <= keys


@given(COMPOSED, st.lists(st.integers(-5, 5), min_size=1, max_size=3))
def test_a_mask_that_decoding_takes_shows_no_later_key(mask: Mask, offsets: list[int]) -> None:
    offset = offsets[0] if len(offsets) == 1 else np.array(offsets)
    grid = whole_grid(Rules(offset=offset), 1, 5, 7, batches=len(offsets))
    later = np.asarray(mask.allows(grid)) & (grid.key > grid.query)
    assert decode.refuses(Rules(masks=(mask,))) or not later.any()


def test_alibi_slopes_are_the_authors_for_any_head_count() -> None:
    assert slopes(8) == [1 / 2**power for power in range(1, 9)]
    assert slopes(6) == [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]
    np.testing.assert_allclose(slopes(12)[8:], [0.70710678, 0.35355339, 0.17677670, 0.08838835], atol=5e-9)
    assert slopes(12)[:8] == slopes(8)
    assert slopes(1) == [1 / 256]


def test_signed_alibi_favours_later_keys_and_leaves_earlier_ones_as_they_are() -> None:
    place = Grid(0, 1, np.arange(3)[:, None], np.arange(3)[:, None], np.arange(3), 2, 3, 3)
    slope = 1 / 256
    by_hand = [[0, slope, 2 * slope], [-slope, 0, slope], [-2 * slope, -slope, 0]]
    np.testing.assert_allclose(Alibi(signed=True).bias(place), by_hand)
    np.testing.assert_allclose(np.tril(Alibi().bias(place)), np.tril(by_hand))


def test_t5_buckets_by_hand() -> None:
    assert bucket(np.array([0, -1, 1, -7, 8, -8, 16, 128, -500])).tolist() == [0, 1, 17, 7, 24, 8, 26, 31, 15]


def test_soft_cap_bounds_and_keeps_small_logits() -> None:
    bent = Softcap(2.0).bend(np.array([0.0, 1.0, 1000.0, -1000.0]))
    np.testing.assert_allclose(bent, [0.0, 0.92423431452, 2.0, -2.0], rtol=1e-10)


def test_softmax_of_alammars_scores() -> None:
    np.testing.assert_allclose(
        rules.normalizer("softmax").weigh(np.array([14.0, 12.0]), None), [0.880797, 0.119203], atol=5e-7
    )


def test_softmax_plus_one() -> None:
    plain = np.array([[[0.0, 0.0, 0.0]]])
    np.testing.assert_allclose(rules.normalizer("softmax").weigh(plain, np.zeros((1, 1, 1))), np.full((1, 1, 3), 0.25))


def test_sigmoid_by_hand() -> None:
    given = np.array([-800.0, 0.0, 0.5, 800.0, -np.inf])
    np.testing.assert_allclose(
        rules.normalizer("sigmoid").weigh(given, None), [0.0, 0.5, 0.62245933120185, 1.0, 0.0], rtol=1e-12
    )


@pytest.mark.parametrize(
    ("logits", "expected"),
    [
        ([0.0, 0.0], [0.5, 0.5]),
        ([0.5, 0.0], [0.75, 0.25]),
        ([2.0, 0.0], [1.0, 0.0]),
        ([1.0, 1.0, 0.9, -5.0], [11 / 30, 11 / 30, 8 / 30, 0.0]),
        ([1000.0, -math.inf, 999.5], [0.75, 0.0, 0.25]),
        ([-math.inf, -math.inf], [0.0, 0.0]),
    ],
)
def test_sparsemax_by_hand(logits: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(rules.normalizer("sparsemax").weigh(np.array(logits), None), expected, atol=1e-12)


def test_sinusoids_are_those_of_the_paper() -> None:
    marked = Sinusoidal().embed(np.zeros((2, 4)))
    expected = np.array([[0, 1, 0, 1], [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)]])
    np.testing.assert_allclose(marked, expected)


def test_rope_turns_by_the_position() -> None:
    head = np.array([[[1.0, 2.0, 3.0, 4.0]] * 2])
    halves = Rope().turn(head, np.array([0, 1]))[0]
    pairs = Rope(interleaved=True).turn(head, np.array([0, 1]))[0]
    c, s, c2, s2 = math.cos(1), math.sin(1), math.cos(0.01), math.sin(0.01)
    apart = np.array([[1, 2, 3, 4], [c - 3 * s, 2 * c2 - 4 * s2, s + 3 * c, 2 * s2 + 4 * c2]])
    np.testing.assert_allclose(halves, apart)
    beside = np.array([[1, 2, 3, 4], [c - 2 * s, s + 2 * c, 3 * c2 - 4 * s2, 3 * s2 + 4 * c2]])
    np.testing.assert_allclose(pairs, beside)


def test_rope_turns_a_part_of_a_head_and_stretches_positions() -> None:
    head = np.array([[[1.0, 0.0, 5.0]]])
    turned = Rope(size=2, stretch=4.0).turn(head, np.array([2]))[0, 0]
    np.testing.assert_allclose(turned, [math.cos(0.5), math.sin(0.5), 5.0])


@pytest.mark.parametrize(
    ("group", "name", "settings", "said"),
    [
        ("mask", "windo", {}, "unknown mask 'mask.windo'; did you mean mask.window?"),
        ("mask", "window", {"lft": 1}, "unknown setting 'mask.window.lft'; did you mean mask.window.left?"),
        ("mask", "window", {"left": -2}, "mask.window.left=-2: expected a whole number of keys, or -1"),
        ("mask", "causal", {"left": 1}, "mask.causal has no settings"),
        ("mask", "prefix", {}, "mask.prefix.length is missing"),
        ("mask", "alibi", {}, "unknown mask 'mask.alibi'"),
        ("mask", "array", {"values": [[0.5]]}, "mask values must be true or false"),
    ],
)
def test_a_wrong_rule_is_told_in_the_users_words(group: str, name: str, settings: Any, said: str) -> None:
    assert said in refusal(rules.make, group, name, settings)


@pytest.mark.parametrize("vector", [[0.5, -1.0, 2.0], [[0.5, -1.0, 2.0], [1.0, 0.0, -0.5]]])
def test_additive_scores_are_those_of_bahdanau_in_pytorch(vector: list[Any]) -> None:
    """`v . tanh(q + k)` as PyTorch's own tensors compute it, for all heads at once."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
    q, k = np.random.default_rng(1).standard_normal((2, 2, 4, 3))
    scores = Additive(vector).pair(q, k, np.arange(2)[:, None, None])
    each = torch.tensor(vector, dtype=torch.float64).expand(2, 3)[:, None, None]
    sums = torch.tanh(torch.tensor(q)[:, :, None] + torch.tensor(k)[:, None])
    np.testing.assert_allclose(scores, (sums * each).sum(-1).numpy(), rtol=1e-14, atol=1e-14)


class UpToLast(Mask):
    """A user's mask whose code needs a query at every call."""

    def allows(self, grid: Grid) -> Any:
        return grid.key <= np.max(grid.query)


@pytest.mark.parametrize("rows", [1, 7, 300])
def test_queries_that_see_a_key_are_those_of_the_whole_mask(rows: int) -> None:
    """Whatever the blocks of keys in which they are looked for."""
    keys = 600
    values = np.random.default_rng(0).random((rows, keys)) < 2 / keys
    for masks in ((), (Causal(),), (Causal(), UpToLast()), (Allowed(values[None, None]), Causal())):
        seen = queries_with_keys(Rules(masks=masks, offset=400), 2, rows, keys)
        np.testing.assert_array_equal(seen, allowed_entries(masks, rows, keys, 400, 2).any(axis=-1))


MISFITS = [
    (Rope().misfit(6), None), (Rope(size=4).misfit(8), None),
    (Rope().misfit(5), "rope rotates pairs, but the settings rotate 5 of the 5 numbers of a head; expected 2, 4, ..."),
    (Rope(size=10).misfit(8),
     "rope rotates pairs, but the settings rotate 10 of the 8 numbers of a head; expected 2, 4, ..."),
    (RopeLlama3(low=4.0).misfit(8), "rope_llama3 has low=4 and high=4; expected low below high"),
    (Additive(vector=[1, 2]).misfit_size(2), None),
    (Additive(vector=[1, 2]).misfit_size(3), "additive: a vector of 2 numbers; expected d_head=3"),
    (Additive(vector=[[1], [2]]).misfit(3, 4, 4), "additive: vectors for 2 heads; expected 3"),
    (Sink([1, 2]).misfit(3, 4, 4), "sink: 2 logits; expected 1, or one per head (3)"),
    (Sink([1, 2]).misfit(2, 4, 4), None), (Document((0, 1)).misfit(1, 2, 2), None),
    (Document((0, 1)).misfit(1, 2, 3), "document: 2 ids, but there are 3 keys"),
    (Holes((True, False)).misfit(1, 2, 3), "mask.padding.keys has 2 entries, but there are 3 keys"),
    (Added([1, 2, 3, 4]).misfit(1, 2, 4), None),
    (T5(table=np.zeros((32, 2))).misfit(3, 1, 1), "t5: table of shape [32, 2]; expected [32, 3] for buckets and heads"),
]  # fmt: skip


@pytest.mark.parametrize(("found", "expected"), MISFITS)
def test_what_does_not_fit_is_said(found: str | None, expected: str | None) -> None:
    assert found == expected
    with pytest.raises(ValueError, match="must be rows of equal length"):
        Allowed([[1], [1, 0]])
