"""The figures of a report: one file each, found by its name.

A figure is a file with `FIGURE = Figure(...)`: its caption, whether a comparison has something to show in it, and how
it is drawn. A new file is a new figure in the page, in the Markdown and among the files.
"""

from __future__ import annotations

from matplotlib.figure import Figure as Drawing

from attn_exp import registry
from attn_exp.config.schema import Figures
from attn_exp.errors import UserError, unknown
from attn_exp.report.drawing import look
from attn_exp.report.figures import _fitting
from attn_exp.report.figures.figure import Figure
from attn_exp.report.lettering import fonts_for, installed
from attn_exp.report.views import Views

NAMES: tuple[str, ...] = registry.names(__path__, without=("figure",))


def figures() -> dict[str, Figure]:
    """Return every figure there is by its name, in the order of a report."""
    known: dict[str, Figure] = {name: registry.module(__name__, name).FIGURE for name in NAMES}
    known |= registry.at_hand(__name__)
    return dict(sorted(known.items(), key=lambda named: (named[1].place, named[0])))


def draw(views: Views) -> dict[str, Drawing]:
    """Return every figure that was asked for and that a comparison has something to show in, as large as asked for."""
    comparison = views.comparison
    problem, settings = comparison.problem, comparison.config.figures
    wanted, known = _fitting.size(settings), figures()
    fonts = fonts_for((*problem.tokens, *problem.key_tokens, *comparison.traces), wanted.font)
    with look({"font.family": fonts}):
        return {
            name: _fitting.drawn(member, views, wanted)
            for name, member in known.items()
            if name in (settings.only or known) and member.wanted(views)
        }


def check(settings: Figures) -> None:
    """Refuse figures that there are not, and a font that this machine lacks.

    Raises:
        UserError: the name, and some that there are.
    """
    known = figures()
    for name in settings.only:
        if name not in known:
            raise UserError(unknown(name, list(known), "figure"))
    if settings.font is not None and settings.font not in installed():
        raise UserError(f"{unknown(settings.font, installed(), 'figures.font')}, of the fonts that are here")
