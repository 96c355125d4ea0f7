"""A walk from the input to the output for each function that the variants compute."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import groupby
from typing import Any

from attn_exp import registry
from attn_exp.experiment.comparison import Comparison, settled_as
from attn_exp.experiment.variant import Settled
from attn_exp.forms.trace import Trace
from attn_exp.problem.problem import Problem
from attn_exp.report import walk
from attn_exp.report.flow import Flow, by_head, flow, parted, rows_by_head, splitting
from attn_exp.report.page_steps import most_numbers, on_page
from attn_exp.report.sections.section import Material, Section
from attn_exp.report.views import Colours, Views, colours
from attn_exp.report.walk import sums
from attn_exp.rules.scores.score import Score

Way = tuple[tuple[tuple[str, int], ...], ...]
"""Into which heads the columns of the projections part."""


def parts(material: Material) -> list[dict[str, Any]]:
    """Return the walks of a run."""
    scale, problem = colours(material.views), material.views.comparison.problem
    return [
        {
            "anchor": f"walk-{place + 1}",
            "title": f"{walk['title']}, step by step",
            "place": place,
            "nav": "Step by step",
            "hidden": place > 0,  # the page shows one at a time
            "walk": shown_walk(walk, scale, problem),
        }
        for place, walk in enumerate(material.walks)
    ]


def shown_walk(shown: Mapping[str, Any], scale: Colours, problem: Problem) -> dict[str, Any]:
    """Return a walk as a page shows it, its weights in the colours of the maps, and wide projections by heads."""
    most = most_numbers(len(problem.tokens))

    def on_screen(step: walk.Step) -> walk.Step:
        if step.stage in problem.projections:
            step = by_head(step, shown["split"], problem.projections[step.stage], most)
        if step.stage == "W_o":
            step = rows_by_head(step, shown["split"].heads, problem.projections["W_o"], most)
        return on_page(step._replace(largest=scale.top, power=scale.power) if step.stage == "weights" else step, most)

    return {**shown, "groups": [[on_screen(step) for step in group] for group in shown["groups"]]}


def walks(views: Views) -> list[dict[str, Any]]:
    """Return one walk for each function that the variants compute.

    The input stands in the first of them, and once more where its columns part into other heads.
    """
    made = list[dict[str, Any]]()
    places: dict[str, str] = {}
    ways = set[Way]()
    for title, variant in functions(views.comparison):
        made.append(walk_of(views, variant, title, f"walk-{len(made) + 1}", places, ways))
        places |= made[-1]["places"]
        ways.add(made[-1]["way"])
    return made


def functions(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Yield each function that the variants compute: the names of those that do, and the first of them."""
    rows = comparison.rows
    leaders = {row.same_as: row.variant for row in reversed(rows) if row.same_as}
    for letter in sorted(leaders, key=order):
        yield " = ".join(row.variant for row in rows if row.same_as == letter), leaders[letter]


def flows(views: Views) -> Iterator[tuple[str, Flow]]:
    """Yield the picture of each function, under the names of the variants that compute it."""
    comparison = views.comparison
    for title, variant in functions(comparison):
        settled, steps = settled_as(comparison, variant), walk.steps(comparison, variant)
        yield title, flow(comparison.problem, settled, comparison.traces[variant], steps, {})


def order(letter: str) -> tuple[int, str]:
    """Sort A to Z before AA."""
    return len(letter), letter


def walk_of(
    views: Views, variant: str, title: str, name: str, shown: Mapping[str, str], ways: Collection[Way]
) -> dict[str, Any]:
    """Return the walk through one variant.

    What `shown` has of the input, by its place, is not shown again, unless its columns part in none of the `ways` so
    far; W_o always stands where it is used.
    """
    comparison, settled = views.comparison, settled_as(views.comparison, variant)
    split = splitting(comparison.problem, settled, comparison.traces[variant])
    whole = tuple(parted(step, split) for step in walk.steps(comparison, variant))
    way = tuple(step.tables[0].parts for step in whole if walk.is_projection(step) and step.tables[0].parts)
    known = shown if not way or way in ways else {}
    steps = [step for step in whole if step.stage not in known or step.stage in walk.OUTWARD or not walk.is_input(step)]
    places = {**shown, **{step.stage: f"{name}-{step.stage}" for step in steps}}
    groups = [list(group) for _, group in groupby(steps, key=walk.beside)]
    panel = next((place for place, panel in enumerate(views.panels) if variant in panel.variants), "")
    told = sums(comparison, settled)
    return {
        "title": title,
        "variant": variant,
        "panel": panel,
        "way": way,
        "split": split,
        "steps": steps,
        "groups": groups,
        "sums": told,
        "places": places,
        "facts": facts(comparison, settled, comparison.traces[variant], bool(told))
        | {"wrong": " ".join(step.stage for step in steps if step.wrong)},
        "flow": flow(comparison.problem, settled, comparison.traces[variant], whole, places),
    }


