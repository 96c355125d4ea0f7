"""The picture of the flow as a file: the words and places of the page's own, in every format, without a style sheet."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from attn_exp.report import figures
from attn_exp.report.sections.walks import make_flows
from attn_exp.report.views import make_views
from tests.compose import comparison
from tests.report.render import page_of
from tests.report.test_figures import HARD, tokens
from tests.report.test_report import a_run

HEADS = ("variant=[matrix,multi_head]", "head=2")
SPACE = "{http://www.w3.org/2000/svg}"


def svg_of(*words: str) -> ElementTree.Element:
    return ElementTree.fromstring(figures.encode_figures(make_views(comparison(*words)), ["svg"])["flow"]["svg"])


def texts(svg: ElementTree.Element) -> list[str]:
    return ["".join(text.itertext()).strip() for text in svg.iter(f"{SPACE}text")]


def test_the_file_says_what_the_page_says() -> None:
    page = page_of(a_run(comparison(*HEADS)))
    drawn = re.findall(r'<svg[^>]*aria-label="Computation of.*?</svg>', page, re.DOTALL)
    on_page = [
        " ".join(re.sub("<[^>]*>", "", text).split()) for part in drawn for text in re.findall("<text.*?</text>", part)
    ]
    in_file = [text for text in texts(svg_of(*HEADS)) if text not in ("matrix", "multi_head")]
    assert sorted(in_file) == sorted(on_page)
    assert {"Q queries", "head 1 → 1–2", "3–4 → head 2", "in each of 2 heads", "× c = 0.7071"} <= set(in_file)


def test_each_function_has_its_own_picture_under_its_names() -> None:
    titles = [title for title, _ in make_flows(make_views(comparison()))]
    assert titles == ["looped = matrix = scaled", "multi_head"]
    assert set(titles) <= set(texts(svg_of()))


def test_tokens_and_names_are_text_never_markup() -> None:
    drawn = figures.encode_figures(make_views(tokens(HARD[1])), ["svg"])["flow"]["svg"].decode()
    assert "<script" not in drawn
    ElementTree.fromstring(drawn)
