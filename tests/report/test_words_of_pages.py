"""All that templates say stands in one file, so that a sentence is mended in one place."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from jinja2 import Environment

from attn_exp.report import words
from tests import ROOT

TEMPLATES = ROOT / "attn_exp/report/templates"
KNOWN = {name: text for name, text in vars(words).items() if name.isupper()}
FILES = ("effects.csv", "tables/", "percentiles.csv")
"""Names of files, which are no words."""

LATER = ("index.html",)
"""Pages that every run writes, one without a report too: those wait for no file of words."""

SPOKEN = ("aria-label", "alt", "title", "placeholder", "summary")


class Said(HTMLParser):
    """Gathers what a page says: its texts, and attributes that are read out."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.texts += [value for name, value in attrs if name in SPOKEN and value]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def said(template: str) -> list[str]:
    """Return the words in a template that are not from the file of words, marks of Jinja and of Markdown aside."""
    reader = Said()
    reader.feed(re.sub(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}", "", template, flags=re.DOTALL))
    return [" ".join(text.split()) for text in reader.texts if re.search(r"[A-Za-z]{2}", text) and text not in FILES]


def quoted(template: str) -> list[str]:
    """Return what stands in quotes within Jinja and is words: it has a space between letters."""
    strings = [text for _, kind, text in Environment().lex(template) if kind == "string"]
    return [text for text in strings if re.search("[a-z],? [a-z]", text)]


PAGES = sorted(path for path in TEMPLATES.iterdir() if path.suffix in (".html", ".md") and path.name not in LATER)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_template_says_nothing_of_its_own(path: Path) -> None:
    template = path.read_text(encoding="utf-8")
    assert (said(template), quoted(template)) == ([], [])


@pytest.mark.parametrize(
    "text", ["<p>Hot coffee</p>", '<i aria-label="Hot coffee">{{ x }}</i>', "## Coffee\n", "<p>{{ x }} was hot</p>"]
)
def test_words_in_a_template_are_seen_so_the_test_above_can_fail(text: str) -> None:
    assert said(text) or quoted(text)
    assert quoted('{{ "side by side" }}')


def test_every_word_is_used_and_none_is_missing() -> None:
    used = {name for path in PAGES for name in re.findall(r"words\.([A-Z_]+)", path.read_text(encoding="utf-8"))}
    assert used == set(KNOWN)


def test_a_sentence_stands_once() -> None:
    texts = [text for text in KNOWN.values() if " " in text]
    assert len(texts) == len(set(texts))


@pytest.mark.parametrize("text", KNOWN.values())
def test_words_are_plain_text(text: str) -> None:
    assert text == text.strip() and not re.search("[<>&]", text)
