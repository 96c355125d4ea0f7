"""Published results compared with the computed ones."""

from __future__ import annotations

from typing import Any

from attn_exp.report.sections.section import Material, Section
from attn_exp.report.sentences import format_agreement, format_verdict


def parts(material: Material) -> list[dict[str, Any]]:
    agreements = material.run.comparison.published
    if not agreements:
        return []
    return [
        {
            "anchor": "published",
            "title": "Published results",
            "sentence": format_agreement(agreements),
            "agreements": agreements,
            "head": ("quantity", "printed", "computed", "largest difference", "tolerance", "agrees", "note"),
            "lines": [
                (each.quantity, each.printed, each.computed, *format_verdict(each), each.note) for each in agreements
            ],
        }
    ]


HTML = """\
<section id="{{ part.anchor }}">
<h2>{{ part.title }}</h2>
<p>{{ part.sentence }}</p>
<div class="scroll" tabindex="0" role="group" aria-label="All published results">
<table class="plain">
<thead><tr><th scope="col">quantity</th><th scope="col">agrees</th>{#
#}<th scope="col" class="number">largest difference</th><th scope="col" class="number">{#
#}tolerance</th><th scope="col">numbers and notes</th></tr></thead>
<tbody>
{% for each in part.agreements -%}
<tr class="{{ 'right' if each.agrees else 'wrong' }}"><th scope="row">{{ each.quantity }}</th><td class="word">{#
#}{{ each.agrees|short }}</td><td>{{ each.largest_difference|short }}</td><td>{{ each.tolerance|short }}</td>{#
#}<td class="words">{{ each.note }}<details><summary>printed and computed</summary><div class="tables">{#
#}<div class="scroll"><pre>{{ each.printed }}</pre></div><div class="scroll"><pre>{{ each.computed }}</pre></div>{#
#}</div></details></td></tr>
{% endfor -%}
</tbody>
</table>
</div>
</section>
"""

MARKDOWN = """\
## {{ part.title }}

{{ part.sentence|md }}

{{ part.lines|piped(part.head) }}
"""

SECTION = Section(place=20, parts=parts, html=HTML, markdown=MARKDOWN)
