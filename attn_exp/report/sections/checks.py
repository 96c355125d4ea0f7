"""The findings of a run's checks: a sentence and a table for each check."""

from __future__ import annotations

from typing import Any

from attn_exp.experiment.row import readable_name
from attn_exp.report.sections.section import Material, Section
from attn_exp.report.sentences import finding_cells


def parts(material: Material) -> list[dict[str, Any]]:
    return [
        {
            "anchor": f"check-{finding.name}",
            "title": f"Check: {finding.name}",
            "head": [readable_name(name) for name in finding.columns],
            "lines": finding_cells(finding),
            "sentence": finding.sentence,
        }
        for finding in material.run.comparison.checks
    ]


HTML = """\
{% from "tables.html" import plain_table -%}
<section id="{{ part.anchor }}">
<h2>{{ part.title }}</h2>
<p>{{ part.sentence|unbroken }}</p>
{% if part.lines %}{{ plain_table(part.title, part.head, part.lines) }}{% endif %}
</section>
"""

MARKDOWN = """\
## {{ part.title|md }}

{{ part.sentence|md }}
{% if part.lines %}
{{ part.lines|piped(part.head) }}
{% endif %}"""

SECTION = Section(place=30, parts=parts, html=HTML, markdown=MARKDOWN)
