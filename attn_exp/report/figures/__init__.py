"""The figures of a report; each has its own file, and is found by the name of that file.

The file defines `FIGURE = Figure(...)`: its caption, whether it applies to a comparison, and how it is drawn. A new
file adds a figure to the page, to the Markdown and to the files. Figures planned as charts become SVG without
Matplotlib, which is only loaded for other formats and for figures that are drawn with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from attn_exp import registry
from attn_exp.config.schema import Figures
from attn_exp.errors import UserError, unknown
from attn_exp.report.charts import chart_as_svg
from attn_exp.report.figures.figure import Figure, drawn_width, planned, size
from attn_exp.report.views import Views

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


def figures() -> dict[str, Figure]:
    known = {name: registry.module(__name__, name).FIGURE for name in registry.names(__path__, without=("figure",))}
    known |= registry.available_members(__name__)
    return dict(sorted(known.items(), key=lambda named: (named[1].place, named[0])))


def wanted(views: Views) -> dict[str, Figure]:
    """Return the requested figures that apply to a comparison."""
    known, only = figures(), views.comparison.config.figures.only
    return {name: member for name, member in known.items() if name in (only or known) and member.wanted(views)}


def drawings(views: Views, members: Mapping[str, Figure]) -> dict[str, Drawing]:
    """Draw figures with Matplotlib, in one style, with fonts for every token."""
    from attn_exp.report.charts import matplotlib_figure as ours  # noqa: PLC0415 - a page of charts alone needs none

    comparison = views.comparison
    problem, wanted = comparison.problem, size(comparison.config.figures)
    fonts = ours.fonts_for((*problem.tokens, *problem.key_tokens, *comparison.traces), wanted.font)
    made = {}
    with ours.look({"font.family": fonts}, wanted.width / drawn_width(wanted)):
        for name, member in members.items():
            if member.plan is not None:
                made[name] = ours.figure_of(planned(partial(member.plan, views), wanted))
            elif member.draw is not None:
                made[name] = member.draw(views, wanted.width)
                if wanted.height is not None:
                    made[name].set_figheight(wanted.height)
    return made


def files(views: Views, forms: Sequence[str]) -> dict[str, dict[str, bytes]]:
    """Encode the requested figures in some of the formats `svg`, `png` and `pdf`; return them by name and format."""
    members, settings = wanted(views), views.comparison.config.figures
    made = dict[str, dict[str, bytes]]()
    for name, member in members.items():
        alone = avoids_matplotlib(member, settings, "svg") and member.plan
        made[name] = {"svg": chart_as_svg(planned(partial(alone, views), size(settings)))} if alone else {}
    others = {name: member for name, member in members.items() if set(forms) - set(made[name])}
    if others:
        from attn_exp.report.charts.matplotlib_figure import encoded  # noqa: PLC0415 - as above

        for name, figure in drawings(views, others).items():
            made[name] |= {form: encoded(figure, form) for form in forms if form not in made[name]}
    return made


def avoids_matplotlib(member: Figure, settings: Figures, form: str) -> bool:
    """Return whether a figure can be made in this format without Matplotlib.

    A configured font needs Matplotlib, which knows the widths of its letters, and embeds their shapes for readers
    without the font.
    """
    return member.plan is not None and form == "svg" and settings.font is None


def load(settings: Figures) -> None:
    """Import Matplotlib if a figure needs it, so that a list of imported modules is complete."""
    if not all(avoids_matplotlib(member, settings, form) for member in figures().values() for form in settings.format):
        import_module("attn_exp.report.charts.matplotlib_figure")


def check(settings: Figures) -> None:
    """Refuse unknown figures, and a font that is not installed.

    Raises:
        UserError: a name is unknown; the message lists some known ones.
    """
    known = figures()
    for name in settings.only:
        if name not in known:
            raise UserError(unknown(name, list(known), "figure"))
    if settings.font is not None:
        from attn_exp.report.charts.matplotlib_figure import installed  # noqa: PLC0415 - as above

        if settings.font not in installed():
            raise UserError(f"{unknown(settings.font, installed(), 'figures.font')}, among the installed fonts")
