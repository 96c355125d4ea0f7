"""Turn a finished run into the files of its report, and a finished sweep into its page and its Markdown.

`documents` draws the figures first and then fills the templates: `tables/comparison.md`, `report.md` with links to the
figures, and `report.html`, which embeds the figures and the data of its scripts. A page has thousands of coloured
cells. They are formatted in this file, because a Jinja macro takes over three times as long.
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
from attn_exp.report.sections.walks import make_walks
from attn_exp.report.sentences import spoken
from attn_exp.report.templating import pipe_cells, render_markdown, render_page
from attn_exp.report.views import MOST_COARSE, SWEEP_CAPTIONS, Colours, Shown, colours, make_views
from attn_exp.report.walk import axes_of

BEST_IN_MARKDOWN = ("png", "svg", "pdf")
"""Figure formats, the best for Markdown first; report.md shows the first one that was written."""


def documents(run: Run) -> dict[str, bytes]:
    """Return the report files that the settings enable, by name, such as `figures/weights.svg`.

    The Markdown file links to the files of the figures; the page embeds them.
    """
    comparison = run.comparison
    settings, formats = comparison.config.report, comparison.config.figures.format
    views = make_views(comparison, math.inf if settings.figures else MOST_COARSE if settings.pages else 0)
    encoded_figures = figures.encode_figures(views, tuple(dict.fromkeys(("svg", *formats)))) if settings.figures else {}
    members = figures.figures()
    files = {
        f"figures/{name}.{form}": encodings[form] for name, encodings in encoded_figures.items() for form in formats
    }
    if not (settings.tables or settings.pages):
        return files
    material = Material(run, views, (), make_walks(views))
    if settings.tables:
        for table in papers.tables(comparison):
            files |= {
                f"tables/{table.name}.{extension}": encode_utf8(format_table(table))
                for extension, format_table in papers.FORMS.items()
            }
        image_format = next(form for form in BEST_IN_MARKDOWN if form in formats)
        linked = [Shown(f"figures/{name}.{image_format}", members[name].caption) for name in encoded_figures]
        files["report.md"] = encode_utf8(markdown(material._replace(figures=linked)))
    if settings.pages:
        embedded = [
            Shown(svg_source(encodings["svg"]), members[name].caption)
            for name, encodings in encoded_figures.items()
            if members[name].in_page
        ]
        files["report.html"] = encode_utf8(page(material._replace(figures=embedded)))
    return files


def encode_utf8(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


SCRIPTS = (
    "maths.js", "report.js", "steps.js", "explore.js", "cells.js", "live.js", "change.js", "rows.js",
    "hand.js", "depth.js",
)  # fmt: skip
CHANGING = ("live.js", "change.js", "rows.js", "hand.js")
"""The scripts for changing numbers; a page has them only if some of its numbers can be changed."""

SHARES = "\n".join(f".w{hundredths} {{ --w: {hundredths / 100:g}; }}" for hundredths in range(1, 101))
"""The CSS classes that `share_class` returns."""

EXPONENT = re.compile(r"\d[\d.]*e[+-]\d+")


def table_rows(table: walk.Table, step: walk.Step) -> Markup:
    """Return the rows of a table in HTML, linked to their tokens, with cells coloured by size."""
    by_key = walk.has_columns_of_keys(step)
    token_axis = "" if walk.is_projection(step) else "k" if step.rows_are_keys else "q"
    is_masked = np.zeros(table.matrix.shape, bool) if step.is_masked is None else step.is_masked[table.head]
    shares = Colours(step.largest or 1.0, step.power).shares(np.abs(table.matrix))
    html_rows = list[str]()
    for row, (name, values) in enumerate(zip(table.rows, table.matrix.tolist(), strict=True)):
        key_links = (f' data-k="{key}"' if by_key else "" for key in range(len(values)))
        cells = "".join(map(html_cell, values, shares[row].tolist(), repeat(step), key_links, is_masked[row].tolist()))
        token_link = f' data-{token_axis}="{row}"' if token_axis else ""
        html_rows.append(f'<tr{token_link}><th scope="row">{escape(printable(name))}</th>{cells}</tr>')
    return Markup("\n".join(html_rows))


def html_cell(value: float, share: float, step: walk.Step, key_link: str, is_masked: bool) -> str:
    """Return one cell of a table in HTML; `key_link` is the attribute that links it to its key."""
    if is_masked or not math.isfinite(value):
        return f'<td class="m"{key_link}>{decimal(value, step.decimals if is_masked else 0)}</td>'
    classes = share_class(share, "n" if value < 0 else "")
    class_attribute = f' class="{classes}"' if classes else ""
    return f"<td{class_attribute}{key_link}>{decimal(value, step.decimals)}</td>"


def share_class(share: float, kind: str = "") -> str:
    """Return the CSS classes that colour an element by a share, rounded to hundredths: `0.347, "n" -> "n w35"`.

    Inline styles would do the same, but the Content-Security-Policy of a page forbids them.
    """
    hundredths = round(100 * min(1.0, max(0.0, share))) if math.isfinite(share) else 0
    if not hundredths:
        return kind
    return f"{kind} w{hundredths}" if kind else f"w{hundredths}"


def unbroken(text: str) -> Markup:
    """Return a string escaped for a page, with numbers such as 2e-16 kept on one line and tooltips for `TERMS`."""
    with_tooltips = TERM.sub(
        lambda term: f'<abbr tabindex="0" title="{TERMS[term[0]]}">{term[0]}</abbr>', str(escape(text))
    )
    return Markup(EXPONENT.sub(r'<span class="whole">\g<0></span>', with_tooltips))


TERMS = {
    "W_o": "the output projection, a matrix that mixes the heads",
    "the order": "settings are changed one at a time; the range covers every order",
    "scalar reference": "plain loops over single numbers, which every result is checked against",
}
"""The meanings of terms in the sentences at the top of a page."""

TERM = re.compile(r"\b(?:" + "|".join(TERMS) + r")\b")


FILTERS: dict[str, Callable[..., Any]] = {
    "short": brief,
    "spoken": spoken,
    "shape": walk.format_shape,
    "hue": hue,
    "unbroken": unbroken,
    "table_rows": table_rows,
    "by_key": walk.has_columns_of_keys,
    "share_class": share_class,
}


def page(material: Material) -> str:
    templates = templates_of("html")
    views, values = material.views, contents(material, templates)
    weights_data = page_data(views)
    panels = tuple(zip(views.panels, weights_data["panels"], strict=True))
    plans = live_plans(views.comparison, [walk["variant"] for walk in material.walks])
    unused_scripts = () if plans["arrays"] else CHANGING
    script_data = {
        **weights_data,
        **colours(views)._asdict(),
        "walks": [walk_data(part["walk"], panels) for part in values["parts"] if "walk" in part],
        "live": plans,
    }
    axes = axes_of(step for walk in material.walks for step in walk["steps"])
    return render_page(
        "report.html",
        values | {"axes": axes, "data": script_data},
        ("report.css", "flow.css"),
        [name for name in SCRIPTS if name not in unused_scripts],
        more_css=SHARES,
        filters=FILTERS,
        more=templates,
    )


def svg_source(svg: bytes) -> str:
    """Return an SVG as a `data:` URL; it is percent-encoded, which is a quarter shorter than base64."""
    text = svg.decode()
    text = text if "'" in text else text.replace('"', "'")
    return Markup("data:image/svg+xml," + quote(text, safe=" ='/;:,()[]{}<>-.+*!?@~|"))


def markdown(material: Material) -> str:
    templates = templates_of("markdown")
    return render_markdown("report.md", contents(material, templates), MARKDOWN_FILTERS, templates)


def markdown_table(table: walk.Table, step: walk.Step) -> str:
    number_cells = [[decimal(value, step.decimals) for value in row] for row in table.matrix.tolist()]
    rows = [[md(name), *line] for name, line in zip(table.rows, number_cells, strict=True)]  # numbers need no escaping
    return pipe_cells([md(name) for name in ("", *table.columns)], rows)


def align_cells(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join("".join(f"{cell:>10}" for cell in line) for line in lines)


MARKDOWN_FILTERS: dict[str, Callable[..., Any]] = {
    "spoken": spoken,
    "shape": walk.format_shape,
    "aligned": align_cells,
    "markdown_table": markdown_table,
}


def sweep_page(
    values: Mapping[str, Any], data: Mapping[str, Any] | None, depth: str, plots: Mapping[str, bytes]
) -> str:
    """Return the report of a sweep as HTML.

    `values` are the variables of the template, which the Markdown report has too. `data` is for the explorer; None if
    there is none. `plots` maps file names to encoded figures; the page embeds the SVG files.
    """
    figures = add_captions({name: svg_source(content) for name, content in plots.items() if name.endswith(".svg")})
    has_deep = values["effects"].deep or values["shares"].deep or any(values["deep"])
    scripts = [name for name, used in (("depth.js", has_deep), ("sweep.js", data)) if used]
    page_values = {**values, "figures": figures, "data": data, "depth": depth, "has_deep": has_deep}
    return render_page("sweep.html", page_values, ("report.css", "sweep.css"), scripts)


def sweep_markdown(values: Mapping[str, Any], plot_names: Sequence[str]) -> str:
    """Return the report of a sweep as Markdown; `values` are the variables of the template.

    `plot_names` are the names of the files in plots/.
    """
    figures = add_captions({name: f"plots/{name}" for name in plot_names if name.endswith(".png")})
    return render_markdown("sweep.md", {**values, "figures": figures})


def add_captions(sources: Mapping[str, str]) -> list[Shown]:
    return [Shown(source, SWEEP_CAPTIONS[name.split(".")[0]]) for name, source in sources.items()]
