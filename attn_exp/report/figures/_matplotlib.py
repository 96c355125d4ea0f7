"""Figures as Matplotlib's, in one look, as large as is wanted, with fonts for every token."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure as Drawing

from attn_exp.config.schema import Size
from attn_exp.errors import UserError
from attn_exp.report.charts.matplotlib_figure import FIRST, drawable, figure_of, fonts_for, look, measured
from attn_exp.report.charts.widths import Lettering
from attn_exp.report.charts.widths import width as width_of
from attn_exp.report.figures.figure import Figure, drawn_width, planned, size
from attn_exp.report.views import Views


def drawings(views: Views, members: Mapping[str, Figure]) -> dict[str, Drawing]:
    """Return figures as large as asked for; letters that no font at hand has stand there by their numbers."""
    comparison = views.comparison
    problem, wanted = comparison.problem, size(comparison.config.figures)
    fonts = fonts_for((*problem.tokens, *problem.key_tokens, *comparison.traces), wanted.font)
    with look({"font.family": fonts}, wanted.width / drawn_width(wanted)):
        lettering = Lettering(drawable, width_of if wanted.font == FIRST else measured)
        lettered = views._replace(lettering=lettering)
        return {name: drawing(name, member, lettered, wanted) for name, member in members.items()}


def drawing(name: str, member: Figure, views: Views, wanted: Size) -> Drawing:
    """Return one figure, planned or drawn; one that is drawn is stretched to the height that is wanted."""
    if member.plan is not None:
        return figure_of(planned(member.plan, views, wanted))
    if member.draw is None:
        raise UserError(f"figure {name}: expected draw or plan, got neither")
    figure = member.draw(views, wanted.width)
    if wanted.height is not None:
        figure.set_figheight(wanted.height)
    return figure
