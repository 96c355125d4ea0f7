"""Walks from the input to the output: one for each group of variants that compute the same function.

`make_walks` makes the walks once per report, as mappings. `parts` adds what only the page needs: the groups of steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from attn_exp import registry
from attn_exp.experiment.row import Comparison, find_settled
from attn_exp.experiment.variant import Settled
from attn_exp.problem.problem import Problem
from attn_exp.report import walk
from attn_exp.report.flow import (
    Flow,
    describe_splitting,
    label_parts,
    lay_out_flow,
    show_columns_by_head,
    show_rows_by_head,
)
from attn_exp.report.page_data import FEW, MANY_TOKENS, cut_to_page
from attn_exp.report.sections.section import Material, Section
from attn_exp.report.sentences import rows_by_letter
from attn_exp.report.views import Colours, Views, colours
from attn_exp.rules.scores.score import Score


def parts(material: Material) -> list[dict[str, Any]]:
    scale, problem = colours(material.views), material.views.comparison.problem
    return [
        {
            "anchor": f"walk-{index + 1}",
            "title": f"{each['title']}, step by step",
            "place": index,
            "nav": "Step by step",
            "hidden": index > 0,
            "walk": {**each, "groups": group_steps(each, scale, problem)},
        }
        for index, each in enumerate(material.walks)
    ]


def group_steps(walk_values: Mapping[str, Any], scale: Colours, problem: Problem) -> list[list[walk.Step]]:
    """Return the steps of a walk as a page shows them, in groups that stand side by side.

    Weights have the same colours as on the maps. Wide projections are shown head by head, and long vectors are cut.
    """
    most_numbers, split = FEW if len(problem.tokens) > MANY_TOKENS else walk.SIDE, walk_values["split"]

    def cut_step(step: walk.Step) -> walk.Step:
        if step.stage in problem.projections:
            step = show_columns_by_head(step, split, problem.projections[step.stage], most_numbers)
        if step.stage == "W_o":
            step = show_rows_by_head(step, split.heads, problem.projections["W_o"], most_numbers)
        if step.stage == "weights":
            step = step._replace(largest=scale.top, power=scale.power)
        return cut_to_page(step, most_numbers)

    return [list(map(cut_step, group)) for _, group in groupby(walk_values["steps"], key=walk.group_name)]


def make_walks(views: Views) -> list[dict[str, Any]]:
    """Return one walk for each group of variants that compute the same function.

    `new` has the steps that report.md shows. It leaves out x, the memory and projections if an earlier walk has them.
    A projection is shown again if its columns are split into heads differently. W_o and b_o are always shown.
    """
    walks, shown_before = list[dict[str, Any]](), set[Any]()
    for number, (title, variant) in enumerate(list_functions(views.comparison), start=1):
        values = make_walk(views, variant, title, f"walk-{number}")
        steps = values["steps"]
        values["new"] = [
            step
            for step in steps
            if (step.stage, step.tables[0].parts) not in shown_before or step.stage in walk.OUTWARD
        ]
        walks.append(values)
        inputs = [step for step in steps if step.stage in ("x", "memory") or walk.is_projection(step)]
        # also without the labels of heads: a projection is not shown again only because these are missing
        shown_before |= {(step.stage, parts) for step in inputs for parts in {step.tables[0].parts, ()}}
    return walks


def list_functions(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Yield a title such as `looped = matrix` and the first variant, for each group that computes the same function."""
    for rows in rows_by_letter(comparison.rows):
        yield " = ".join(row.variant for row in rows), rows[0].variant


def make_flows(views: Views) -> Iterator[tuple[str, Flow]]:
    comparison = views.comparison
    for title, variant in list_functions(comparison):
        settled, steps = find_settled(comparison, variant), walk.steps(comparison, variant)
        yield title, lay_out_flow(comparison.problem, settled, comparison.traces[variant], steps, {})


def make_walk(views: Views, variant: str, title: str, anchor: str) -> dict[str, Any]:
    comparison, settled = views.comparison, find_settled(views.comparison, variant)
    trace = comparison.traces[variant]
    split = describe_splitting(comparison.problem, settled, trace)
    steps = [label_parts(step, split) for step in walk.steps(comparison, variant)]
    addresses = {step.stage: f"{anchor}-{step.stage}" for step in steps}
    return {
        "title": title,
        "variant": variant,
        "panel": next((index for index, panel in enumerate(views.panels) if variant in panel.variants), ""),
        "split": split,
        "steps": steps,
        "sums": walk.format_sums(comparison, settled),
        "places": addresses,
        "facts": list_facts(comparison, settled) | {"wrong": " ".join(step.stage for step in steps if step.wrong)},
        "flow": lay_out_flow(comparison.problem, settled, trace, steps, addresses),
    }


