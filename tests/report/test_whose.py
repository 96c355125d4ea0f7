"""Whose tokens a report shows, where those of the keys are not those of the queries."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from attn_exp import run
from attn_exp.experiment.comparison import Run
from attn_exp.report import sentences, terminal, views, walk
from attn_exp.runs import store
from tests.compose import comparison
from tests.report.render import drawings_of, markdown_of, page_of

MEMORY = ("embeddings.memory=[elle,aime,le,sucre]", "variant=[matrix]")
PAST = ("embeddings=words", "embeddings.text=the cat the mat", "past=2", "mask=causal", "variant=[matrix]")


def as_run(*words: str) -> Run:
    return Run(comparison(*words), (), {})


def test_a_report_says_whose_tokens_ask_and_whose_are_looked_at() -> None:
    said = "Queries come from x (3 tokens), keys and values from the memory (4 tokens)."
    for text in (markdown_of(as_run(*MEMORY)), page_of(as_run(*MEMORY)), terminal.summary(comparison(*MEMORY))):
        assert said in text
    said = "The first 2 of 4 tokens are past: they have keys and values, and only the last 2 have queries."
    assert said in terminal.summary(comparison(*PAST)) and said in page_of(as_run(*PAST))
    assert sentences.whose_tokens(comparison("variant=[matrix]").problem) == ""


def test_rows_are_queries_and_columns_keys() -> None:
    page = page_of(as_run(*MEMORY))
    head = "".join(f'<th scope="col" data-k="{place}">{name}</th>' for place, name in enumerate(("elle", "aime")))
    assert head in page and "Attention of 3 tokens over a memory of 4" in page
    steps = {step.stage: step for step in walk.steps(comparison(*MEMORY), "matrix")}
    assert steps["memory"].tables[0].rows == steps["k"].tables[0].rows == ("elle", "aime", "le", "sucre")
    assert steps["q"].tables[0].rows == ("she", "likes", "coffee")
    assert steps["k"].explained.formula == "K = X' W_k" and steps["q"].explained.formula == "Q = X W_q"
    names = [text.get_text() for text in drawings_of(comparison(*MEMORY))["weights"].texts]
    assert "key (memory)" in names


def test_a_token_has_one_label_as_query_and_as_key() -> None:
    problem = comparison(*PAST).problem
    assert views.labels(problem) == (("the#3", "mat"), ("the#1", "cat", "the#3", "mat"))
    steps = {step.stage: step for step in walk.steps(comparison(*PAST), "matrix")}
    assert steps["x"].tables[0].rows == ("the#1", "cat", "the#3", "mat")
    assert steps["q"].explained.formula == "Q = X_new W_q" and steps["k"].explained.formula == "K = X W_k"


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
        assert terminal.summary(loaded) == terminal.summary(before)
