"""The verdict on the user's own functions."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from attn_exp import mistakes
from attn_exp.errors import NOT_VERIFIED, RIGHT, WRONG
from attn_exp.report.sections.section import Material, Section

if TYPE_CHECKING:
    from attn_exp.experiment.verdict import Stage, Verdict

Matrix = tuple[tuple[str, ...], ...]


class Pair(NamedTuple):
    """One head of a stage: the numbers of the user's function, if known, and the expected numbers."""

    head: str
    mine: Matrix
    right: Matrix


def parts(material: Material) -> list[dict[str, Any]]:
    verdicts = material.run.comparison.verdicts
    return [
        {"anchor": f"own-{place}", **make_part(variant, verdict)}
        for place, (variant, verdict) in enumerate(verdicts.items(), start=1)
    ]


def make_part(variant: str, verdict: Verdict) -> dict[str, Any]:
    example = verdict.smallest
    return {
        "title": TITLES[verdict.outcome].format(variant=variant),
        "sentence": verdict_sentence(verdict),
        "named": [mistake_texts(name) for name in verdict.mistakes],
        "parting": "" if example is None else describe_first_difference(example.stages),
        "broken": [(finding.question, finding.message) for finding in verdict.findings if finding.state == "broken"],
        "python": "" if example is None else example.python,
        "stages": [] if example is None else [(stage.name, stage.parts, pair_heads(stage)) for stage in example.stages],
    }


TITLES = {
    RIGHT: "Nothing is wrong with {variant}", WRONG: "What is wrong with {variant}",
    NOT_VERIFIED: "{variant} is not verified",
}  # fmt: skip


def verdict_sentence(verdict: Verdict) -> str:
    if verdict.uncalled:
        return f"The function {verdict.name} could not be called."
    if verdict.outcome == NOT_VERIFIED:
        return f"{verdict.name}: {'; '.join(verdict.not_verified) or verdict.reason.rstrip('.')}."
    if verdict.mistakes and verdict.is_wrong:
        plural = "s" if len(verdict.mistakes) > 1 else ""
        return f"The function {verdict.name} makes the mistake{plural} {' and '.join(verdict.mistakes)}."
    return f"The function {verdict.name} computes {verdict.computes.rstrip('.')}."


def mistake_texts(name: str) -> tuple[str, str, str]:
    if name not in mistakes.names():
        return name, "", ""
    mistake = mistakes.mistake(name)
    return name, mistake.says, mistake.fix


def describe_first_difference(stages: tuple[Stage, ...]) -> str:
    """Return a sentence on the stage at which the function first differs from the definition; empty if unknown."""
    first = next((stage for stage in stages if stage.parts), None)
    if first is None:
        return ""
    unknown_before = [stage for stage in stages[: stages.index(first)] if not stage.mine]
    ending = " at the latest; its earlier stages are not known" if unknown_before else ""
    return f"On the smallest input that fails, it first differs from the definition in the {first.name}{ending}."


def pair_heads(stage: Stage) -> list[Pair]:
    heads = list(zip_longest(stage.mine, stage.right, fillvalue=()))
    return [Pair(f"head {head + 1}" if len(heads) > 1 else "", *both) for head, both in enumerate(heads)]


HTML = """\
{% macro side(name, pair, lines, others) -%}
{% if lines %}<div class="scroll"><table class="plain {{ name }}-side"><caption>{#
#}{{ name }}{{ ", " ~ pair.head if pair.head }}</caption>
<tbody>{% for line in lines %}<tr>{% set other = others[loop.index0]|default(()) %}{% for cell in line %}<td>{#
#}{% if others and cell != other[loop.index0]|default("") %}<strong>{{ cell|minus }}</strong>{#
#}{% else %}{{ cell|minus }}{% endif %}</td>{% endfor %}</tr>{% endfor %}</tbody>
</table></div>{% endif %}
{%- endmacro -%}
<section id="{{ part.anchor }}">
<h2>{{ part.title }}</h2>
<p>{{ part.sentence|unbroken }}</p>
{% for name, says, fix in part.named %}<p><strong>{{ name }}</strong>{% if says %}: {{ says }} {#
#}Fix: <code>{{ fix }}</code>{% endif %}</p>
{% endfor -%}
{% if part.parting %}<p>{{ part.parting }}</p>{% endif %}
{% if part.broken %}<dl class="legend">{% for question, message in part.broken %}<div><dt>{{ question }}</dt><dd>{#
#}{{ message or "does not hold" }}</dd></div>{% endfor %}</dl>{% endif %}
{% if part.python %}
<h3>The smallest input that fails</h3>
<div class="scroll" tabindex="0" role="group" aria-label="The smallest input that fails"><pre>{{ part.python }}</pre>{#
#}</div>
<div class="grid stages">
{% for name, parts, heads in part.stages %}
<article{% if parts %} class="parts"{% endif %}>
<h3>{{ name }}</h3>
{% for pair in heads %}<div class="tables">
{{ side("mine", pair, pair.mine, pair.right) }}
{{ side("right", pair, pair.right, pair.mine) }}
</div>
{% endfor -%}
</article>
{% endfor -%}
</div>
{% endif %}
</section>
"""

MARKDOWN = """\
## {{ part.title|md }}

{{ part.sentence|md }}

{% for name, says, fix in part.named %}
- **{{ name|md }}**{% if says %}: {{ says|md }} Fix: {{ fix|code }}{% endif %}

{% endfor %}
{{ part.parting|md }}

{% for question, message in part.broken -%}
- {{ question|md }}: {{ (message or "does not hold")|md }}
{% endfor %}

{% if part.python %}
### The smallest input that fails

{{ part.python|fenced }}

{% for name, parts, heads in part.stages %}
{% for pair in heads %}
{% for side, lines in (("mine", pair.mine), ("right", pair.right)) if lines %}
{{ [name, pair.head, side]|select|join(", ")|md }}:

{{ lines|aligned|fenced }}

{% endfor %}
{% endfor %}
{% endfor %}
{% endif %}
"""

SECTION = Section(place=40, parts=parts, html=HTML, markdown=MARKDOWN)
