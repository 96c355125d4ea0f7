"""The report of a run as one HTML page that needs nothing else."""

from __future__ import annotations

import base64

from markupsafe import Markup

from attn_exp.report import walk
from attn_exp.report.cells import cells, column_mark, row_mark, share_class, share_styles, unbroken
from attn_exp.report.flow import hue
from attn_exp.report.inline import inline, policy, scripts, template_text
from attn_exp.report.numbers import brief, decimals_of, kinds, minus
from attn_exp.report.page_data import live_plans, page_data
from attn_exp.report.sections import comparison, contents, templates_of
from attn_exp.report.sections.section import Material
from attn_exp.report.sentences import spoken
from attn_exp.report.templating import templates
from attn_exp.report.views import colours
from attn_exp.report.walk import axes_of

SCRIPTS = (
    "report.js", "cells.js", "live.js", "again.js", "change.js", "rows.js", "pictures.js", "hand.js", "depth.js"
)  # fmt: skip

FILTERS = {
    "short": brief,
    "heads": comparison.heads,
    "spoken": spoken,
    "shape": walk.shape,
    "hue": hue,
    "kinds": kinds,
    "minus": minus,
    "unbroken": unbroken,
    "cells": cells,
    "row_mark": row_mark,
    "column_mark": column_mark,
    "numbers": decimals_of,
    "share_class": share_class,
}


def page(material: Material) -> str:
    """Return the report as HTML; the address of each figure is the figure itself."""
    texts = templates_of("html")
    environment = templates(autoescape=True, more=texts)
    environment.filters |= FILTERS
    views, both = material.views, contents(material, texts)
    style = inline(template_text("report.css"), template_text("flow.css"), share_styles())
    leaders, about = [walk["variant"] for walk in material.walks], {"command": both["command"]}
    drawn = any(entry.table is None for part in both["parts"] for entry in part.get("maps", ()))
    script = scripts(*(name for name in SCRIPTS if drawn or name != "pictures.js"))
    return environment.get_template("report.html").render(
        both,
        axes=axes_of(step for walk in material.walks for step in walk["steps"]),
        data={**page_data(views), **colours(views)._asdict(), "live": live_plans(views.comparison, leaders, about)},
        style=Markup(style),
        script=Markup(script),
        policy=policy(style, script),
    )


def svg_source(svg: bytes) -> str:
    """Return a picture as an address that holds it."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
