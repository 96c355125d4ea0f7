"""A run as its readers see it, from the views that are made of it once."""

from __future__ import annotations

from matplotlib.figure import Figure as Drawing

from attn_exp.experiment.comparison import Comparison, Run
from attn_exp.report import figures
from attn_exp.report.contents import contents
from attn_exp.report.markdown import markdown
from attn_exp.report.page import page
from attn_exp.report.views import Shown, seen


def page_of(run: Run, *shown: Shown) -> str:
    """Return the page of a run."""
    views = seen(run.comparison)
    return page(contents(run, views), views, shown)


def markdown_of(run: Run, *shown: Shown) -> str:
    """Return the Markdown report of a run."""
    return markdown(contents(run, seen(run.comparison)), shown)


def drawings_of(comparison: Comparison) -> dict[str, Drawing]:
    """Return every figure of a comparison."""
    return figures.draw(seen(comparison))
