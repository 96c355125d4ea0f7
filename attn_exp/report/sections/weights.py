"""The weights: a small map of each head of each variant, and one that the reader chooses, enlarged.

A second enlarged map can stand next to it. Only the first map is drawn here; the script of the page draws the others.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from attn_exp.arrays import Array
from attn_exp.experiment.row import find_settled
from attn_exp.report import sentences, walk
from attn_exp.report.escapes import label
from attn_exp.report.pixels import picture_url
from attn_exp.report.sections.section import Material, Section
from attn_exp.report.stages import is_random
from attn_exp.report.views import FINE, Colours, Views, colours, heads_of
from attn_exp.report.walk import find_masked


class Drawn(NamedTuple):
    """A matrix as a page shows it: as a small table or as a picture.

    `step`: has the table; None for a picture.
    `picture`, `width`, `height`: the address of the picture, and its size in pixels.
    `coarse`: whether the picture is shown wider.
    """

    title: str
    step: walk.Step | None = None
    picture: str = ""
    width: int = 0
    height: int = 0
    coarse: bool = False

    @property
    def table(self) -> walk.Table | None:
        return None if self.step is None else self.step.tables[0]._replace(title="", parts=())


def draw_picture(
    title: str, matrix: Array, scale: Colours, is_masked: Array | None = None, *, coarse: bool = False
) -> Drawn:
    height, width = matrix.shape
    return Drawn(title, None, picture_url(matrix, scale.shares, is_masked), width, height, coarse)


SMALL = 16
"""Weights with at most this many rows and columns are shown as a table of numbers, larger ones as a picture."""


def parts(material: Material) -> list[dict[str, Any]]:
    views = material.views
    return [make_weights_part([("", views)], colours(views), len(material.walks) > 1)]


def make_weights_part(
    views_by_run: Sequence[tuple[str, Views]], scale: Colours, several: bool = True
) -> dict[str, Any]:
    """Return the data of the section for one run, or for several runs with their names.

    Only the first map of each run is drawn. `several` means that the page has several walks to choose from.
    """
    views = views_by_run[0][1]
    text_or_tokens = views.comparison.config.embeddings.text or views.comparison.problem.tokens[:16]
    text = text_or_tokens if isinstance(text_or_tokens, str) else " ".join(text_or_tokens)
    first = [draw_first_map(run_views, scale, name) for name, run_views in views_by_run if run_views.panels]
    blocks = list(draw_block_maps(views, scale))
    return {
        "anchor": "weights",
        "title": "Weights" if first or blocks or several else "",
        "first": first,
        "blocks": blocks,
        "scale": scale,
        "column": sentences.describe_tokens(views.comparison.problem).columns,
        "masked": any(
            settled.rules.masks for _, run_views in views_by_run for settled in run_views.comparison.variants
        ),
        "several": several,
        "text": shlex.quote(f"model.text={json.dumps(label(text, 120), ensure_ascii=False)}"),
        "random": all(
            any(is_random(stage, run_views.comparison) for stage in ("x", "W_q", "W_k"))
            for _, run_views in views_by_run
        ),
    }


def draw_first_map(views: Views, scale: Colours, run: str = "") -> Drawn:
    panel = views.panels[0]
    head, settled = heads_of(panel)[0], find_settled(views.comparison, panel.variants[0])
    title = f"{run}: {head.title}" if run else head.title
    if max(head.weights.shape) <= SMALL:
        step = walk.make_step("weights", panel.weights, views.comparison, settled)
        return Drawn(title, step._replace(largest=scale.top, power=scale.power, decimals=2))
    is_masked = find_masked(settled, panel.weights[:1])
    return draw_picture(title, head.weights, scale, None if is_masked is None else is_masked[0])


def draw_block_maps(views: Views, scale: Colours) -> Iterator[Drawn]:
    for variant, trace in views.comparison.traces.items():
        heads = () if trace.weights is not None or trace.summary is None else tuple(trace.summary.heat)
        has_masks = bool(find_settled(views.comparison, variant).rules.masks)
        for index, matrix in enumerate(heads):
            title = f"{variant}, head {index + 1}" if len(heads) > 1 else variant
            is_masked = matrix == 0 if has_masks else None
            yield draw_picture(title, matrix, scale, is_masked, coarse=max(matrix.shape) > FINE)


HTML = """\
{% from "matrices.html" import draw -%}
{% if part.first or part.blocks or part.several %}
<section id="weights">
<h2>Weights</h2>
{% if part.first or part.blocks %}<p>A row is a query, a column a {{ part.column }}. {#
#}A stronger colour is a larger weight: no colour is 0, full colour is {{ part.scale.top|short }}, {#
#}in every table of weights.{% if part.scale.power < 1 %} The strength of a colour is (weight / {#
#}{{ part.scale.top|short }}) to the power {{ part.scale.power }}, so that small weights are visible.{% endif %}{#
#}{% if part.masked %} Grey cells are masked.{% endif %}{#
#}{% if part.random %} These weights come from random numbers. For a trained model, run {#
#}<code>python -m attn_exp model=gpt2 model.path=FOLDER {{ part.text }}</code>; {#
#}docs/models.md says where to get a FOLDER.{% endif %}</p>{% endif %}
<div id="overview" class="overview"></div>
<div id="choice" class="controls touch" hidden></div>
<div id="large" class="large">{% for map in part.first %}{{ draw(map, "weights of " ~ map.title) }}{% endfor %}</div>
<p id="told" class="note" aria-live="polite"></p>
<div id="touch" class="controls touch" hidden>
<label for="touch-scale">Multiplier of the scores</label> {#
#}<input id="touch-scale" type="range" min="-8" max="8" step="0.01" value="0">
<output id="touch-value" for="touch-scale"></output>
<span class="presets"><button type="button" data-preset="standard">1/√d</button> {#
#}<button type="button" data-preset="own">this run</button> <button type="button" data-preset="one">{#
#}no scaling</button></span>
</div>
{% if part.blocks %}<details class="more"{{ " open" if not part.first }}>{#
#}<summary>Block means of weights that are never stored as a full matrix</summary><div class="grid">
{% for map in part.blocks %}{{ draw(map, "weights of " ~ map.title) }}
{% endfor -%}
</div></details>{% endif %}
</section>
{% endif %}
"""

SECTION = Section(place=12, parts=parts, html=HTML)
