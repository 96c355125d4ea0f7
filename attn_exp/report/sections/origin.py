"""The provenance of a run."""

from __future__ import annotations

from typing import Any

from attn_exp.report import sentences
from attn_exp.report.sections.section import Material, Section


def parts(material: Material) -> list[dict[str, Any]]:
    return [{"anchor": "origin", "title": "Provenance", "origin": list(sentences.origin(material.run.about))}]


HTML = """\
<section id="{{ part.anchor }}">
<details class="glossary"><summary><h2>{{ part.title }}</h2></summary>
<dl class="origin">{% for name, value in part.origin %}<div><dt>{{ name }}</dt><dd>{{ value }}</dd></div>
{% endfor %}</dl>
</details>
</section>
"""

MARKDOWN = """\
## {{ part.title }}

{% for name, value in part.origin -%}
- {{ name|md }}: {{ value|md }}
{% endfor %}
"""

SECTION = Section(place=80, parts=parts, html=HTML, markdown=MARKDOWN)
