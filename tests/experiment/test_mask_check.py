"""Masks as pictures and words."""

from __future__ import annotations

import pytest

from attn_exp.errors import UserError
from attn_exp.experiment.checks.mask import draw_blocks
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.window import Window
from attn_exp.rules.rules import allowed_entries
from tests.compose import comparison

NAMES = [f"k{place}" for place in range(12)]


def test_a_causal_mask_in_blocks_of_two() -> None:
    assert draw_blocks(allowed_entries([Causal()], 6, 6)[0], 2) == ["▒··", "█▒·", "██▒"]


def test_a_mask_larger_than_a_page_is_drawn_in_larger_blocks() -> None:
    allowed = allowed_entries([Causal(), Window(16, 0)], 64, 64)[0]
    drawn = draw_blocks(allowed, 2)
    assert len(drawn) == len(drawn[0]) == 32
    assert drawn[31] == "·" * 23 + "▒" + "█" * 7 + "▒"


def test_check_mask_tells_it_for_a_run() -> None:
    found = comparison("check=mask", "mask=causal", "variant=[matrix]").checks[0]
    assert [each.sees for each in found.records] == ["she sees she", "likes sees she, likes", "coffee sees every key"]
    assert [each.blocks for each in found.records] == ["█··", "██·", "███"]
    assert found.sentence == "matrix: 6 full, 0 partial and 3 empty blocks, 67% open."


def test_heads_that_see_different_keys_have_a_picture_each() -> None:
    values = "mask.array.values=[[[true]],[[false]]]"
    found = comparison("check=mask", "mask=array", values, "variant=[multi_head]", "head=2").checks[0]
    assert [each.variant for each in found.records] == ["multi_head 1"] * 3 + ["multi_head 2"] * 3
    assert found.sentence.endswith("multi_head 2: 0 full, 0 partial and 9 empty blocks, 0% open.")


def test_a_mask_too_large_to_draw_is_refused() -> None:
    with pytest.raises(UserError, match="too large to draw"):
        allowed_entries([Causal()], 65536, 65536)
