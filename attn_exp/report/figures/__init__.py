"""The figures of a report: one file each, found by its name.

A figure is a file with `FIGURE = Figure(...)`: its caption, whether a comparison has something to show in it, and how
it is drawn. A new file is a new figure in the page, in the Markdown and among the files.
"""

from __future__ import annotations

from matplotlib.figure import Figure as Drawing

from attn_exp import registry
from attn_exp.report.drawing import look
from attn_exp.report.figures.figure import Figure
from attn_exp.report.lettering import fonts_for
from attn_exp.report.views import Views

NAMES: tuple[str, ...] = registry.names(__path__, without=("figure",))


def figures() -> dict[str, Figure]:
    """Return every figure there is by its name, in the order of a report."""
    known: dict[str, Figure] = {name: registry.module(__name__, name).FIGURE for name in NAMES}
    known |= registry.at_hand(__name__)
    return dict(sorted(known.items(), key=lambda named: (named[1].place, named[0])))


def draw(views: Views) -> dict[str, Drawing]:
    """Return every figure that a comparison has something to show in, as wide as its configuration says."""
    comparison = views.comparison
    problem = comparison.problem
    fonts = fonts_for((*problem.tokens, *problem.key_tokens, *comparison.traces))
    with look({"font.family": fonts}):
        width = comparison.config.figures.width
        return {name: member.draw(views, width) for name, member in figures().items() if member.wanted(views)}
