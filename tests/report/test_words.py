"""Hostile words in page, Markdown, LaTeX, notebook, terminal and figures.

`python -m tools.fuzz --only words` tries more.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Formatter

import pytest

from attn_exp.report import escapes, words
from attn_exp.runs.classroom import exercise
from tests import ROOT
from tests.report.render import find_braces
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


KNOWN = {name: text for name, text in vars(words).items() if name.isupper()}


def test_every_word_that_a_page_asks_for_is_there() -> None:
    sources = [*(ROOT / "attn_exp/report").rglob("*.py"), *(ROOT / "attn_exp/report/templates").iterdir()]
    texts = [path.read_text(encoding="utf-8") for path in sources if path.is_file()]
    asked = {name for text in texts for name in re.findall(r"\bwords\.([A-Z][A-Z_]*)\b", text)} - {"NAME"}
    assert asked <= set(KNOWN)


def test_no_word_is_defined_twice() -> None:
    names = [
        name.id
        for node in ast.walk(ast.parse(Path(words.__file__).read_text(encoding="utf-8")))
        if isinstance(node, ast.Assign)
        for name in ast.walk(node.targets[0])
        if isinstance(name, ast.Name)
    ]
    assert len(names) == len(set(names)), Counter(names).most_common(2)


FILLED_LATER = {"FORMULA_SIDE", "TURNED_SIDE", "PAIR_TURNED", "PAIRS_TURNED"}
"""Lines of a worksheet that are chosen first and filled a few lines below."""


def texts(word: object) -> Iterator[str]:
    """Yield the texts of a word, which may be a table of them."""
    if isinstance(word, str):
        yield word
    elif isinstance(word, Mapping | Sequence):
        for part in word.values() if isinstance(word, Mapping) else word:
            yield from texts(part)


PLACES = {name: {field for text in texts(word) for _, field, _, _ in Formatter().parse(text) if field}
          for name, word in KNOWN.items()}  # fmt: skip


def fillings(path: Path) -> Iterator[tuple[str, set[str] | None]]:
    """Yield the messages that a module says, each with the names that it fills in; None where it fills in nothing."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    above = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "words":
            said = above[node]
            said = above[said] if isinstance(said, ast.Subscript) else said
            is_filled = isinstance(said, ast.Attribute) and said.attr == "format"
            call = above[said] if is_filled else None
            yield node.attr, {str(one.arg) for one in call.keywords} if isinstance(call, ast.Call) else None


@pytest.mark.long
def test_every_message_is_filled_where_it_is_said() -> None:
    said = [one for path in (ROOT / "attn_exp").rglob("*.py") for one in fillings(path)]
    assert len({name for name, _ in said if PLACES.get(name)}) > 20
    for name, filled in said:
        wanted = PLACES.get(name, set())
        if wanted and name not in FILLED_LATER:
            assert filled is not None and ("None" in filled or wanted <= filled), (name, wanted, filled)


def test_a_state_of_a_box_has_no_braces() -> None:
    assert not find_braces(" ".join(exercise.STATES.values()))


@pytest.mark.parametrize("text", KNOWN.values())
def test_words_are_plain_text(text: str) -> None:
    assert text == text.strip() and not re.search("[<>&]", text)
