"""All that pages and labels say stands in one file, so that a sentence is mended in one place."""

from __future__ import annotations

import ast
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from jinja2 import Environment

from attn_exp.report import words
from tests import ROOT
from tests.report import module_words
from tests.report.script_words import SPOKEN, in_script, labels

TEMPLATES = ROOT / "attn_exp/report/templates"
KNOWN = {name: text for name, text in vars(words).items() if name.isupper()}
FILES = ("effects.csv", "tables/", "percentiles.csv")
"""Names of files, which are no words."""


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
    reader.feed(re.sub(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}|\$[a-z]+", "", template, flags=re.DOTALL))
    return [" ".join(text.split()) for text in reader.texts if re.search(r"[A-Za-z]{2}", text) and text not in FILES]


def quoted(template: str) -> list[str]:
    """Return what stands in quotes within Jinja and is words: it has a space between letters."""
    strings = [text for _, kind, text in Environment().lex(template) if kind == "string"]
    return [text for text in strings if re.search("[a-z],? [a-z]", text)]


PAGES = sorted(path for path in TEMPLATES.iterdir() if path.suffix in (".html", ".md"))
SCRIPTS = sorted(TEMPLATES.glob("*.js"))
HOMES = (
    "attn_exp/report", "attn_exp/sweeps/overview.py", "attn_exp/sweeps/answers", "attn_exp/sweeps/versus",
    "attn_exp/runs/classroom",
)  # fmt: skip
"""Where pages, pictures and labels are made."""

NO_PAGES = {
    "attn_exp/report/charts/matplotlib_figure.py": "names of fonts",
    "attn_exp/report/inline.py": "what a browser reads",
    "attn_exp/sweeps/versus/command.py": "how a command is called",
}
"""Modules whose strings are no words, and what they are."""
FILE = ROOT / "attn_exp/report/words.py"


def modules() -> list[Path]:
    """Return the files that make pages, the file of words aside."""
    paths = [path for home in HOMES for path in (sorted((ROOT / home).rglob("*.py")) or [ROOT / home])]
    return [path for path in paths if path != FILE and str(path.relative_to(ROOT)) not in NO_PAGES]


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


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_says_nothing_of_its_own(path: Path) -> None:
    script = path.read_text(encoding="utf-8")
    assert (in_script(script), labels(script)) == ([], [])


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_says_nothing_of_its_own(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert (list(module_words.in_module(tree)), list(module_words.labels(tree))) == ([], [])


@pytest.mark.parametrize(
    "text", ['say("Hot coffee");', "say(`${count} hot coffees`); // a remark", "f(`${b} hot coffee`)"]
)
def test_words_in_a_script_are_seen(text: str) -> None:
    assert in_script(text)
    assert in_script(f"// a remark\n{text}") and in_script(f'f(`${{a ? "b" : `c`}}`);\n{text}')
    assert not in_script("// Hot coffee\n/* Hot coffee */ f(words.HOT);")


@pytest.mark.parametrize(
    "text",
    [
        'hint.textContent = "Coffee";',
        "hint.textContent = hot ? words.HOT : `Coffee ${cups}`;",
        "hint.textContent += 'Coffee';",
        'cup.title = { hot: words.HOT, cold: "Cold" }[state];',
        'row.append(element("th", { scope: "col" }, "Coffee"));',
        'shape("text", {}, `${cups} cups`);',
        'canvas.setAttribute("aria-label", "Coffee");',
        'element("canvas", { role: "img", "aria-label": "Coffee" });',
        'element("option", { value: 0, label: "Coffee" });',
        'box.append("Coffee");',
        "document.createTextNode(`${cups} cups`);",
        'cup.placeholder = "Coffee";',
    ],
)
def test_a_label_of_one_word_in_a_script_is_seen(text: str) -> None:
    assert labels(text)


@pytest.mark.parametrize(
    "text",
    [
        "hint.textContent = words.COFFEE;",
        "hint.textContent = `${fill(words.CUPS, { cups })} = 1/√d`;",
        'const label = row.dataset["label"];',
        'element("th", { scope: "col", class: "heat" }, fill(words.CUPS, { cups: 3 }));',
        'if (cup.title === "") cup.title = name;',
        '// the hint.textContent = "Coffee";',
    ],
)
def test_what_a_script_takes_from_the_words_is_no_label_of_its_own(text: str) -> None:
    assert not labels(text)


@pytest.mark.parametrize(
    "text", ['a = f"{b} hot coffees"', """a = '<p>Hot coffee</p>'""", """a = '<i title="Hot coffee">'"""]
)
def test_words_in_a_module_are_seen(text: str) -> None:
    assert list(module_words.in_module(ast.parse(text)))


def test_what_is_no_page_is_no_word_of_a_module() -> None:
    module = '''"""Hot coffee."""
def f():
    """Hot coffee."""
    raise UserError(f"hot coffee {a}")
a = '<p class="hot coffee">'
legend(loc="lower left")
'''
    assert not list(module_words.in_module(ast.parse(module)))


@pytest.mark.parametrize(
    "text",
    [
        'Figure(caption="Coffee")',
        'stroke(label=f"{cups} cups")',
        'Axis(0, 1, ticks, "coffee")',
        'panel.set_xlabel("coffee")',
        'head = ("cups", words.COFFEE)',
        'class A:\n    unit: str = "cups"',
    ],
)
def test_a_label_of_one_word_in_a_module_is_seen(text: str) -> None:
    assert list(module_words.labels(ast.parse(text)))


@pytest.mark.parametrize(
    "text", ["Figure(caption=words.COFFEE)", 'head = cups["hot"]', 'stroke(label="")', 'f(title=x.at("y"))']
)
def test_a_label_from_the_words_is_none_of_the_module(text: str) -> None:
    assert not list(module_words.labels(ast.parse(text)))


def test_every_word_is_used_and_none_is_missing() -> None:
    sources = [*TEMPLATES.iterdir(), *(ROOT / "attn_exp").rglob("*.py")]
    texts = [path.read_text(encoding="utf-8") for path in sources if path.is_file() and path != FILE]
    used = {name for text in texts for name in re.findall(r"\bwords\.([A-Z][A-Z_]*)\b", text)}
    assert used == set(KNOWN)


def test_a_name_stands_once() -> None:
    tree = ast.parse(FILE.read_text(encoding="utf-8"))
    names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_a_sentence_stands_once() -> None:
    texts = [text for text in KNOWN.values() if " " in text]
    assert len(texts) == len(set(texts))


@pytest.mark.parametrize("text", KNOWN.values())
def test_words_are_plain_text(text: str) -> None:
    assert text == text.strip() and not re.search("[<>&]", text)
