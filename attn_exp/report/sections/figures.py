"""The figures of a report."""

from __future__ import annotations

from typing import Any

from attn_exp.report.sections.section import Material, Section


def parts(material: Material) -> list[dict[str, Any]]:
    return [{"anchor": "figures", "title": "Figures", "figures": material.figures}] if material.figures else []


HTML = """\
<section id="{{ part.anchor }}">
<h2>{{ part.title }}</h2>
<div class="plots">
{% for figure in part.figures %}<figure class="paper"><img src="{{ figure.source }}" alt="{{ figure.caption }}">{#
#}<figcaption>{{ figure.caption }}</figcaption></figure>
{% endfor -%}
</div>
</section>
"""

MARKDOWN = """\
## {{ part.title }}
{% for figure in part.figures %}

![{{ figure.caption|md }}]({{ figure.source }})
{%- endfor %}
"""

SECTION = Section(place=70, parts=parts, html=HTML, markdown=MARKDOWN, place_in_markdown=55)