def facts(comparison: Comparison, settled: Settled, trace: Trace, told: bool) -> dict[str, Any]:
    """Return what a page needs to say how a cell came about: `share` is how many query heads read the same keys.

    `extra` says whether more than keys take a share, `caps` by which bounds logits are bent, `pair` which rule makes
    scores that are no products, `sums` what a sum of values is, where it is `told`.
    """
    share = 1 if trace.q is None or trace.k is None else len(trace.q) // len(trace.k)
    mixed = "yes" if walk.is_mixed(comparison, settled.name) else ""
    name, past = settled.rules.normalizer.name, comparison.problem.past
    rules = settled.rules
    bounds = [rule.bound() for rule in rules.scores if type(rule).bend is not Score.bend]
    return {
        "sums": "" if not told else "context" if settled.output_projection else "output",
        "c": settled.multiplier, "normalizer": name, "share": share, "mixed": mixed, "past": past,
        "convention": settled.words["convention"],
        "extra": "yes" if any(rule.extra(0) is not None for rule in rules.scores) else "",
        "caps": "" if None in bounds or rules.bend_last else " ".join(map(str, bounds)),
        "pair": "" if rules.pairing is None else registry.name_of(rules.pairing),
    }  # fmt: skip


HTML = """\
{% from "tables.html" import matrix -%}
{% import "flow.html" as picture -%}
{% macro explain(step, place, written) -%}
<div class="step of-{{ step.stage|hue }}" id="{{ place }}" data-shape="{{ step.shape|join(" ") }}"{#
#}{{ " data-whole" if step.whole }}>
<h3><var>{{ step.explained.symbol }}</var> {{ step.stage|spoken }} <small>{{ step|shape }}</small></h3>
{% if step.explained.meaning %}<p>{{ step.explained.meaning }}{% if step.note %} <span class="note">{{ step.note }}{#
#}</span>{% endif %}</p>{% endif %}
{{ step.explained.mathml|safe }}
<div class="tables">{% if written %}{{ matrix(step.tables[0], step) }}{% endif %}</div>
{% if step.left_out %}<p class="note">{{ words.SHOWN.format(left_out=step.left_out) }}</p>{% endif %}
</div>
{%- endmacro -%}
<section id="{{ part.anchor }}" class="walk{{ " chosen" if not part.hidden }}" data-panel="{{ part.walk.panel }}"{#
#}{% for name, value in part.walk.facts.items() %} data-{{ name }}="{{ value }}"{% endfor %}>
<h2>{{ part.title }}</h2>
{% set why = data.live.plans[data.live.walks[part.place]] -%}
{% if why is string %}<p class="note">{{ words.NOT_CHANGED_HERE.format(why=why) }}</p>
{% endif -%}
{{ picture.draw(part.walk.flow, part.walk.title) }}
<div class="steps">
{% for group in part.walk.groups %}
<article{% if group|length > 1 %} class="side"{% endif %}>
{% for step in group %}{{ explain(step, part.walk.places[step.stage], not part.hidden) }}
{% endfor -%}
</article>
{% endfor %}
{% if part.walk.sums %}{% set sum = part.walk.sums[0] %}
<article class="sums-of">
<h3>{{ words.SUM_OF_VALUES }}</h3>
<ul class="sums">{% if not part.hidden %}
<li data-q="{{ sum.query }}" data-head="{{ sum.head }}"><span class="sum">{{ sum.name }}({{ sum.token }}) =
{%- for weight, key, place in sum.terms %} {% if not loop.first %}+ {% endif %}{#
#}<span class="{{ weight|share_class("term") }}" data-k="{{ place }}">{{ '%.2f' % weight }} v({{ key }})</span>{#
#}{% endfor %}
{%- if not sum.is_number %} {{ words.NAN_AS_WEIGHTS }}{% elif not sum.terms %} 0{% elif sum.rest %} {#
#}{{ words.OTHER_VALUES.format(rest='%.2f' % sum.rest) }}{% endif %}</span>
{%- if sum.result is not none %} <span class="result">= ({{ sum.result|numbers }})</span>{% endif %}</li>
{% endif %}</ul>
</article>
{% endif %}
</div>
</section>
"""

MARKDOWN = """\
## {{ part.title|md }}
{% for step in part.walk.steps %}
### {{ [step.explained.symbol, step.stage|spoken, step|shape]|select|join(' ')|md }}

{{ step.explained.meaning|md }} `{{ step.explained.formula }}`{% if step.note %} ({{ step.note|md }}){% endif %}

{% for table in step.tables %}
{%- if table.title %}
{{ table.title|md }}:

{% endif -%}
{{ table|markdown_table(step) }}

{% if table.parts %}
Columns, from the left: {% for whom, count in table.parts %}{#
#}{{ words.COLUMNS_FOR.format(count=count, whom=whom)|md }}{{ ", " if not loop.last else "." }}{% endfor %}


{% endif %}
{% endfor %}
{%- if step.left_out %}
{{ words.SHOWN.format(left_out=step.left_out) }}

{% endif %}
{%- endfor %}
{%- if part.walk.sums %}
### {{ words.SUM_OF_VALUES }}

{% for sum in part.walk.sums -%}
- {{ sum|written|md }}
{% endfor %}
{% endif %}
"""

SECTION = Section(place=60, parts=parts, html=HTML, markdown=MARKDOWN)
