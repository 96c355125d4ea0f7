"""What is wrong with a function of the user's own."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any, NamedTuple

from attn_exp import mistakes
from attn_exp.errors import NOT_VERIFIED, RIGHT, WRONG
from attn_exp.experiment.verdict import BROKEN, Stage, Verdict
from attn_exp.report import words
from attn_exp.report.sections.section import Material, Section

Matrix = tuple[tuple[str, ...], ...]
Marked = list[list[tuple[str, bool]]]
"""Cells with whether each differs from the one in its place on the other side."""


class Pair(NamedTuple):
    """One head of a stage: the function's own numbers, or none where they are not known, beside the right ones."""

    head: str
    mine: Marked
    right: Marked


def parts(material: Material) -> list[dict[str, Any]]:
    """Return what there is to say of functions of the user's own, if there are any."""
    verdicts = material.run.comparison.verdicts
    return [
        {"anchor": f"own-{place}", **story(variant, verdict)}
        for place, (variant, verdict) in enumerate(verdicts.items(), start=1)
    ]


def story(variant: str, verdict: Verdict) -> dict[str, Any]:
    """Return what there is to say of one function."""
    small = verdict.smallest
    return {
        "title": TITLES[verdict.outcome].format(variant=variant),
        "sentence": sentence(verdict),
        "named": [explained(name) for name in verdict.mistakes],
        "parting": "" if small is None else parting(small.stages),
        "broken": [(finding.rung, finding.said) for finding in verdict.findings if finding.state == BROKEN],
        "python": "" if small is None else small.python,
        "command": "" if small is None else small.command,
        "stages": [] if small is None else [(stage.name, stage.parts, pairs(stage)) for stage in small.stages],
    }


TITLES = {
    RIGHT: "Nothing is wrong with {variant}", WRONG: "What is wrong with {variant}",
    NOT_VERIFIED: "{variant} is not verified",
}  # fmt: skip


def sentence(verdict: Verdict) -> str:
    """Say what a function computes, or that it could not be called."""
    if verdict.uncalled:
        return f"The function {verdict.name} could not be called."
    if verdict.outcome == NOT_VERIFIED:
        return f"{verdict.name}: {'; '.join(verdict.not_verified) or verdict.reason.rstrip('.')}."
    if verdict.mistakes and verdict.is_wrong:
        names = f" {words.AND} ".join(verdict.mistakes)
        return words.MISTAKES_OF.format(name=verdict.name, names=names, several="s" * (len(verdict.mistakes) > 1))
    return f"The function {verdict.name} computes {verdict.computes.rstrip('.')}."


def explained(name: str) -> tuple[str, str, str]:
    """Return a mistake's name, what it does and its fix; of one that this version does not know, its name."""
    if name not in mistakes.names():
        return name, "", ""
    mistake = mistakes.mistake(name)
    return name, mistake.says, mistake.fix


def parting(stages: tuple[Stage, ...]) -> str:
    """Say at which stage the function first differs from the definition, as far as its stages are known."""
    first = next((stage for stage in stages if stage.parts), None)
    if first is None:
        return ""
    before = [stage for stage in stages[: stages.index(first)] if not stage.mine]
    ending = " at the latest; what it forms before is not known" if before else ""
    return f"On the smallest input that fails it first differs from the definition in the {first.name}{ending}."


def pairs(stage: Stage) -> list[Pair]:
    """Return the heads of a stage."""
    heads = list(zip_longest(stage.mine, stage.right, fillvalue=()))
    return [
        Pair(words.HEAD.format(number=number) if len(heads) > 1 else "", marked(mine, right), marked(right, mine))
        for number, (mine, right) in enumerate(heads, start=1)
    ]


def marked(cells: Matrix, others: Matrix) -> Marked:
    """Return cells with whether each differs from the one in its place on the other side, if there is another side."""
    if not others:
        return [[(cell, False) for cell in line] for line in cells]
    return [
        [(cell, cell != other) for cell, other in zip_longest(line, beside[: len(line)], fillvalue="")]
        for line, beside in zip_longest(cells, others[: len(cells)], fillvalue=())
    ]


HTML = """\
{% macro side(whose, name, head, lines) -%}
{% if lines %}<div class="scroll"><table class="plain {{ whose }}-side"><caption>{{ name }}{{ ", " ~ head if head }}{#
#}</caption>
<tbody>{% for line in lines %}<tr>{% for cell, differs in line %}<td>{% if differs %}<strong>{{ cell|minus }}{#
#}</strong>{% else %}{{ cell|minus }}{% endif %}</td>{% endfor %}</tr>{% endfor %}</tbody>
</table></div>{% endif %}
{%- endmacro -%}
<section id="{{ part.anchor }}">
<h2>{{ part.title }}</h2>
<p>{{ part.sentence|unbroken }}</p>
{% for name, says, fix in part.named %}<p><strong>{{ name }}</strong>{% if says %}: {{ says }} {#
#}{{ words.TO_MEND_IT }} <code>{{ fix }}</code>{% endif %}</p>
{% endfor -%}
{% if part.parting %}<p>{{ part.parting }}</p>{% endif %}
{% if part.broken %}<dl class="legend">{% for rung, said in part.broken %}<div><dt>{{ rung }}</dt><dd>{#
#}{{ said or words.DOES_NOT_HOLD }}</dd></div>{% endfor %}</dl>{% endif %}
{% if part.python %}
<h3>{{ words.SMALLEST_INPUT }}</h3>
<div class="scroll" tabindex="0" role="group" aria-label="{{ words.SMALLEST_INPUT }}"><pre>{{ part.python }}</pre>{#
#}</div>
{% if part.command %}<p>{{ words.SAME_IN_A_RUN }} <code>{{ part.command }}</code></p>{% endif %}
<div class="grid stages">
{% for name, parts, heads in part.stages %}
<article{% if parts %} class="parts"{% endif %}>
<h3>{{ name }}</h3>
{% for pair in heads %}<div class="tables">
{{ side("mine", words.MINE, pair.head, pair.mine) }}
{{ side("right", words.RIGHT, pair.head, pair.right) }}
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
- **{{ name|md }}**{% if says %}: {{ says|md }} {{ words.TO_MEND_IT }} {{ fix|code }}{% endif %}

{% endfor %}
{{ part.parting|md }}

{% for rung, said in part.broken -%}
- {{ rung|md }}: {{ (said or words.DOES_NOT_HOLD)|md }}
{% endfor %}

{% if part.python %}
### {{ words.SMALLEST_INPUT }}

{{ part.python|fenced }}

{% if part.command %}
{{ words.SAME_IN_A_RUN }}

{{ part.command|fenced }}
{% endif %}

{% for name, parts, heads in part.stages %}
{% for pair in heads %}
{{ [name, pair.head]|select|join(", ")|md }}{{ ", " ~ words.MINE_BESIDE_RIGHT if pair.mine }}:

{{ pair|beside|fenced }}

{% endfor %}
{% endfor %}
{% endif %}
"""

SECTION = Section(place=40, parts=parts, html=HTML, markdown=MARKDOWN)
