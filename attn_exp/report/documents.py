"""All that a reader is given of a run, as the bytes of files."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from attn_exp.config.schema import Report
from attn_exp.experiment.comparison import Run
from attn_exp.report.views import MOST_NUMBERS, Shown, Views, seen

if TYPE_CHECKING:
    from attn_exp.report.sections.section import Material

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

    What nobody wants is never imported.
    """
    wanted = run.comparison.config.report
    views = seen(run.comparison, splits_up_to(wanted))
    figures = drawn(views) if wanted.figures else []
    files = {name: content for figure in figures for name, content in figure.files.items()}
    if not (wanted.tables or wanted.pages):
        return files
    from attn_exp.report.sections.section import Material  # noqa: PLC0415 - figures alone need none
    from attn_exp.report.sections.walks import walks  # noqa: PLC0415

    material = Material(run, views, (), walks(views))
    if wanted.tables:
        files |= tables(run)
        files["report.md"] = in_markdown(material, figures)
    if wanted.pages:
        files["report.html"] = as_page(material, figures)
    return files


def splits_up_to(wanted: Report) -> float:
    """Return how large the weights are that have to be taken apart: any for figures, small ones for the page alone."""
    if wanted.figures:
        return inf
    return MOST_NUMBERS if wanted.pages else 0


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


def tables(run: Run) -> dict[str, bytes]:
    """Return the tables for papers in every form."""
    from attn_exp.report import papers  # noqa: PLC0415 - `report=none` loads no templates

    return {
        f"tables/{table.name}.{ending}": in_bytes(form(table))
        for table in papers.tables(run.comparison)
        for ending, form in papers.FORMS.items()
    }


def in_markdown(material: Material, figures: Sequence[Drawn]) -> bytes:
    """Return the report as Markdown, which shows the figures beside it."""
    from attn_exp.report.markdown import markdown  # noqa: PLC0415 - `report=none` loads no templates

    wanted = material.run.comparison.config.figures.format
    form = next(form for form in BEST_IN_MARKDOWN if form in wanted)
    shown = [Shown(f"figures/{figure.name}.{form}", figure.caption) for figure in figures]
    return in_bytes(markdown(material._replace(figures=shown)))


def as_page(material: Material, figures: Sequence[Drawn]) -> bytes:
    """Return the report as a page, which holds the figures."""
    from attn_exp.report.page import page, svg_source  # noqa: PLC0415 - as above

    shown = [Shown(svg_source(figure.svg), figure.caption) for figure in figures if figure.in_page]
    return in_bytes(page(material._replace(figures=shown)))


def in_bytes(text: str) -> bytes:
    """Return a text as UTF-8; half a surrogate pair, which it cannot hold, becomes its number."""
    return text.encode("utf-8", "backslashreplace")
