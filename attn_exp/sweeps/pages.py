"""The report of a sweep as one HTML page that needs nothing else, and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from attn_exp.experiment.row import titled
from attn_exp.report import words
from attn_exp.report.contents import origin
from attn_exp.report.escapes import md
from attn_exp.report.inline import inline, policy, scripts, template_text
from attn_exp.report.markdown import code, fenced, piped, tidy
from attn_exp.report.numbers import kinds, minus
from attn_exp.report.page import svg_source
from attn_exp.report.templating import templates
from attn_exp.report.views import Shown
from attn_exp.sweeps import overview
from attn_exp.sweeps.answers.answers import effects_table, percentiles_table, shares_table
from attn_exp.sweeps.answers.totals import Summary
from attn_exp.sweeps.explore import explored


def page(about: Mapping[str, Any], summary: Summary, drawn: Mapping[str, bytes]) -> str:
    """Return the report as HTML; `drawn` are figures by file name, of which the page holds the SVG ones."""
    sources = {name: svg_source(content) for name, content in drawn.items() if name.endswith(".svg")}
    environment = templates(autoescape=True)
    environment.filters |= {"kinds": kinds, "minus": minus}
    style = inline(template_text("report.css"), template_text("sweep.css"))
    data, both = explored(summary), contents(about, summary, sources, "all")
    deep = has_deep(both)
    names = [name for name, used in (("depth.js", deep), ("sweep.js", data)) if used]
    script = scripts(*names) if names else ""
    return environment.get_template("sweep.html").render(
        both,
        data=data,
        depth=overview.depth_of(about),
        has_deep=deep,
        style=Markup(style),
        script=Markup(script),
        policy=policy(style, script),
    )


def has_deep(both: Mapping[str, Any]) -> bool:
    """Say whether there is anything that is left out for reading."""
    tables = any(both[name].deep for name in ("effects", "shares", "percentiles"))
    return tables or any(both["deep"]) or any(extreme["deep"] for extreme in both["extremes"])


def markdown(about: Mapping[str, Any], summary: Summary, drawn: Sequence[str]) -> str:
    """Return the report as Markdown; `drawn` are file names under plots/."""
    environment = templates(autoescape=False)
    environment.filters |= {"md": md, "fenced": fenced, "piped": lambda lines, head: piped(head, lines), "code": code}
    sources = {name: f"plots/{name}" for name in drawn if name.endswith(".png")}
    both = contents(about, summary, sources, overview.depth_of(about))
    return tidy(environment.get_template("sweep.md").render(both))


def contents(about: Mapping[str, Any], summary: Summary, figures: Mapping[str, str], depth: str) -> dict[str, Any]:
    """Return what both reports say to a reader of this depth."""
    shown = overview.table(about, summary, overview.IN_REPORT, depth)
    extremes = overview.extremes(about, summary)
    answers = summary.answers
    return {
        "title": about["title"] or swept_over(about["axes"]),
        "sentence": overview.closing(about, summary),
        "partial": overview.partial(about, summary),
        "command": about["command"],
        "axes": [axis_told(axis) for axis in about["axes"]],
        "fixed": [word for word in about["fixed"] if not word.startswith("sweep.")],
        "skipped": about["skipped"],
        "answers": list(answers.sentences),
        "effects": effects_table(answers).at_depth(depth),
        "shares": shares_table(answers).at_depth(depth),
        "percentiles": percentiles_table(answers.cube).at_depth(depth),
        "heads": list(shown.titles),
        "deep": list(shown.deep),
        "lines": [
            ([*line.settings, line.variant, str(line.count), *line.numbers], line.command) for line in shown.lines
        ],
        "cells": shown.count,
        "seeds": summary.seeds,
        "extremes": [
            vars(extreme) | {"metric": titled(extreme.metric)}
            for extreme in extremes
            if depth == "all" or not extreme.deep
        ],
        "failures": list(overview.failures(about, summary)),
        "disagreements": list(overview.disagreements(about, summary)),
        "disagreeing": summary.disagreeing,
        "figures": [Shown(source, overview.CAPTIONS[name.split(".")[0]]) for name, source in figures.items()],
        "results": "results.csv" if about["format"] == "csv" else "parts/*.parquet",
        "origin": [pair for pair in origin(about) if pair[1]],
    }


def swept_over(axes: Sequence[Mapping[str, Any]]) -> str:
    """Return the title of a sweep that has none of its own."""
    return words.SWEEP_OVER.format(settings=", ".join(axis["key"] for axis in axes) or words.ONE_POINT)


def axis_told(axis: Mapping[str, Any]) -> str:
    """Say in a few words what an axis is."""
    if "range" in axis:
        return words.VALUES_FROM_TO.format(
            key=axis["key"], count=f"{axis['count']:,}", low=axis["low"], high=axis["high"]
        )
    values = axis["words"]
    shown = ", ".join(values if len(values) <= 8 else [*values[:7], "...", values[-1]])
    return f"{axis['key']}: {shown}"
