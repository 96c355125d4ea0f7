"""Hostile words in tokens, titles, notes and names: no document obeys them, and none loses its shape.

Every document of a run is made twice, with harmless words and with hostile ones: both must have the same elements, rows
and cells, and hold no character that a terminal or a browser obeys.
"""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import attn_exp
from attn_exp.config.schema import Report
from attn_exp.experiment.row import Agreement, Comparison, Run
from attn_exp.report import notebook, papers, sentences
from attn_exp.report.documents import documents

WORDS = (
    "\x1b[31mred", "\x1b]0;title\x07", "\u202eleft", "\u2066isolate", "half \ud800 pair", "\x00", "\x7f\x9b",
    "a\nb\r\nc\td", "</script><script>f(1)</script>", '"><img src=x onerror=f(1)>', "'--><!--", "]]><![CDATA[",
    "<style>*{color:red}", "{{ 7 * 7 }}", "{% raw %}", "$x_1$", "$$", "\\input{secret}", "\\end{tabular}", "% gone",
    "& cell", "a|b", "`code`", "```\n# head", "[a](javascript:f(1))", "![a](x)", "&lt;", "&#0;", "=1+1", "#", "- item",
    "1. item", "_a_ *b* ~c~", "", " ", "x" * 5000, "你好", "שלום", "🙂", "e\u0301", "\u200b", "\ufeff", "__proto__",
    "constructor", "../../x", "NaN",
)  # fmt: skip
PIECES = "<>&\"'`|*_#{}[]()$%\\~^=-+.,:; \n\t\x00\x1b\u202e\ud800axyzéß你"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
FENCED = re.compile(r"^(`{3,})\n.*?^\1$", re.DOTALL | re.MULTILINE)
"""A block of code in Markdown, which may hold anything."""

SETTINGS: dict[str, Any] = {"head": 2, "variant": ["looped", "multi_head"], "check": ["mask"]}


class Shape(HTMLParser):
    """The elements of a page, each with the names of its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, ...]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, *(name for name, _ in attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.elements.append((f"/{tag}",))


def attempt(seed: int) -> str | None:
    """Return what one set of hostile words did, or None where they did nothing."""
    chance = random.Random(seed)
    words = [hostile(chance) for _ in range(8)]
    figures = seed % 10 == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compared = attn_exp.run(**SETTINGS).comparison
        calm = made(with_words(compared, [f"word{place}" for place in range(8)]), figures)
        wild = made(with_words(compared, words), figures)
    return next((f"{name}: {wrong} with {words!r}" for name, wrong in harm(calm, wild)), None)


def hostile(chance: random.Random) -> str:
    if chance.random() < 0.7:
        return chance.choice(WORDS)
    return "".join(chance.choice(PIECES) for _ in range(chance.randrange(1, 30)))


def with_words(compared: Comparison, words: list[str]) -> Run:
    """Return a run with these words wherever users' words stand; names stay apart, as those of settings are."""
    *tokens, title, note, quantity, printed, name = words
    names = {row.variant: row.variant if place else f"{name} 0" for place, row in enumerate(compared.rows)}
    config = replace(
        compared.config,
        title=f"{title} 1",
        notes=(note or "none", note or "none"),
        variant={names[key]: variant for key, variant in compared.config.variant.items()},
        report=Report(tables=True, figures=False, pages=True),
    )
    renamed = replace(
        compared,
        config=config,
        problem=replace(compared.problem, tokens=tuple(tokens), key_tokens=tuple(tokens)),
        variants=tuple(replace(settled, name=names[settled.name]) for settled in compared.variants),
        rows=tuple(replace(row, variant=names[row.variant]) for row in compared.rows),
        distances=tuple(
            replace(pair, variant=names[pair.variant], other=names[pair.other]) for pair in compared.distances
        ),
        traces={names[key]: trace for key, trace in compared.traces.items()},
        steps=tuple(
            replace(step, variant=names[step.variant], against=names[step.against], row=names.get(step.row, ""))
            for step in compared.steps
        ),
        rungs={(names[variant], number): trace for (variant, number), trace in compared.rungs.items()},
        published=(Agreement(quantity, printed, "0.5", 1e-3, 5e-3, True, note),),
    )
    about = {"command": f"python -m attn_exp {title}", "started": note, "versions": {name: printed}, "pins": [quantity]}
    return Run(renamed, (), about)


def made(run: Run, figures: bool) -> dict[str, str]:
    config = run.comparison.config
    wanted = replace(config, report=replace(config.report, figures=figures))
    run = replace(run, comparison=replace(run.comparison, config=wanted))
    texts = {name: content.decode() for name, content in documents(run).items()}
    return texts | {
        "terminal.txt": sentences.summary(run.comparison),
        "notebook.html": notebook.run(run.comparison, run.timings),
    }


def harm(calm: dict[str, str], wild: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield what hostile words did to documents."""
    if calm.keys() != wild.keys():
        yield "files", f"other names: {sorted(calm.keys() ^ wild.keys())}"
    for name, text in wild.items():
        if obeyed := OBEYED.search(text):
            yield name, f"{obeyed[0]!r} at {obeyed.start()}"
        if name.endswith(".svg"):
            tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(text).iter()}
            if tags & {"script", "a", "foreignObject"}:
                yield name, f"elements {tags}"
        elif shape(name, calm[name]) != shape(name, text):
            yield name, "another shape"


def shape(name: str, text: str) -> object:
    """Return what words must not change: elements of HTML, cells of the lines of Markdown and LaTeX, lines of text."""
    if name.endswith(".html"):
        return Shape(text).elements
    mark = {"md": r"(?<!\\)\|", "tex": r"(?<!\\)&"}.get(name.rpartition(".")[2], "$^")
    lines = FENCED.sub("", text.replace(papers.FITTED, "")).split("\n")  # a wide table is fitted to the page
    return [(len(re.findall(mark, line)), fence(line)) for line in lines] if name != "terminal.txt" else len(lines)


def fence(line: str) -> str:
    """Return what a line of Markdown begins: a heading, an item, or plain text."""
    begun = re.match(r"#+ |[-+*>] |\d+[.)] |!\[|`{3}|={3}", line)
    return begun[0] if begun else ""
