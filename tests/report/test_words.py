"""Hostile words in page, Markdown, LaTeX, notebook, terminal and figures.

`python -m tools.fuzz --only words` tries more.
"""

from __future__ import annotations

import pytest

from attn_exp.report import escapes
from tools.fuzz.words import WORDS, Shape, attempt


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_no_document_obeys_a_word_or_loses_its_shape(seed: int) -> None:
    assert attempt(seed) is None


@pytest.mark.parametrize("word", WORDS, ids=ascii)
def test_a_label_is_short_and_visible(word: str) -> None:
    assert len(escapes.label(word)) <= 18
    assert escapes.label(word).isprintable() and escapes.plain(word).isprintable()


def test_the_shape_of_a_page_tells_an_injected_element() -> None:
    assert Shape("<p>a</p>").elements != Shape("<p>a<b></b></p>").elements
    assert Shape("<p>a</p>").elements != Shape("<p onclick='a'>a</p>").elements
