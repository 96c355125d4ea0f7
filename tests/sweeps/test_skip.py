"""`sweep.skip` against Python's own meaning of the same expressions, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from attn_exp.errors import UserError
from attn_exp.sweeps.space import find_d_model, parse_condition

NAMES = {"head": 4, "scale": True, "seed": 7, "title": "a b", "kv_head": None}


@pytest.mark.parametrize(
    "text",
    [
        "head > 2", "head > 4", "2 < head <= 4 < seed", "head % 2 == 0 and seed in [6, 7]", "not scale or head == 3",
        "seed not in (1, 2)", "title == 'a b'", "kv_head is_none", "-head + 2 * seed // 3 >= 0", "head / 8 < 0.6",
        "scale", "head != 4 or (seed > 3 and scale)",
    ],
)  # fmt: skip
def test_expressions_mean_what_they_mean_in_python(text: str) -> None:
    text = text.replace("kv_head is_none", "kv_head == null")
    assert parse_condition(text).holds(NAMES) is bool(eval(text, {"null": None}, dict(NAMES)))


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')", "head.__class__()", "[x for x in (1, 2)]", "lambda: 1", "head ** 9",
        "f'{head}'", "head if seed else 1", "head[0]", "{1: 2}", "(head := 3)", "head << 99", "1j > 0", "b'x'", "...",
        "head is None",
    ],
)  # fmt: skip
def test_nothing_else_is_understood(text: str) -> None:
    with pytest.raises(UserError, match=r"is not allowed in an expression|is no setting"):
        parse_condition(text)


@pytest.mark.parametrize("text", ["head >", "", "head > 2; seed", "head = 2", "(" * 5000])
def test_what_cannot_be_parsed_is_told(text: str) -> None:
    with pytest.raises(UserError, match="expected an expression such as head > d_model"):
        parse_condition(text)


@pytest.mark.parametrize(
    "text", ["title > 3", "head / (seed - 7) > 1", "kv_head < 2", "'a' * 9 == title", "[head] * 9", "title % 2"]
)
def test_what_cannot_be_decided_names_the_values(text: str) -> None:
    with pytest.raises(UserError, match=r"cannot be evaluated for .*="):
        parse_condition(text).holds(NAMES)


@pytest.mark.parametrize(
    ("embeddings", "size"),
    [
        ({"d_model": 5}, 5), ({"vectors": [[1, 2], [3, 4], [5, 6]], "columns": True}, 3),
        ({"q": [[1, 2, 3]]}, 3), ({}, None),
    ],
)  # fmt: skip
def test_d_model_as_far_as_the_settings_tell(embeddings: dict[str, Any], size: int | None) -> None:
    assert find_d_model(embeddings) == size
