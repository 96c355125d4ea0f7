"""The report of a run as one HTML page that needs nothing else."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from attn_exp.experiment.splits import settled_as
from attn_exp.report import columns, walk, words
from attn_exp.report.cells import cells, column_mark, row_mark, share_class, share_styles, unbroken
from attn_exp.report.flow import hue
from attn_exp.report.inline import inline, policy, scripts, template_text
from attn_exp.report.numbers import brief, decimals_of, kinds, minus
from attn_exp.report.page_data import live_plans, page_data
from attn_exp.report.pixels import picture
from attn_exp.report.sentences import spoken
from attn_exp.report.templating import templates
from attn_exp.report.views import FINE, Colours, Shown, Views, colours, heads_of
from attn_exp.report.walk import axes_of, closed_by_mask

SMALL = 12
"""Maps of the weights with at most this many rows and columns are tables with numbers; larger ones are pictures."""

SCRIPTS = (
    "report.js", "cells.js", "live.js", "again.js", "change.js", "rows.js", "pictures.js", "hand.js", "depth.js"
)  # fmt: skip

FILTERS = {
    "short": brief,
    "shared": columns.shared,
    "heads": columns.heads,
    "mark": columns.mark,
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


class Map(NamedTuple):
    """The weights of one head: a small table, or a picture; `panel` says whose they are, for the page's script."""

    title: str
    panel: int | str
    step: walk.Step | None
    table: walk.Table | None
    picture: str


def page(both: Mapping[str, Any], views: Views, figures: Sequence[Shown] = ()) -> str:
    """Return the report as HTML, of `contents` and the views; the address of each figure is the figure itself."""
    environment = templates(autoescape=True)
    environment.filters |= FILTERS
    scale = colours(views)
    style = inline(template_text("report.css"), template_text("flow.css"), share_styles())
    leaders, about = [walk["variant"] for walk in both["walks"]], {"command": both["command"]}
    shown = [*maps(views, scale), *block_maps(views, scale)]
    drawn = any(entry.table is None for entry in shown)
    script = scripts(*(name for name in SCRIPTS if drawn or name != "pictures.js"))
    return environment.get_template("report.html").render(
        {**both, "walks": [on_one_scale(walk, scale) for walk in both["walks"]]},
        figures=figures,
        axes=axes_of(step for walk in both["walks"] for step in walk["steps"]),
        scale=scale,
        maps=shown,
        masked=any(settled.rules.masks for settled in views.comparison.variants),
        data={**page_data(views), **scale._asdict(), "live": live_plans(views.comparison, leaders, about)},
        style=Markup(style),
        script=Markup(script),
        policy=policy(style, script),
    )


def on_one_scale(shown: Mapping[str, Any], scale: Colours) -> dict[str, Any]:
    """Return a walk whose weights have the colours of the maps."""
    ends = {"largest": scale.top, "power": scale.power}
    groups = [
        [step._replace(**ends) if step.stage == "weights" else step for step in group] for group in shown["groups"]
    ]
    return {**shown, "groups": groups}


def svg_source(svg: bytes) -> str:
    """Return a picture as an address that holds it."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


def maps(views: Views, scale: Colours) -> Iterator[Map]:
    """Yield each head's weights as a small table, or as a picture where it is large; all on one scale."""
    image = Markup(
        '<details class="zoom"><summary><img class="map" src="{}" alt="{}" width="{}" height="{}"></summary></details>'
    )
    for place, panel in enumerate(views.panels):
        step = walk.step("weights", panel.weights, views.comparison, panel.variants[0])
        step = step._replace(largest=scale.top, power=scale.power, decimals=2)
        shut = closed_by_mask(settled_as(views.comparison, panel.variants[0]), panel.weights)
        for index, head in enumerate(heads_of(panel)):
            queries, keys = head.weights.shape
            if max(queries, keys) <= SMALL and index < len(step.tables):
                yield Map(head.title, place, step, step.tables[index]._replace(title=""), "")
            else:
                source = picture(head.weights, scale.shares, None if shut is None else shut[index])
                yield Map(
                    head.title,
                    place,
                    step,
                    None,
                    image.format(source, words.WEIGHTS_OF.format(title=head.title), keys, queries),
                )


def block_maps(views: Views, scale: Colours) -> Iterator[Map]:
    """Yield the mean weights over blocks, for variants that never form their weights whole, on the same scale."""
    image = Markup('<img class="map{}" src="{}" alt="{}" width="{}" height="{}">')
    for variant, trace in views.comparison.traces.items():
        heads = () if trace.weights is not None or trace.summary is None else tuple(trace.summary.heat)
        for head, matrix in enumerate(heads):
            name = words.HEAD_OF.format(variants=variant, number=head + 1) if len(heads) > 1 else variant
            title = words.MEANS_OF_BLOCKS.format(title=name)
            shut = matrix == 0 if settled_as(views.comparison, variant).rules.masks else None
            look, source = " coarse" if max(matrix.shape) > FINE else "", picture(matrix, scale.shares, shut)
            drawn = image.format(look, source, words.WEIGHTS_OF.format(title=title), matrix.shape[1], matrix.shape[0])
            yield Map(title, "", None, None, drawn)