def list_facts(comparison: Comparison, settled: Settled) -> dict[str, Any]:
    """Return the facts that a page needs to explain how a cell was computed.

    - `sums`: the stage that is a sum of values.
    - `c`: the multiplier of the scores.
    - `share`: the number of query heads per key head.
    - `mixed`: whether W_o is applied.
    - `extra`: whether something other than keys gets weight.
    - `caps`: the bounds of capped logits.
    - `pair`: the rule that computes scores, if they are not products.
    """
    trace, rules = comparison.traces[settled.name], settled.rules
    bounds = [rule.bound() for rule in rules.scores if type(rule).bend is not Score.bend]
    return {
        "sums": "context" if settled.output_projection else "output",
        "c": settled.multiplier,
        "normalizer": rules.normalizer.name,
        "share": 1 if trace.q is None or trace.k is None else len(trace.q) // len(trace.k),
        "mixed": "yes" if walk.is_mixed(comparison, settled.name) else "",
        "past": comparison.problem.past,
        "convention": settled.words["convention"],
        "extra": "yes" if any(rule.extra(0) is not None for rule in rules.scores) else "",
        "caps": "" if None in bounds or rules.bend_last else " ".join(map(str, bounds)),
        "pair": "" if rules.pairing is None else registry.name_of(rules.pairing),
    }


HTML = """\
{% from "matrices.html" import matrix -%}
{% import "flow.html" as picture -%}
{% macro explain(step, place, written) -%}
<div class="step of-{{ step.stage|hue }}" id="{{ place }}" data-shape="{{ step.shape|join(" ") }}"{#
#}{{ " data-whole" if step.is_exact }}>
<h3><var>{{ step.explained.symbol }}</var> {{ step.stage|spoken }} <small>{{ step|shape }}</small></h3>
{% if step.explained.meaning %}<p>{{ step.explained.meaning }}{% if step.note %} <span class="note">{{ step.note }}{#
#}</span>{% endif %}</p>{% endif %}
{{ step.explained.mathml|safe }}
<div class="tables">{% if written %}{{ matrix(step.tables[0], step) }}{% endif %}</div>
</div>
{%- endmacro -%}
<section id="{{ part.anchor }}" class="walk{{ " chosen" if not part.hidden }}" data-panel="{{ part.walk.panel }}"{#
#}{% for name, value in part.walk.facts.items() %} data-{{ name }}="{{ value }}"{% endfor %}>
<h2>{{ part.title }}</h2>
{% set why = data.live.plans[data.live.walks[part.place]] -%}
{% if why is string %}<p class="note">Numbers cannot be changed here: {{ why }}.</p>
{% endif -%}
{{ picture.draw(part.walk.flow, part.walk.title) }}
<div class="steps">
{% for group in part.walk.groups %}
<article{% if group|length > 1 %} class="side"{% endif %}>
{% for step in group %}{{ explain(step, part.walk.places[step.stage], not part.hidden) }}
{% endfor -%}
</article>
{% endfor %}
{% if part.walk.sums %}
<article class="sums-of">
<h3>Each token as a sum of values</h3>
<ul class="sums">{% if not part.hidden %}<li data-q="0" data-head="0"><span class="sum">{{ part.walk.sums[0] }}</span>{#
#}</li>{% endif %}</ul>
</article>
{% endif %}
</div>
</section>
"""

MARKDOWN = """\
## {{ part.title|md }}
{% for step in part.walk.new %}
### {{ [step.explained.symbol, step.stage|spoken, step|shape]|select|join(' ')|md }}

{{ step.explained.meaning|md }} `{{ step.explained.formula }}`{% if step.note %} ({{ step.note|md }}){% endif %}

{% for table in step.tables %}
{%- if table.title %}
{{ table.title|md }}:

{% endif -%}
{{ table|markdown_table(step) }}

{% if table.parts %}
Columns, from the left: {% for whom, count in table.parts %}{#
#}{{ count }} for {{ whom|md }}{{ ", " if not loop.last else "." }}{% endfor %}


{% endif %}
{% endfor %}
{%- if step.left_out %}
Shown: {{ step.left_out }}; results.npz has all of them.

{% endif %}
{%- endfor %}
{%- if part.walk.sums %}
### Each token as a sum of values

{% for sum in part.walk.sums -%}
- {{ sum|md }}
{% endfor %}
{% endif %}
"""

SECTION = Section(place=10, parts=parts, html=HTML, markdown=MARKDOWN, place_in_markdown=60)
