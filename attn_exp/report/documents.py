"""Make the files of a run's report (the page, Markdown, tables and figures) as bytes, and the report of a sweep.

The page is self-contained. In its tables of numbers, cells are coloured by size, and rows and columns are linked to
their tokens. A page has thousands of cells, so they are formatted here: a Jinja macro takes over three times as long.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any
from urllib.parse import quote

import numpy as np
from markupsafe import Markup, escape

from attn_exp.errors import printable
from attn_exp.experiment.row import Run
from attn_exp.report import figures, papers, walk
from attn_exp.report.escapes import brief, decimal, md
from attn_exp.report.flow import hue
from attn_exp.report.page_data import live_plans, page_data, walk_data
from attn_exp.report.sections import contents, templates_of
from attn_exp.report.sections.section import Material
from attn_exp.report.sections.walks import walks
from attn_exp.report.sentences import spoken
from attn_exp.report.templating import pipe_cells, render_markdown, render_page
from attn_exp.report.views import MOST_COARSE, SWEEP_CAPTIONS, Colours, Shown, colours, seen
from attn_exp.report.walk import axes_of

BEST_IN_MARKDOWN = ("png", "svg", "pdf")
"""Formats of figures, in order of preference: Markdown shows the first one that was written."""


def documents(run: Run) -> dict[str, bytes]:
    """Return the files of a run's report that its configuration enables, by name, such as `figures/weights.svg`.

    The Markdown file links to the figures next to it; the page embeds them.
    """
    comparison = run.comparison
    wanted, formats = comparison.config.report, comparison.config.figures.format
    views = seen(comparison, math.inf if wanted.figures else MOST_COARSE if wanted.pages else 0)
    drawn = figures.files(views, tuple(dict.fromkeys(("svg", *formats)))) if wanted.figures else {}
    known = figures.figures()
    files = {f"figures/{name}.{form}": made[form] for name, made in drawn.items() for form in formats}
    if not (wanted.tables or wanted.pages):
        return files
    material = Material(run, views, (), walks(views))
    if wanted.tables:
        for table in papers.tables(comparison):
            files |= {
                f"tables/{table.name}.{ending}": encode_utf8(form(table)) for ending, form in papers.FORMS.items()
            }
        best = next(form for form in BEST_IN_MARKDOWN if form in formats)
        beside = [Shown(f"figures/{name}.{best}", known[name].caption) for name in drawn]
        files["report.md"] = encode_utf8(markdown(material._replace(figures=beside)))
    if wanted.pages:
        inside = [
            Shown(svg_source(made["svg"]), known[name].caption) for name, made in drawn.items() if known[name].in_page
        ]
        files["report.html"] = encode_utf8(page(material._replace(figures=inside)))
    return files


def encode_utf8(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


SCRIPTS = (
    "maths.js", "report.js", "steps.js", "explore.js", "cells.js", "live.js", "change.js", "rows.js",
    "hand.js", "depth.js",
)  # fmt: skip
CHANGING = ("live.js", "change.js", "rows.js", "hand.js")
"""Scripts for changing the numbers of a page, left out if none of its numbers can be changed."""

SHARES = "\n".join(f".w{hundredths} {{ --w: {hundredths / 100:g}; }}" for hundredths in range(1, 101))
"""The CSS classes that `share_class` returns."""

EXPONENT = re.compile(r"\d[\d.]*e[+-]\d+")


def table_rows(table: walk.Table, step: walk.Step) -> Markup:
    """Return the rows of a table in HTML, linked to their tokens, with cells coloured by size."""
    by_key = walk.by_key(step)
    tokens = "" if walk.is_projection(step) else "k" if step.rows_are_keys else "q"
    closed = np.zeros(table.matrix.shape, bool) if step.closed is None else step.closed[table.head]
    shares = Colours(step.largest or 1.0, step.power).shares(np.abs(table.matrix))
    lines = list[str]()
    for row, (name, numbers) in enumerate(zip(table.rows, table.matrix.tolist(), strict=True)):
        marks = (f' data-k="{place}"' if by_key else "" for place in range(len(numbers)))
        cells = "".join(map(cell, numbers, shares[row].tolist(), repeat(step), marks, closed[row].tolist()))
        tie = f' data-{tokens}="{row}"' if tokens else ""
        lines.append(f'<tr{tie}><th scope="row">{escape(printable(name))}</th>{cells}</tr>')
    return Markup("\n".join(lines))


def cell(value: float, share: float, step: walk.Step, mark: str, closed: bool) -> str:
    """Return one cell in HTML; `mark` is the attribute that links it to its key. Numbers need no escaping."""
    if closed or not math.isfinite(value):
        return f'<td class="m"{mark}>{decimal(value, step.decimals if closed else 0)}</td>'
    kind = share_class(share, "n" if value < 0 else "")
    classes = f' class="{kind}"' if kind else ""
    return f"<td{classes}{mark}>{decimal(value, step.decimals)}</td>"


def share_class(share: float, kind: str = "") -> str:
    """Return the CSS classes of an element whose colour shows a share, rounded to a hundredth.

    They replace inline styles, which the Content-Security-Policy of a page forbids.
    """
    hundredths = round(100 * min(1.0, max(0.0, share))) if math.isfinite(share) else 0
    if not hundredths:
        return kind
    return f"{kind} w{hundredths}" if kind else f"w{hundredths}"


def unbroken(text: str) -> Markup:
    """Escape a string for a page, keep numbers such as 2e-16 on one line, and explain terms in tooltips."""
    explained = TERM.sub(
        lambda term: f'<abbr tabindex="0" title="{TERMS[term[0]]}">{term[0]}</abbr>', str(escape(text))
    )
    return Markup(EXPONENT.sub(r'<span class="whole">\g<0></span>', explained))


TERMS = {
    "W_o": "the output projection, a matrix that mixes the heads",
    "the order": "the settings change one after the other; the range is over all orders",
    "scalar reference": "plain loops over single numbers, which every result is checked against",
}
"""The meanings of terms in the sentences at the top of a page."""

TERM = re.compile(r"\b(?:" + "|".join(TERMS) + r")\b")


FILTERS: dict[str, Callable[..., Any]] = {
    "short": brief,
    "spoken": spoken,
    "shape": walk.shape,
    "hue": hue,
    "unbroken": unbroken,
    "table_rows": table_rows,
    "by_key": walk.by_key,
    "share_class": share_class,
}


def page(material: Material) -> str:
    texts = templates_of("html")
    views, both = material.views, contents(material, texts)
    carries = page_data(views)
    panels = tuple(zip(views.panels, carries["panels"], strict=True))
    live = live_plans(views.comparison, [walk["variant"] for walk in material.walks])
    left_out = () if live["arrays"] else CHANGING
    told = {
        **carries,
        **colours(views)._asdict(),
        "walks": [walk_data(part["walk"], panels) for part in both["parts"] if "walk" in part],
        "live": live,
    }
    axes = axes_of(step for walk in material.walks for step in walk["steps"])
    return render_page(
        "report.html",
        both | {"axes": axes, "data": told},
        ("report.css", "flow.css"),
        [name for name in SCRIPTS if name not in left_out],
        more_css=SHARES,
        filters=FILTERS,
        more=texts,
    )


def svg_source(svg: bytes) -> str:
    """Return an SVG as a percent-encoded `data:` URL, which is a quarter shorter than base64."""
    text = svg.decode()
    text = text if "'" in text else text.replace('"', "'")
    return Markup("data:image/svg+xml," + quote(text, safe=" ='/;:,()[]{}<>-.+*!?@~|"))


def markdown(material: Material) -> str:
    texts = templates_of("markdown")
    return render_markdown("report.md", contents(material, texts), MARKDOWN_FILTERS, texts)


def format_table(table: walk.Table, step: walk.Step) -> str:
    lines = [[decimal(value, step.decimals) for value in row] for row in table.matrix.tolist()]
    named = [[md(name), *line] for name, line in zip(table.rows, lines, strict=True)]  # numbers need no escaping
    return pipe_cells([md(name) for name in ("", *table.columns)], named)


def align_cells(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join("".join(f"{cell:>10}" for cell in line) for line in lines)


MARKDOWN_FILTERS: dict[str, Callable[..., Any]] = {
    "spoken": spoken,
    "shape": walk.shape,
    "aligned": align_cells,
    "markdown_table": format_table,
}


def sweep_page(both: Mapping[str, Any], data: Mapping[str, Any] | None, depth: str, drawn: Mapping[str, bytes]) -> str:
    """Return the report of a sweep as HTML.

    `both` has the contents that it shares with the Markdown report, and `data` those of the explorer. `drawn` maps file
    names to figures; the page embeds the SVG files.
    """
    figures = with_captions({name: svg_source(content) for name, content in drawn.items() if name.endswith(".svg")})
    deep = both["effects"].deep or both["shares"].deep or any(both["deep"])
    names = [name for name, used in (("depth.js", deep), ("sweep.js", data)) if used]
    said = {**both, "figures": figures, "data": data, "depth": depth, "has_deep": deep}
    return render_page("sweep.html", said, ("report.css", "sweep.css"), names)


def sweep_markdown(both: Mapping[str, Any], drawn: Sequence[str]) -> str:
    """Return the report of a sweep as Markdown; `both` has its contents, `drawn` the names of the files in plots/."""
    figures = with_captions({name: f"plots/{name}" for name in drawn if name.endswith(".png")})
    return render_markdown("sweep.md", {**both, "figures": figures})


def with_captions(sources: Mapping[str, str]) -> list[Shown]:
    return [Shown(source, SWEEP_CAPTIONS[name.split(".")[0]]) for name, source in sources.items()]
