"""The comparison: a table of the columns that differ between variants, and a list of the values that all share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from attn_exp.experiment.row import Column, Comparison, Row, Timing, read_columns
from attn_exp.report.escapes import brief, kinds
from attn_exp.report.sections.section import Material, Section

COLUMNS = read_columns(Row, Timing)
COLUMNS["median_s"] = COLUMNS["median_s"]._replace(name="median ms", unit="ms")


class Table(NamedTuple):
    """The comparison as text.

    `head`, `lines`: the columns that differ between variants, and a line per variant.
    `shared`: the columns with the same value in all variants, each with this value.
    """

    head: tuple[Column, ...]
    lines: tuple[tuple[str, ...], ...]
    shared: tuple[tuple[Column, str], ...]

    def part(self, aside: bool) -> Table:
        """Return a table of the columns that a page always shows, or of all other columns if `aside`.

        Both begin with the names of the variants.
        """
        return self.select_columns(
            [0, *(index for index, head in enumerate(self.head) if index and ("page" in head.shown) != aside)]
        )

    @property
    def kinds(self) -> list[str]:
        """The CSS classes of each column: its kind, and `deep` if the depth `reading` leaves it out."""
        return [f"{kind} deep" if head.deep else kind for kind, head in zip(kinds(self.lines), self.head, strict=True)]

    def at_depth(self, depth: str) -> Table:
        if depth == "all":
            return self
        table = self.select_columns([index for index, head in enumerate(self.head) if not head.deep])
        return table._replace(shared=tuple((column, value) for column, value in self.shared if not column.deep))

    def select_columns(self, indices: Sequence[int]) -> Table:
        lines = tuple(tuple(line[index] for index in indices) for line in self.lines)
        return Table(tuple(self.head[index] for index in indices), lines, self.shared)


def make_table(comparison: Comparison, timings: Sequence[Timing]) -> Table:
    """Return the comparison as a table; times are in it if `timings` has them."""
    costs = {timing.variant: format_cost(timing) for timing in timings}
    values = [
        {field.name: brief(getattr(row, field.name)) for field in fields(Row)} | costs.get(row.variant, {})
        for row in comparison.rows
    ]
    computed = [name for name in COLUMNS if name in values[0]]
    differing = [
        name for name in computed if "page" in COLUMNS[name].shown or len({line.get(name, "") for line in values}) > 1
    ]
    # kv_head says nothing new if every row has as many key/value heads as query heads
    differing = [name for name in differing if name != "kv_head" or any(line[name] != line["head"] for line in values)]
    shared = [name for name in computed if name not in (*differing, "kv_head") and values[0][name] not in ("", "none")]
    return Table(
        tuple(COLUMNS[name] for name in differing),
        tuple(tuple(line.get(name, "") for name in differing) for line in values),
        tuple((COLUMNS[name], values[0][name]) for name in shared),
    )


def format_cost(timing: Timing) -> dict[str, Any]:
    peak = "" if timing.peak_bytes is None else str(timing.peak_bytes)
    return {"median_s": brief(1e3 * timing.median_s), "runs": str(timing.runs), "peak_bytes": peak}


def parts(material: Material) -> list[dict[str, Any]]:
    comparison = make_table(material.run.comparison, material.run.timings)
    return [{"anchor": "comparison", "title": "Comparison", "table": comparison}]


HTML = """\
{% from "macros.html" import at_depths, depth_button with context -%}
{% from "tables.html" import body -%}
{% macro marked(column) -%}
{% if not column.fixed %} data-column="{{ column.key }}"{% endif %}
{%- endmacro -%}
{% macro shared(table) -%}
{% for column, value in table.shared %}{{ ", " if not loop.first }}{{ column.title }} {#
#}{% if column.fixed %}{{ value|minus }}{% else %}<span{{ marked(column) }}>{{ value|minus }}</span>{% endif %}{#
#}{% endfor %}
{%- endmacro -%}
{% macro heads(table) -%}
{{ table.head[1:]|map(attribute="title")|join(", ") }}
{%- endmacro -%}
{% macro compared(table, label) -%}
{% set kinds = table.kinds -%}
<div class="scroll" tabindex="0" role="group" aria-label="{{ label }}">
<table class="plain">
<thead><tr>{% for head in table.head %}<th scope="col" class="{{ kinds[loop.index0] }}"{{ marked(head) }}>{#
#}{% if head.meaning %}<abbr tabindex="0" title="{{ head.meaning }}">{{ head.name }}</abbr>{#
#}{% else %}{{ head.name }}{% endif %}{#
#}{% if head.small %} <small>{{ head.small }}</small>{% endif %}</th>{% endfor %}</tr></thead>
{{ body(table.lines, kinds) }}
</table>
</div>
{%- endmacro -%}
<section id="{{ part.anchor }}">
<h2>{{ part.title }}</h2>
{{ depth_button(depth) }}
{{ compared(part.table.part(false), "All variants") }}
{% set more, brief = part.table.part(true), part.table.at_depth("reading") -%}
{% if part.table.shared %}<p class="note{{ " deep" if not brief.shared }}">The same for all: {#
#}{{ at_depths(shared(part.table), shared(brief)) }}.</p>{% endif %}
{% set brief_more = brief.part(true) -%}
{% if more.head|length > 1 %}<details class="more{{ " deep" if brief_more.head|length == 1 }}"><summary>{#
#}More columns: {{ at_depths(heads(more), heads(brief_more)) }}</summary>
{{ compared(more, "All variants, more columns") }}
</details>
{% endif -%}
<details class="glossary"><summary>What the columns mean</summary>
<dl class="legend">{% for head in part.table.head if head.meaning %}<div{% if head.deep %} class="deep"{% endif %}>{#
#}<dt>{{ head.title }}</dt><dd>{{ head.meaning }}</dd></div>{% endfor %}</dl>
</details>
</section>
"""

MARKDOWN = """\
## {{ part.title }}

{% set comparison = part.table.at_depth(depth) -%}
{{ comparison.lines|piped(comparison.head|map(attribute="title")|list) }}

{% if comparison.shared -%}
The same for all: {% for column, value in comparison.shared %}{{ column.title|md }} {{ value|md }}{#
#}{{ ", " if not loop.last else "." }}{% endfor %}

{% endif -%}
{% for head in comparison.head if head.meaning -%}
- **{{ head.title|md }}**: {{ head.meaning|md }}
{% endfor %}
"""

SECTION = Section(place=18, parts=parts, html=HTML, markdown=MARKDOWN, place_in_markdown=10)
