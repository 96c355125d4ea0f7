"""The report of a sweep as one HTML page that needs nothing else, and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from attn_exp.report.escapes import md
from attn_exp.report.inline import policy, scripts, styles, template_text
from attn_exp.report.markdown import code, fenced, piped, tidy
from attn_exp.report.numbers import kinds, minus
from attn_exp.report.page import svg_source
from attn_exp.report.sweep.plotted import CAPTIONS
from attn_exp.report.templating import templates
from attn_exp.report.views import Shown


def sweep_page(both: Mapping[str, Any], data: Mapping[str, Any] | None, depth: str, drawn: Mapping[str, bytes]) -> str:
    """Return the report as HTML, of what both reports say, and of `data` that a reader explores.

    `drawn` are figures by file name, of which the page holds the SVG ones.
    """
    figures = shown({name: svg_source(content) for name, content in drawn.items() if name.endswith(".svg")})
    environment = templates(autoescape=True)
    environment.filters |= {"kinds": kinds, "minus": minus}
    style = styles(template_text("report.css"), template_text("sweep.css"))
    deep = has_deep(both)
    names = [name for name, used in (("depth.js", deep), ("sweep.js", data)) if used]
    script = scripts(*names) if names else ""
    return environment.get_template("sweep.html").render(
        both,
        figures=figures,
        data=data,
        depth=depth,
        has_deep=deep,
        style=Markup(style),
        script=Markup(script),
        policy=policy(style, script),
    )


def has_deep(both: Mapping[str, Any]) -> bool:
    """Say whether there is anything that is left out for reading."""
    tables = any(both[name].deep for name in ("effects", "shares"))
    return tables or any(both["deep"]) or any(extreme["deep"] for extreme in both["extremes"])


def sweep_markdown(both: Mapping[str, Any], drawn: Sequence[str]) -> str:
    """Return the report as Markdown, of what both reports say; `drawn` are file names under plots/."""
    environment = templates(autoescape=False)
    environment.filters |= {"md": md, "fenced": fenced, "piped": lambda lines, head: piped(head, lines), "code": code}
    figures = shown({name: f"plots/{name}" for name in drawn if name.endswith(".png")})
    return tidy(environment.get_template("sweep.md").render(both, figures=figures))


def shown(sources: Mapping[str, str]) -> list[Shown]:
    """Return figures with their captions, of where each is by the name of its file."""
    return [Shown(source, CAPTIONS[name.split(".")[0]]) for name, source in sources.items()]
