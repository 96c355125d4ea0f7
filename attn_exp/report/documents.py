"""All that a reader is given of a run, as the bytes of files."""

from __future__ import annotations

from math import inf

from attn_exp.config.schema import Report
from attn_exp.experiment.comparison import Run
from attn_exp.report.views import MOST_COARSE, Shown, seen

BEST_IN_MARKDOWN = ("png", "svg", "pdf")
"""The formats of figures; Markdown shows the first of them that there is."""


def documents(run: Run) -> dict[str, bytes]:
    """Return what the configuration of a run wants a reader to see, by names of files such as `figures/weights.svg`.

    What nobody wants is never imported. Markdown shows the figures beside it, and the page holds them.
    """
    comparison = run.comparison
    wanted, formats = comparison.config.report, comparison.config.figures.format
    views = seen(comparison, splits_up_to(wanted))
    drawn: dict[str, dict[str, bytes]] = {}
    captions: dict[str, str] = {}
    if wanted.figures:
        from attn_exp.report import figures  # noqa: PLC0415 - tables alone need none

        drawn = figures.files(views, tuple(dict.fromkeys(("svg", *formats))))
        captions = {name: figure.caption for name, figure in figures.figures().items()}
    files = {f"figures/{name}.{form}": made[form] for name, made in drawn.items() for form in formats}
    if not (wanted.tables or wanted.pages):
        return files
    from attn_exp.report import page, papers  # noqa: PLC0415 - figures alone need no templates
    from attn_exp.report.sections import section, walks  # noqa: PLC0415 - as above

    material = section.Material(run, views, (), walks.walks(views))
    if wanted.tables:
        for table in papers.tables(comparison):
            files |= {f"tables/{table.name}.{ending}": in_bytes(form(table)) for ending, form in papers.FORMS.items()}
        best = next(form for form in BEST_IN_MARKDOWN if form in formats)
        beside = [Shown(f"figures/{name}.{best}", captions[name]) for name in drawn]
        files["report.md"] = in_bytes(page.markdown(material._replace(figures=beside)))
    if wanted.pages:
        in_page = [name for name in drawn if figures.figures()[name].in_page]
        inside = [Shown(page.svg_source(drawn[name]["svg"]), captions[name]) for name in in_page]
        files["report.html"] = in_bytes(page.page(material._replace(figures=inside)))
    return files


def splits_up_to(wanted: Report) -> float:
    """Return how large the weights are that have to be taken apart: any for figures, small ones for the page alone."""
    if wanted.figures:
        return inf
    return MOST_COARSE if wanted.pages else 0


def in_bytes(text: str) -> bytes:
    """Return a text as UTF-8; half a surrogate pair, which it cannot hold, becomes its number."""
    return text.encode("utf-8", "backslashreplace")
