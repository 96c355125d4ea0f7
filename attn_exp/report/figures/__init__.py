"""The figures of a report; each has its own file, and is found by the name of that file.

The file defines `FIGURE = Figure(...)`: its caption, whether it applies to a comparison, and how it is drawn. A new
file adds a figure to the page, to the Markdown and to the files. A figure that is planned as a chart becomes SVG
without Matplotlib. Matplotlib is only loaded for other formats, and for figures that are drawn with it.
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
from attn_exp.report.figures.figure import Figure, drawn_width, fit_to_size, size
from attn_exp.report.views import Views

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


def figures() -> dict[str, Figure]:
    members = {name: registry.module(__name__, name).FIGURE for name in registry.names(__path__, without=("figure",))}
    members |= registry.available_members(__name__)
    return dict(sorted(members.items(), key=lambda item: (item[1].place, item[0])))


def choose_figures(views: Views) -> dict[str, Figure]:
    """Return the figures that the settings ask for and that apply to the comparison."""
    members, only = figures(), views.comparison.config.figures.only
    return {name: member for name, member in members.items() if name in (only or members) and member.wanted(views)}


def draw_figures(views: Views, members: Mapping[str, Figure]) -> dict[str, Drawing]:
    """Return figures drawn with Matplotlib, by name; their fonts have the letters of all tokens."""
    from attn_exp.report.charts import matplotlib_figure  # noqa: PLC0415 - a page of charts alone needs none

    comparison = views.comparison
    problem, figure_size = comparison.problem, size(comparison.config.figures)
    fonts = matplotlib_figure.choose_fonts((*problem.tokens, *problem.key_tokens, *comparison.traces), figure_size.font)
    drawn = {}
    with matplotlib_figure.style_context({"font.family": fonts}, figure_size.width / drawn_width(figure_size)):
        for name, member in members.items():
            if member.plan is not None:
                drawn[name] = matplotlib_figure.draw_chart(fit_to_size(partial(member.plan, views), figure_size))
            elif member.draw is not None:
                drawn[name] = member.draw(views, figure_size.width)
                if figure_size.height is not None:
                    drawn[name].set_figheight(figure_size.height)
    return drawn


def encode_figures(views: Views, forms: Sequence[str]) -> dict[str, dict[str, bytes]]:
    """Return the files of the figures, by name and then by format; `forms` are some of `svg`, `png` and `pdf`."""
    members, settings = choose_figures(views), views.comparison.config.figures
    encodings = dict[str, dict[str, bytes]]()
    for name, member in members.items():
        svg_plan = member.plan if avoids_matplotlib(member, settings, "svg") else None
        encodings[name] = (
            {"svg": chart_as_svg(fit_to_size(partial(svg_plan, views), size(settings)))} if svg_plan else {}
        )
    remaining = {name: member for name, member in members.items() if set(forms) - set(encodings[name])}
    if remaining:
        from attn_exp.report.charts.matplotlib_figure import encode_figure  # noqa: PLC0415 - as above

        for name, figure in draw_figures(views, remaining).items():
            encodings[name] |= {form: encode_figure(figure, form) for form in forms if form not in encodings[name]}
    return encodings


def avoids_matplotlib(member: Figure, settings: Figures, form: str) -> bool:
    """Return whether a figure can be made in this format without Matplotlib.

    A font in the settings needs Matplotlib: it knows the widths of the letters, and it embeds their shapes for readers
    who do not have the font.
    """
    return member.plan is not None and form == "svg" and settings.font is None


def load(settings: Figures) -> None:
    """Import Matplotlib if a figure needs it, so that the versions in the provenance of a run include it."""
    if not all(avoids_matplotlib(member, settings, form) for member in figures().values() for form in settings.format):
        import_module("attn_exp.report.charts.matplotlib_figure")


def check(settings: Figures) -> None:
    """Refuse figures that do not exist, and a font that is not installed.

    Raises:
        UserError: there is no such figure or font; the message lists some that exist.
    """
    members = figures()
    for name in settings.only:
        if name not in members:
            raise UserError(unknown(name, list(members), "figure"))
    if settings.font is not None:
        from attn_exp.report.charts.matplotlib_figure import installed_fonts  # noqa: PLC0415 - as above

        if settings.font not in installed_fonts():
            raise UserError(f"{unknown(settings.font, installed_fonts(), 'figures.font')}, among the installed fonts")
