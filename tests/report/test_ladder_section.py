"""The page draws each rung between two rows: its weights, its output, and how far it moved."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from attn_exp.report.escapes import brief
from attn_exp.report.sections import ladder
from attn_exp.report.sections.section import Material
from attn_exp.report.views import make_views
from tests.compose import comparison
from tests.report.render import markdown_of, page_of
from tests.report.test_report import a_run

DEFAULT = ("embeddings=she_likes_coffee", "variant=[looped,matrix,multi_head]")


def ladders(*words: str) -> list[Any]:
    run = a_run(comparison(*words))
    found = ladder.parts(Material(run, make_views(run.comparison), (), ()))
    return list(found[0]["ladders"]) if found else []


def test_each_rung_has_its_weights_and_its_output() -> None:
    (one,) = ladders(*DEFAULT)
    found = comparison(*DEFAULT)
    heads, mixed = (step for step in found.steps if step.setting in ("head", "output_projection"))
    assert (one["start"], one["ends"]) == ("looped", "multi_head")
    assert [rung["title"] for rung in one["rungs"]] == ["looped", "2 heads", "W_o"]
    assert [len(rung["arrays"]) for rung in one["rungs"]] == [2, 3, 3]
    rungs = [found.traces["looped"], found.rungs["multi_head", heads.step], found.traces["multi_head"]]
    for rung, trace in zip(one["rungs"], rungs, strict=True):
        stages = [drawn.table.matrix for drawn in rung["arrays"] if drawn.table is not None]
        assert trace.weights is not None and trace.output is not None
        np.testing.assert_array_equal(stages, [trace.output])
        assert [drawn.picture[:15] for drawn in rung["arrays"][:-1]] == ["data:image/png;"] * len(trace.weights)
    assert one["rungs"][1]["moved"] == f"changes the output by up to {brief(heads.moved)}"
    assert one["rungs"][2]["share"] == 1 > one["rungs"][1]["share"] == heads.moved / mixed.moved


def test_rows_that_differ_in_form_alone_have_no_picture() -> None:
    assert ladders("variant=[looped,matrix,scaled]") == []
    assert ladders("variant=[matrix]") == []


def test_each_row_of_another_function_has_a_ladder() -> None:
    words = ("variant=[looped,unscaled,linear,linear_recurrent]", "mask=causal")
    assert [one["ends"] for one in ladders(*words)] == ["unscaled", "linear", "linear_recurrent"]


@pytest.mark.long
@pytest.mark.parametrize("tokens", [3, 40, 200])
def test_the_page_and_its_text_say_every_step_at_any_size(tokens: int) -> None:
    run = a_run(comparison("embeddings=random", f"embeddings.tokens={tokens}", "variant=[matrix,multi_head]", "head=4"))
    page, text = page_of(run), markdown_of(run)
    section = re.search(r'<section id="steps">.*?</section>', page, re.DOTALL)
    assert section is not None
    assert section[0].count("<li>") == 3
    assert ("<table" in section[0]) == (tokens == 3)
    assert "4 heads: changes the output by up to" in text and "W_o: changes the output by up to" in text
