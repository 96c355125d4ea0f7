"""Why rows differ: a ladder that changes one setting per step, with the weights and the output after each step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from attn_exp.experiment.row import Comparison, Row, Step, find_settled
from attn_exp.forms.trace import Trace
from attn_exp.report import walk
from attn_exp.report.escapes import brief
from attn_exp.report.sections.section import Material, Section
from attn_exp.report.sections.weights import Drawn, draw_picture
from attn_exp.report.sentences import changes_output, format_range, listed
from attn_exp.report.views import Colours, colours

SMALL, WIDE = 6, 8
"""Outputs with at most this many rows and columns are shown as tables of numbers, larger ones as pictures."""

MOST_HEADS = 4


def parts(material: Material) -> list[dict[str, Any]]:
    comparison = material.run.comparison
    scale = colours(material.views)
    ladders = [make_ladder(comparison, rows, steps, scale) for rows, steps in group_steps(comparison)]
    return [{"anchor": "steps", "title": "One change at a time", "ladders": ladders}] if ladders else []


def group_steps(comparison: Comparison) -> Iterator[tuple[list[Row], list[Step]]]:
    """Yield the rows in groups, each with the steps that lead to all of its rows.

    A step that only changes the form is left out if it does not change the output. A row is left out if no step to it
    changes the output.
    """
    groups: dict[tuple[Any, ...], tuple[list[Row], list[Step]]] = {}
    for row in comparison.rows:
        row_steps = [step for step in comparison.steps if step.variant == row.variant]
        shown_steps = [step for step in row_steps if step.setting != "form" or changes_output(step, row_steps)]
        if any(changes_output(step, row_steps) for step in row_steps):
            key = (row.same_as, *((step.setting, step.after) for step in shown_steps))
            groups.setdefault(key, ([], shown_steps))[0].append(row)
    yield from groups.values()


def make_ladder(comparison: Comparison, rows: Sequence[Row], steps: Sequence[Step], scale: Colours) -> dict[str, Any]:
    start, max_diff = steps[0].against, rows[0].max_diff
    traces = [comparison.traces[start], *(trace_of(comparison, step) for step in steps)]
    outputs = [trace.output for trace in traces if trace.output is not None]
    largest_number = max((float(np.abs(array[np.isfinite(array)]).max(initial=0.0)) for array in outputs), default=0.0)
    largest_change = max((step.moved for step in steps if math.isfinite(step.moved)), default=0.0)
    arrays = [tuple(draw_arrays(comparison, rows[0].variant, trace, scale, largest_number)) for trace in traces]
    first_rung = {"title": start, "moved": "", "note": "", "share": 0.0, "arrays": arrays[0]}
    other_rungs = [
        make_rung(step, largest_change, rung_arrays) for step, rung_arrays in zip(steps, arrays[1:], strict=True)
    ]
    variants = listed([row.variant for row in rows])
    difference = "" if math.isnan(max_diff) else brief(max_diff)
    return {"start": start, "ends": variants, "far": difference, "rungs": [first_rung, *other_rungs]}


def make_rung(step: Step, largest_change: float, arrays: tuple[Drawn, ...]) -> dict[str, Any]:
    """Return the data of one step: the change, its effect in words and as a share of the largest, and its arrays."""
    share = step.moved / largest_change if largest_change and math.isfinite(step.moved) else 0.0
    if math.isnan(step.moved):
        effect = "changes the shape of the output"
    else:
        effect = (
            f"changes the output by up to {brief(step.moved)}"
            if step.moved > 1e-12 * largest_change
            else "changes nothing"
        )
    notes = [*filter(None, [format_range(step), step.note, f"this is the variant {step.row}" if step.row else ""])]
    return {"title": step.change, "moved": effect, "note": "; ".join(notes), "share": share, "arrays": arrays}


def trace_of(comparison: Comparison, step: Step) -> Trace:
    return comparison.traces[step.row] if step.row else comparison.rungs.get((step.variant, step.step), Trace())


def draw_arrays(
    comparison: Comparison, variant: str, trace: Trace, scale: Colours, largest_number: float
) -> Iterator[Drawn]:
    heads = () if trace.weights is None else tuple(trace.weights)
    for number, matrix in enumerate(heads[:MOST_HEADS], start=1):
        title = "weights" if len(heads) == 1 else f"head {number}"
        # the last head shown says how many there are
        title += f" of {len(heads)}" if len(heads) > MOST_HEADS == number else ""
        yield draw_picture(title, matrix, scale)
    if trace.output is not None:
        rows, columns = trace.output.shape
        if rows <= SMALL and columns <= WIDE:
            step = walk.make_step("output", trace.output, comparison, find_settled(comparison, variant))
            yield Drawn("output", step._replace(largest=largest_number))
        else:
            yield draw_picture("output", np.abs(trace.output), Colours(largest_number or 1.0, 1.0))


HTML = """\
{% from "matrices.html" import draw -%}
<section id="{{ part.anchor }}">
<h2>{{ part.title }}</h2>
<p>One setting at a time is changed from one variant to another. Each step shows how much it changes the output: {#
#}the largest change in any of its numbers. Steps need not add up: one may undo part of another.</p>
{% for ladder in part.ladders %}{% if loop.first %}<article>{% else %}<details class="more"><summary>{% endif %}
<h3>{{ ladder.start }} → {{ ladder.ends }}{% if ladder.far %} <small>differ by up to {{ ladder.far|minus }}</small>{#
#}{% endif %}</h3>{% if not loop.first %}</summary>{% endif %}

<ol class="rungs">
{% for rung in ladder.rungs %}<li>
<p><strong>{{ rung.title }}</strong></p>
{% if rung.moved %}<p class="{{ rung.share|share_class("bar") }}">{{ rung.moved|unbroken }}</p>{% endif %}
{% if rung.note %}<p class="note">{{ rung.note|unbroken }}</p>{% endif %}
<div class="tables">
{% for drawn in rung.arrays %}{{ draw(drawn, drawn.title ~ ", " ~ rung.title) }}
{% endfor -%}
</div>
</li>
{% endfor -%}
</ol>
{{ "</article>"|safe if loop.first else "</details>"|safe }}
{% endfor -%}
</section>
"""

MARKDOWN = """\
## {{ part.title }}

{% for ladder in part.ladders %}
{% for rung in ladder.rungs -%}
{% if loop.first %}From {{ rung.title|md }} to {{ ladder.ends|md }}:

{% else -%}
- {{ rung.title|md }}: {{ rung.moved|md }}{% if rung.note %} ({{ rung.note|md }}){% endif %}

{% endif -%}
{% endfor %}
{% endfor %}
"""

SECTION = Section(place=15, parts=parts, html=HTML, markdown=MARKDOWN)
