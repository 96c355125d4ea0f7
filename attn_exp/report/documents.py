"""All that a reader is given of a run, as the bytes of files."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from attn_exp.config.schema import Report
from attn_exp.experiment.comparison import Run
from attn_exp.report.views import MOST_COARSE, Shown, Views, seen

BEST_IN_MARKDOWN = ("png", "svg", "pdf")
"""The formats of figures; Markdown shows the first of them that there is."""


class Drawn(NamedTuple):
    """One figure of a run: the words below it, as SVG for the page, and in every format that was asked for."""

    name: str
    caption: str
    svg: bytes
    files: dict[str, bytes]
    in_page: bool = True


def documents(run: Run) -> dict[str, bytes]:
    """Return what the configuration of a run wants a reader to see, by names of files such as `figures/weights.svg`.

    What nobody wants is never imported. Markdown shows the figures beside it, and the page holds them.
    """
    wanted = run.comparison.config.report
    views = seen(run.comparison, splits_up_to(wanted))
    figures = drawn(views) if wanted.figures else []
    files = {name: content for figure in figures for name, content in figure.files.items()}
    if not (wanted.tables or wanted.pages):
        return files
    from attn_exp.report import markdown, page, papers  # noqa: PLC0415 - figures alone need no templates
    from attn_exp.report.sections import section, walks  # noqa: PLC0415 - as above

    material = section.Material(run, views, (), walks.walks(views))
    if wanted.tables:
        for table in papers.tables(run.comparison):
            files |= {f"tables/{table.name}.{ending}": in_bytes(form(table)) for ending, form in papers.FORMS.items()}
        best = next(form for form in BEST_IN_MARKDOWN if form in run.comparison.config.figures.format)
        beside = [Shown(f"figures/{figure.name}.{best}", figure.caption) for figure in figures]
        files["report.md"] = in_bytes(markdown.markdown(material._replace(figures=beside)))
    if wanted.pages:
        inside = [Shown(page.svg_source(figure.svg), figure.caption) for figure in figures if figure.in_page]
        files["report.html"] = in_bytes(page.page(material._replace(figures=inside)))
    return files


def splits_up_to(wanted: Report) -> float:
    """Return how large the weights are that have to be taken apart: any for figures, small ones for the page alone."""
    if wanted.figures:
        return inf
    return MOST_COARSE if wanted.pages else 0


def drawn(views: Views) -> list[Drawn]:
    """Return every figure as SVG and in the formats that were asked for."""
    from attn_exp.report import figures  # noqa: PLC0415 - tables alone need none

    wanted, known = views.comparison.config.figures.format, figures.figures()
    made = figures.files(views, tuple(dict.fromkeys(("svg", *wanted))))
    return [
        Drawn(
            name,
            known[name].caption,
            svg=contents["svg"],
            files={f"figures/{name}.{form}": contents[form] for form in wanted},
            in_page=known[name].in_page,
        )
        for name, contents in made.items()
    ]


def in_bytes(text: str) -> bytes:
    """Return a text as UTF-8; half a surrogate pair, which it cannot hold, becomes its number."""
    return text.encode("utf-8", "backslashreplace")
