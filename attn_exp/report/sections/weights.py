"""The weights: a small map of each head of each variant, and large what is chosen, alone or beside another choice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from attn_exp.experiment.comparison import settled_as
from attn_exp.report import sentences, walk, words
from attn_exp.report.pixels import picture
from attn_exp.report.sections.section import Material, Section
from attn_exp.report.views import FINE, Colours, Views, colours, heads_of
from attn_exp.report.walk import closed_by_mask

SMALL = 16
"""Weights with at most this many rows and columns are shown as a table with numbers; larger ones as a picture."""


class Map(NamedTuple):
    """The weights of one head: a small table, or the address of a `picture` of so many pixels.

    `coarse` pictures are shown wider.
    """

    title: str
    step: walk.Step | None = None
    table: walk.Table | None = None
    picture: str = ""
    width: int = 0
    height: int = 0
    coarse: bool = False


def parts(material: Material) -> list[dict[str, Any]]:
    """Return the map that a page begins with, if there are weights, and the means of blocks."""
    views = material.views
    scale = colours(views)
    first, blocks = first_map(views, scale), list(block_maps(views, scale))
    return [
        {
            "anchor": "weights",
            "title": "Weights" if first or blocks or len(material.walks) > 1 else "",
            "first": first,
            "blocks": blocks,
            "scale": scale,
            "column": sentences.name_of_columns(views.comparison.problem),
            "masked": any(settled.rules.masks for settled in views.comparison.variants),
            "several": len(material.walks) > 1,
        }
    ]


def first_map(views: Views, scale: Colours) -> Map | None:
    """Return the weights of the first head of the first variant that has any."""
    if not views.panels:
        return None
    panel = views.panels[0]
    head, variant = heads_of(panel)[0], panel.variants[0]
    if max(head.weights.shape) <= SMALL:
        step = walk.step("weights", panel.weights, views.comparison, variant)
        step = step._replace(largest=scale.top, power=scale.power, decimals=2)
        return Map(head.title, step, step.tables[0]._replace(title=""))
    shut = closed_by_mask(settled_as(views.comparison, variant), panel.weights[:1])
    queries, keys = head.weights.shape
    source = picture(head.weights, scale.shares, None if shut is None else shut[0])
    return Map(head.title, None, None, source, keys, queries)


def block_maps(views: Views, scale: Colours) -> Iterator[Map]:
    """Yield the mean weights over blocks, for variants that never form their weights whole, on the same scale."""
    for variant, trace in views.comparison.traces.items():
        heads = () if trace.weights is not None or trace.summary is None else tuple(trace.summary.heat)
        for head, matrix in enumerate(heads):
            name = words.HEAD_OF.format(variants=variant, number=head + 1) if len(heads) > 1 else variant
            shut = matrix == 0 if settled_as(views.comparison, variant).rules.masks else None
            source, (rows, columns) = picture(matrix, scale.shares, shut), matrix.shape
            title = f"{name}: means of blocks"
            yield Map(title, None, None, source, columns, rows, max(rows, columns) > FINE)


HTML = """\
{% from "tables.html" import matrix -%}
{% macro image(map) -%}
<img class="map{{ " coarse" if map.coarse }}" src="{{ map.picture }}" {#
#}alt="weights of {{ map.title }}" width="{{ map.width }}" height="{{ map.height }}">
{%- endmacro -%}
{% if part.first or part.blocks or part.several %}
<section id="weights">
<h2>Weights</h2>
{% if part.first or part.blocks %}<p>A row is a query, a column a {{ part.column }}. {#
#}{{ words.SCALE.format(top=part.scale.top|short) }}{% if part.scale.power < 1 %} {#
#}{{ words.WITH_POWER.format(power=part.scale.power) }}{% endif %}{#
#}{% if part.masked %} Grey places are masked.{% endif %}</p>{% endif %}
<div id="overview" class="overview"></div>
<div id="choice" class="controls touch" hidden></div>
<div id="large" class="large">{% if part.first %}<figure><figcaption>{{ part.first.title }}</figcaption>{#
#}{% if part.first.table %}{{ matrix(part.first.table, part.first.step) }}{% else %}{{ image(part.first) }}{% endif %}{#
#}</figure>{% endif %}</div>
<p id="told" class="note" aria-live="polite"></p>
<div id="touch" class="controls touch" hidden>
<label for="touch-scale">Multiplier of the scores</label> {#
#}<input id="touch-scale" type="range" min="-8" max="8" step="0.01" value="0" list="touch-marks">{#
#}<datalist id="touch-marks"></datalist>
<output id="touch-value" for="touch-scale"></output>
<span class="presets"><button type="button" data-preset="standard">1/√d</button> {#
#}<button type="button" data-preset="own">{{ words.THIS_RUN }}</button> <button type="button" data-preset="one">{#
#}no scaling</button></span>
</div>
{% if part.blocks %}<div class="grid">
{% for map in part.blocks %}<figure><figcaption>{{ map.title }}</figcaption>{{ image(map) }}</figure>
{% endfor -%}
</div>{% endif %}
</section>
{% endif %}
"""

SECTION = Section(place=12, parts=parts, html=HTML)
