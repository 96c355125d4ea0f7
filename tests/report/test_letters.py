"""What a report says beside its numbers: whose tokens they are, why rows share a letter, what letters of axes mean."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from attn_exp import run
from attn_exp.report import sentences
from attn_exp.report.walk import axes_of, steps
from attn_exp.runs import store
from tests.compose import comparison
from tests.report.render import drawings_of, markdown_of, page_of
from tests.report.test_report import a_run

CASES = {
    ("variant=[looped,matrix,scaled,multi_head]",): [
        "scaled sets scale=true, which is already the default here.",
    ],
    ("scale=false", "variant=[looped,unscaled,scaled]"): [
        "unscaled sets scale=false, which is already the default here."
    ],
    ("head=2", "kv_head=1", "variant=[multi_head,multi_query]"): [
        "multi_query sets kv_head=1, which is already the default here."
    ],
    ("variant=[looped,matrix,blockwise]", "mask=causal"): [],
    ("head=2", "variant=[looped,unscaled,multi_head]"): [],
    ("embeddings=random", "embeddings.tokens=1", "variant=[looped,unscaled]"): [
        "unscaled has scale=false, which changes nothing here."  # a lone key has the weight 1 at any scale
    ],
}  # fmt: skip


@pytest.mark.parametrize(("words", "expected"), CASES.items(), ids=str)
def test_why_rows_share_a_letter(words: tuple[str, ...], expected: list[str]) -> None:
    assert sentences.explain_shared_letters(comparison(*words)) == expected


LONG = ("embeddings=random", "embeddings.tokens=2500", "embeddings.d_model=4", "variant=[blockwise]")


@pytest.mark.long
def test_the_terminal_says_how_many_queries_were_checked_where_it_was_not_all() -> None:
    found = comparison(*LONG)
    (row,) = found.rows
    assert 0 < row.checked < 2500
    assert f"; {row.checked} of 2,500 queries were checked." in sentences.summary(found)
    assert "queries were checked" not in sentences.summary(comparison("variant=[looped]"))


MEMORY = ("embeddings.memory=[elle,aime,le,sucre]", "variant=[matrix]")
PAST = ("embeddings=words", "embeddings.text=the cat the mat", "past=2", "mask=causal", "variant=[matrix]")


def test_a_report_says_whose_tokens_ask_and_whose_are_looked_at() -> None:
    said = "Queries come from x (3 tokens), keys and values from the memory (4 tokens)."
    memory = a_run(comparison(*MEMORY))
    for text in (markdown_of(memory), page_of(memory), sentences.summary(memory.comparison)):
        assert said in text
    said = "Queries come from the last 2 tokens of 4; the first 2 are cached (keys and values only)."
    assert said in sentences.summary(comparison(*PAST)) and said in page_of(a_run(comparison(*PAST)))
    assert sentences.describe_tokens(comparison("variant=[matrix]").problem).queries == ""


def test_rows_are_queries_and_columns_keys() -> None:
    page = page_of(a_run(comparison(*MEMORY)))
    head = "".join(f'<th scope="col" data-k="{place}">{name}</th>' for place, name in enumerate(("elle", "aime")))
    assert head in page and "Attention of 3 tokens over a memory of 4" in page
    found = {step.stage: step for step in steps(comparison(*MEMORY), "matrix")}
    assert found["memory"].tables[0].rows == found["k"].tables[0].rows == ("elle", "aime", "le", "sucre")
    assert found["q"].tables[0].rows == ("she", "likes", "coffee")
    assert found["k"].explained.formula == "K = X′ W_k" and found["q"].explained.formula == "Q = X W_q"
    names = [text.get_text() for text in drawings_of(comparison(*MEMORY))["weights"].axes[0].texts]
    assert "key (memory)" in names


def test_metrics_that_need_one_sequence_say_why_they_are_blank() -> None:
    found = comparison(*MEMORY, "metrics=[on_itself,on_previous,distance,looks_back,sink]").checks[0]
    blank = {record.metric for record in found.records if np.isnan(record.value)}
    assert blank == {"on_itself", "on_previous", "distance", "looks_back"}
    assert "queries and keys are tokens of different inputs" in found.sentence


def test_a_run_on_disk_keeps_memory_and_past(tmp_path: Path) -> None:
    for words in (MEMORY, PAST):
        saved = run(*words, f"output_dir={tmp_path}", "report=none")
        loaded, before = store.load(saved.save()).comparison, saved.comparison
        assert loaded.problem.past == before.problem.past
        assert loaded.problem.key_tokens == before.problem.key_tokens
        assert loaded.config.embeddings.memory == before.config.embeddings.memory
        np.testing.assert_equal(loaded.problem.memory, before.problem.memory)
        assert sentences.summary(loaded) == sentences.summary(before)


def sizes(*words: str) -> dict[str, str]:
    """Return the sizes of each letter, of all walks of a run."""
    found = comparison(*words)
    return {
        letter: sizes for letter, _, sizes in axes_of(step for row in found.rows for step in steps(found, row.variant))
    }


def test_each_letter_has_the_sizes_of_the_run() -> None:
    """Three tokens of four numbers, in one head of four and in two of two."""
    words = ("variant=[looped,multi_head]", "head=2")
    assert sizes(*words) == {"t": "3", "s": "3", "m": "4", "d": "4 or 2", "e": "4 or 2", "h": "1 or 2"}


def test_every_letter_of_a_page_is_explained_there_once() -> None:
    page = page_of(a_run(comparison("variant=[looped,multi_head,blockwise]", "embeddings.memory.tokens=5")))
    used = set("".join(re.findall(r"<small>\[([a-z ]+)\] =", page)).replace(" ", ""))
    assert sorted(used) == sorted(re.findall(r"<dt>([a-z])</dt>", page))
