"""The weights of every head as maps, and what a reader can move: the scale, and one variant minus another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from attn_exp.experiment.comparison import settled_as
from attn_exp.report import sentences, walk, words
from attn_exp.report.pixels import picture
from attn_exp.report.sections.section import Material, Section
from attn_exp.report.views import FINE, Colours, Views, colours, heads_of
from attn_exp.report.walk import closed_by_mask

SMALL = 12
"""Maps of the weights with at most this many rows and columns are tables with numbers; larger ones are pictures."""


class Map(NamedTuple):
    """The weights of one head: a small table, or the address of a `picture` of so many pixels.

    `panel` says whose weights they are, for the page's script; means of blocks, which have none, cannot be made larger.
    `coarse` pictures are shown wider.
    """

    title: str
    panel: int | str
    step: walk.Step | None = None
    table: walk.Table | None = None
    picture: str = ""
    width: int = 0
    height: int = 0
    coarse: bool = False


def parts(material: Material) -> list[dict[str, Any]]:
    """Return the maps of weights, if there are any, and what follows them on the page."""
    views = material.views
    scale = colours(views)
    shown = [*maps(views, scale), *block_maps(views, scale)]
    return [
        {
            "anchor": "weights",
            "title": "Weights" if shown else "",
            "maps": shown,
            "scale": scale,
            "column": sentences.name_of_columns(views.comparison.problem),
            "masked": any(settled.rules.masks for settled in views.comparison.variants),
        }
    ]


def maps(views: Views, scale: Colours) -> Iterator[Map]:
    """Yield each head's weights as a small table, or as a picture where it is large; all on one scale."""
    for place, panel in enumerate(views.panels):
        step = walk.step("weights", panel.weights, views.comparison, panel.variants[0])
        step = step._replace(largest=scale.top, power=scale.power, decimals=2)
        shut = closed_by_mask(settled_as(views.comparison, panel.variants[0]), panel.weights)
        for index, head in enumerate(heads_of(panel)):
            queries, keys = head.weights.shape
            if max(queries, keys) <= SMALL and index < len(step.tables):
                yield Map(head.title, place, step, step.tables[index]._replace(title=""))
            else:
                source = picture(head.weights, scale.shares, None if shut is None else shut[index])
                yield Map(head.title, place, step, None, source, keys, queries)


def block_maps(views: Views, scale: Colours) -> Iterator[Map]:
    """Yield the mean weights over blocks, for variants that never form their weights whole, on the same scale."""
    for variant, trace in views.comparison.traces.items():
        heads = () if trace.weights is not None or trace.summary is None else tuple(trace.summary.heat)
        for head, matrix in enumerate(heads):
            name = words.HEAD_OF.format(variants=variant, number=head + 1) if len(heads) > 1 else variant
            shut = matrix == 0 if settled_as(views.comparison, variant).rules.masks else None
            source, (rows, columns) = picture(matrix, scale.shares, shut), matrix.shape
            title = f"{name}: means of blocks"
            yield Map(title, "", None, None, source, columns, rows, max(rows, columns) > FINE)


HTML = """\
{% from "tables.html" import matrix -%}
{% macro image(map) -%}
<img class="map{{ " coarse" if map.coarse }}" src="{{ map.picture }}" {#
#}alt="weights of {{ map.title }}" width="{{ map.width }}" height="{{ map.height }}">
{%- endmacro -%}
{% if part.maps %}
<section id="{{ part.anchor }}">
<h2>Weights, head by head</h2>
{% set few = words.WITH_POWER.format(power=part.scale.power) -%}
{% set growth = few if part.scale.power < 1 else words.IN_STEP -%}
<p>Each row is a query, each column a {{ part.column }}; colour grows {#
#}{{ growth }}, from none at 0 to the full one at {#
#}{{ part.scale.top|short }}, in every table and picture of weights on this page.{#
#}{% if part.masked %} Grey places are masked.{% endif %}{#
#}{% if part.maps|selectattr("picture")|list %} Choose a picture to see it large.{% endif %}</p>
<div class="grid">
{% for map in part.maps %}<figure data-panel="{{ map.panel }}"><figcaption>{{ map.title }}</figcaption>{#
#}{% if map.table %}{{ matrix(map.table, map.step) }}{#
#}{% elif map.step %}<details class="zoom"><summary>{{ image(map) }}</summary></details>{#
#}{% else %}{{ image(map) }}{% endif %}</figure>
{% endfor -%}
</div>
</section>
{% endif %}
<div class="pair touch">
<section id="touch" hidden>
<h2>Turn the scale yourself</h2>
<p>The weights of one variant at any multiplier of its scores, computed here, in this page. {#
#}Small multipliers spread attention evenly; large ones give it all to one key.</p>
<div class="controls">
<label for="touch-variant">Variant</label> <select id="touch-variant"></select>
<label for="touch-scale">Multiplier</label> {#
#}<input id="touch-scale" type="range" min="-8" max="8" step="0.01" value="0" list="touch-marks">{#
#}<datalist id="touch-marks"></datalist>
<output id="touch-value" for="touch-scale"></output>
<span class="presets"><button type="button" data-preset="standard">1/√d</button> {#
#}<button type="button" data-preset="own">{{ words.THIS_RUN }}</button> <button type="button" data-preset="one">{#
#}no scaling</button></span>
</div>
<p id="touch-entropy" class="note" aria-live="polite"></p>
<div id="touch-weights" class="tables"></div>
</section>
<section id="minus" hidden>
<h2>Two variants, one minus the other</h2>
<div class="controls">
<label for="minus-left">Show</label> <select id="minus-left"></select> <label for="minus-right">{#
#}minus</label> <select id="minus-right"></select>
</div>
<p id="minus-told" class="note" aria-live="polite"></p>
<div id="minus-tables" class="tables"></div>
</section>
</div>
"""

SECTION = Section(place=50, parts=parts, html=HTML)
