"""The report of a run as one HTML page that needs nothing else.

Its tables of numbers have cells coloured by their size, and rows and columns tied to their tokens. A page has
thousands of cells, so they are written here: a macro of Jinja takes more than three times as long for each.
"""

from __future__ import annotations

import math
import re
from itertools import repeat
from urllib.parse import quote

from markupsafe import Markup, escape

from attn_exp.report import walk
from attn_exp.report.flow import hue
from attn_exp.report.inline import policy, scripts, styles, template_text
from attn_exp.report.numbers import brief, decimal, decimals_of, kinds, minus
from attn_exp.report.page_data import live_plans, page_data
from attn_exp.report.page_steps import carried
from attn_exp.report.sections import comparison, contents, templates_of
from attn_exp.report.sections.section import Material
from attn_exp.report.sentences import spoken
from attn_exp.report.templating import templates
from attn_exp.report.views import colours
from attn_exp.report.walk import axes_of

SCRIPTS = (
    "report.js", "steps.js", "explore.js", "cells.js", "live.js", "again.js", "change.js", "rows.js", "hand.js",
    "guide.js", "depth.js",
)  # fmt: skip
CHANGING = ("live.js", "again.js", "change.js", "rows.js", "hand.js", "guide.js")
"""Scripts of a page whose numbers can be changed; one of other numbers goes without."""

SHARES = "\n".join(f".w{hundredths} {{ --w: {hundredths / 100:g}; }}" for hundredths in range(1, 101))
"""The classes of `share_class`."""

EXPONENT = re.compile(r"\d[\d.]*e[+-]\d+")


def cells(table: walk.Table, step: walk.Step) -> list[Markup]:
    """Return the cells of each row of a table, coloured by their share of the stage's largest number."""
    width = table.matrix.shape[1]
    keys = [f' data-k="{place}"' for place in range(width)] if walk.by_key(step) else [""] * width
    closed = None if step.closed is None else step.closed[table.head].tolist()
    return [
        Markup("".join(map(cell, line, repeat(step), keys, repeat(False) if closed is None else closed[row])))
        for row, line in enumerate(table.matrix.tolist())
    ]


def cell(value: float, step: walk.Step, key: str, closed: bool = False) -> str:
    """Return one cell; numbers alone go into it, and `key`, the mark of its column."""
    if closed or not math.isfinite(value):
        return f'<td class="m"{key}>{decimal(value, step.decimals if closed else 0)}</td>'
    kind = share_class(shade(value, step), "n" if value < 0 else "")
    classes = f' class="{kind}"' if kind else ""
    return f"<td{classes}{key}>{decimal(value, step.decimals)}</td>"


def shade(value: float, step: walk.Step) -> float:
    """Return how strong the colour of a number is: its share of the largest, of weights as their scale says."""
    share = abs(value) / step.largest if step.largest else 0.0
    return float(min(1.0, share) ** step.power)


def share_class(share: float, kind: str = "") -> str:
    """Return the classes of an element of a kind that shows a share, to the nearest hundredth, by its colour.

    The policy of a page allows no style in an element itself.
    """
    hundredths = round(100 * min(1.0, max(0.0, share))) if math.isfinite(share) else 0
    if not hundredths:
        return kind
    return f"{kind} w{hundredths}" if kind else f"w{hundredths}"


def row_mark(step: walk.Step, place: int) -> Markup:
    """Return what ties a row to its token: a query, or a key."""
    if walk.is_projection(step):
        return Markup("")
    return Markup(f' data-{"k" if step.rows_are_keys else "q"}="{int(place)}"')


def column_mark(step: walk.Step, place: int) -> Markup:
    """Return what ties a column to its key, where columns are keys."""
    return Markup(f' data-k="{int(place)}"') if walk.by_key(step) else Markup("")


def unbroken(text: str) -> Markup:
    """Return a text for a page in which no line ends within a number such as 2e-16."""
    return Markup(EXPONENT.sub(r'<span class="whole">\g<0></span>', str(escape(text))))


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
    style = styles(template_text("report.css"), template_text("flow.css"), SHARES)
    carries = page_data(views)
    panels = tuple(zip(views.panels, carries["panels"], strict=True))
    leaders, about = [walk["variant"] for walk in material.walks], {"command": both["command"]}
    guided = is_default(both["command"])
    live = live_plans(views.comparison, leaders, about)
    names = [name for name in SCRIPTS if live["arrays"] or name not in CHANGING]
    script = scripts(*(name for name in names if guided or name != "guide.js"))
    return environment.get_template("report.html").render(
        both,
        axes=axes_of(step for walk in material.walks for step in walk["steps"]),
        data={
            **carries,
            **colours(views)._asdict(),
            "walks": [carried(part["walk"], panels) for part in both["parts"] if "walk" in part],
            "live": live,
        },
        style=Markup(style),
        script=Markup(script),
        policy=policy(style, script),
    )


NOT_COMPUTED = ("figures", "notes", "output_dir", "report", "title")
"""Settings that change nothing that is computed."""


def is_default(command: str) -> bool:
    """Say whether a command is the default run, wherever and however it is written: it has a first reading."""
    given = (word.partition("=")[0].split(".")[0] for word in command.split() if "=" in word)
    return command != "" and all(setting in NOT_COMPUTED for setting in given)


def svg_source(svg: bytes) -> str:
    """Return a picture as an address that holds it, in a quarter fewer bytes than base64; it needs no escapes."""
    text = svg.decode()
    text = text if "'" in text else text.replace('"', "'")
    return Markup("data:image/svg+xml," + quote(text, safe=" ='/;:,()[]{}<>-.+*!?@~|"))
