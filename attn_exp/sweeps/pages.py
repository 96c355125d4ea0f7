"""The report of a sweep as one HTML page that needs nothing else, and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from attn_exp.report.compiled import templates
from attn_exp.report.contents import origin
from attn_exp.report.escapes import md
from attn_exp.report.inline import inline, policy, template_text
from attn_exp.report.markdown import code, fenced, piped, tidy
from attn_exp.report.numbers import kinds
from attn_exp.report.page import svg_source
from attn_exp.report.shown import Shown
from attn_exp.sweeps import overview
from attn_exp.sweeps.answers.answers import effects_table, shares_table
from attn_exp.sweeps.answers.percentiles import percentiles_table
from attn_exp.sweeps.explore import explored
from attn_exp.sweeps.totals import Summary


def page(about: Mapping[str, Any], summary: Summary, drawn: Mapping[str, bytes]) -> str:
    """Return the report as HTML; `drawn` are figures by file name, of which the page holds the SVG ones."""
    sources = {name: svg_source(content) for name, content in drawn.items() if name.endswith(".svg")}
    environment = templates(autoescape=True)
    environment.filters |= {"kinds": kinds}
    style = inline(template_text("report.css"), template_text("sweep.css"))
    data = explored(summary)
    script = inline(template_text("sweep.js")) if data else ""
    return environment.get_template("sweep.html").render(
        contents(about, summary, sources),
        data=data,
        style=Markup(style),
        script=Markup(script),
        policy=policy(style, script),
    )


def markdown(about: Mapping[str, Any], summary: Summary, drawn: Sequence[str]) -> str:
    """Return the report as Markdown; `drawn` are file names under plots/."""
    environment = templates(autoescape=False)
    environment.filters |= {"md": md, "fenced": fenced, "piped": lambda lines, head: piped(head, lines), "code": code}
    sources = {name: f"plots/{name}" for name in drawn if name.endswith(".png")}
    return tidy(environment.get_template("sweep.md").render(contents(about, summary, sources)))


def contents(about: Mapping[str, Any], summary: Summary, figures: Mapping[str, str]) -> dict[str, Any]:
    """Return what both reports say."""
    shown = overview.table(about, summary, overview.IN_REPORT)
    answers = summary.answers
    return {
        "title": about["title"] or "Sweep over " + (", ".join(axis["key"] for axis in about["axes"]) or "one point"),
        "sentence": overview.closing(about, summary),
        "partial": overview.partial(about, summary),
        "command": about["command"],
        "axes": [axis_told(axis) for axis in about["axes"]],
        "fixed": [word for word in about["fixed"] if not word.startswith("sweep.")],
        "skipped": about["skipped"],
        "answers": list(answers.sentences),
        "effects": effects_table(answers),
        "shares": shares_table(answers),
        "percentiles": percentiles_table(answers.cube),
        "heads": list(shown.heads),
        "lines": [
            ([*line.settings, line.variant, str(line.count), *line.numbers], line.command) for line in shown.lines
        ],
        "cells": shown.count,
        "seeds": summary.seeds,
        "extremes": [vars(extreme) for extreme in overview.extremes(about, summary)],
        "failures": list(overview.failures(about, summary)),
        "disagreements": list(overview.disagreements(about, summary)),
        "disagreeing": summary.disagreeing,
        "figures": [Shown(source, overview.CAPTIONS[name.split(".")[0]]) for name, source in figures.items()],
        "results": "results.csv" if about["format"] == "csv" else "parts/*.parquet",
        "origin": [pair for pair in origin(about) if pair[1]],
    }


def axis_told(axis: Mapping[str, Any]) -> str:
    """Say in a few words what an axis is."""
    if "range" in axis:
        return f"{axis['key']}: {axis['count']:,} values from {axis['low']} to {axis['high']}"
    words = axis["words"]
    shown = ", ".join(words if len(words) <= 8 else [*words[:7], "...", words[-1]])
    return f"{axis['key']}: {shown}"
