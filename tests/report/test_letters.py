"""Why rows share a letter, and how much of a long run was checked, in the words that a reader meets."""

from __future__ import annotations

import pytest

from attn_exp.report import terminal
from attn_exp.report.sentences import why_letters_are_shared
from tests.compose import comparison

CASES = {
    ("variant=[looped,matrix,scaled,multi_head]",): [
        "matrix computes what looped does, in another form.",
        "scaled pins scale=true, which this run has already.",
    ],
    ("scale=false", "variant=[looped,unscaled,scaled]"): ["unscaled pins scale=false, which this run has already."],
    ("head=2", "kv_head=1", "variant=[multi_head,multi_query]"): [
        "multi_query pins kv_head=1, which this run has already."
    ],
    ("variant=[looped,matrix,blockwise]", "mask=causal"): [
        "matrix and blockwise compute what looped does, in another form."
    ],
    ("head=2", "variant=[looped,unscaled,multi_head]"): [],
    ("embeddings=random", "embeddings.tokens=1", "variant=[looped,unscaled]"): [
        "unscaled pins scale=false, which changes nothing here."  # a lone key has the weight 1 at any scale
    ],
}  # fmt: skip


@pytest.mark.parametrize(("words", "expected"), CASES.items(), ids=str)
def test_why_rows_share_a_letter(words: tuple[str, ...], expected: list[str]) -> None:
    assert why_letters_are_shared(comparison(*words)) == expected


LONG = ("embeddings=random", "embeddings.tokens=2500", "embeddings.d_model=4", "variant=[blockwise]")


def test_the_terminal_says_how_many_queries_were_checked_where_it_was_not_all() -> None:
    found = comparison(*LONG)
    (row,) = found.rows
    assert 0 < row.checked < 2500
    assert f" of the scalar reference at the {row.checked} of 2,500 queries that it checked." in terminal.summary(found)
    assert "scalar reference" not in terminal.summary(comparison("variant=[looped]"))
