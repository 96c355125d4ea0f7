"""A run as its readers see it, from the views that are made of it once."""

from __future__ import annotations

import re

from matplotlib.figure import Figure as Drawing

from attn_exp.experiment.row import Comparison, Run
from attn_exp.report import figures
from attn_exp.report.documents import markdown, page
from attn_exp.report.sections.section import Material
from attn_exp.report.sections.walks import make_walks
from attn_exp.report.views import Shown, make_views


def page_of(run: Run, *shown: Shown) -> str:
    """Return the page of a run."""
    views = make_views(run.comparison)
    return complete(page(Material(run, views, shown, make_walks(views))))


def markdown_of(run: Run, *shown: Shown) -> str:
    """Return the Markdown report of a run."""
    views = make_views(run.comparison)
    return complete(markdown(Material(run, views, shown, make_walks(views))))


def complete(text: str) -> str:
    """Return a rendered text, in which every word must be filled in."""
    assert not (left := find_braces(text)), left
    return text


def find_braces(text: str) -> list[str]:
    """Return the placeholders that are left in a text, outside of scripts, which fill in their own."""
    return re.findall(r"\{[a-z_]+\}", re.sub(r"(?s)<script.*?</script>", "", text))


def drawings_of(comparison: Comparison) -> dict[str, Drawing]:
    """Return every figure of a comparison."""
    views = make_views(comparison)
    return figures.draw_figures(views, figures.choose_figures(views))
