"""The report of a sweep as a self-contained HTML page, and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attn_exp.report.documents import svg_source
from attn_exp.report.escapes import md
from attn_exp.report.sweep.plotted import CAPTIONS
from attn_exp.report.templating import code, fenced, piped, render_page, templates, tidy
from attn_exp.report.views import Shown


def sweep_page(both: Mapping[str, Any], data: Mapping[str, Any] | None, depth: str, drawn: Mapping[str, bytes]) -> str:
    """Return the report as HTML, from the contents of `both` reports, and the `data` of the explorer.

    `drawn` are figures by file name; the page embeds the SVG ones.
    """
    figures = with_captions({name: svg_source(content) for name, content in drawn.items() if name.endswith(".svg")})
    deep = has_deep(both)
    names = [name for name, used in (("depth.js", deep), ("sweep.js", data)) if used]
    said = {**both, "figures": figures, "data": data, "depth": depth, "has_deep": deep}
    return render_page("sweep.html", said, ("report.css", "sweep.css"), names)


def has_deep(both: Mapping[str, Any]) -> bool:
    tables = any(both[name].deep for name in ("effects", "shares"))
    return tables or any(both["deep"]) or any(extreme["deep"] for extreme in both["extremes"])


def sweep_markdown(both: Mapping[str, Any], drawn: Sequence[str]) -> str:
    """Return the report as Markdown, from the contents of `both` reports; `drawn` are file names in plots/."""
    environment = templates(autoescape=False)
    environment.filters |= {"md": md, "fenced": fenced, "piped": lambda lines, head: piped(head, lines), "code": code}
    figures = with_captions({name: f"plots/{name}" for name in drawn if name.endswith(".png")})
    return tidy(environment.get_template("sweep.md").render(both, figures=figures))


def with_captions(sources: Mapping[str, str]) -> list[Shown]:
    return [Shown(source, CAPTIONS[name.split(".")[0]]) for name, source in sources.items()]
