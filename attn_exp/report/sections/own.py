"""What is wrong with a function of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from attn_exp import mistakes
from attn_exp.experiment.verdict import BROKEN, Cells, Stage, Verdict
from attn_exp.report import words
from attn_exp.report.sections.section import Material, Section


class Pair(NamedTuple):
    """One head of a stage: the function's own numbers, where they are known, beside the right ones.

    A cell is its text and whether it differs from the other side's.
    """

    head: str
    mine: tuple[tuple[tuple[str, bool], ...], ...]
    right: tuple[tuple[tuple[str, bool], ...], ...]


class Story(NamedTuple):
    """What the report says of one function."""

    title: str
    sentence: str
    named: tuple[tuple[str, str, str], ...]
    parting: str
    broken: tuple[tuple[str, str], ...]
    python: str
    command: str
    stages: tuple[tuple[str, bool, tuple[Pair, ...]], ...]


def stories(verdicts: Mapping[str, Verdict]) -> list[Story]:
    """Return what there is to say of each function, by variant."""
    return [one(variant, verdict) for variant, verdict in verdicts.items()]


def one(variant: str, verdict: Verdict) -> Story:
    """Return what there is to say of one function."""
    small = verdict.smallest
    return Story(
        title=("Nothing is wrong with {variant}" if verdict.passed else "What is wrong with {variant}").format(
            variant=variant
        ),
        sentence=f"{verdict.name} computes {computed(verdict)}.",
        named=tuple(explained(name) for name in verdict.mistakes),
        parting="" if small is None else parting(small.stages),
        broken=tuple((finding.rung, finding.said) for finding in verdict.findings if finding.state == BROKEN),
        python="" if small is None else small.python,
        command="" if small is None else small.command,
        stages=() if small is None else tuple((stage.name, stage.parts, pairs(stage)) for stage in small.stages),
    )


def computed(verdict: Verdict) -> str:
    """Say what a function computes; its mistakes, which are explained below, by their names alone."""
    if verdict.mistakes and not verdict.passed:
        return "attention with {mistakes}".format(mistakes=f" {words.AND} ".join(verdict.mistakes))
    return verdict.computes.rstrip(".")


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
    return (
        "It first differs from the definition in the {stage} at the latest; what it forms before is not known."
        if before
        else "It first differs from the definition in the {stage}."
    ).format(stage=first.name)


def pairs(stage: Stage) -> tuple[Pair, ...]:
    """Return the heads of a stage, own beside right; both alike where the function's own are not known."""
    count = max(len(stage.right), len(stage.mine))
    return tuple(
        Pair(
            words.HEAD.format(number=head + 1) if count > 1 else "",
            marked(at(stage.mine, head), at(stage.right, head)),
            marked(at(stage.right, head), at(stage.mine, head)),
        )
        for head in range(count)
    )


def at(matrices: Cells, head: int) -> tuple[tuple[str, ...], ...]:
    return matrices[head] if head < len(matrices) else ()


def marked(
    cells: tuple[tuple[str, ...], ...], others: tuple[tuple[str, ...], ...]
) -> tuple[tuple[tuple[str, bool], ...], ...]:
    """Return cells with whether each differs from the one in its place on the other side."""
    return tuple(
        tuple((cell, bool(others) and other(others, row, column) != cell) for column, cell in enumerate(line))
        for row, line in enumerate(cells)
    )


def other(cells: tuple[tuple[str, ...], ...], row: int, column: int) -> str:
    return cells[row][column] if row < len(cells) and column < len(cells[row]) else ""


def parts(material: Material) -> list[dict[str, Any]]:
    """Return what there is to say of functions of the user's own, if there are any."""
    verdicts = material.run.comparison.verdicts
    return [{"anchor": f"own-{place}", **story._asdict()} for place, story in enumerate(stories(verdicts), start=1)]


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
<p>{{ words.SAME_IN_A_RUN }} <code>{{ part.command }}</code></p>
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

{{ words.SAME_IN_A_RUN }}

{{ part.command|fenced }}

{% for name, parts, heads in part.stages %}
{% for pair in heads %}
{{ [name, pair.head]|select|join(", ")|md }}{{ ", " ~ words.MINE_BESIDE_RIGHT if pair.mine }}:

{{ pair|beside|fenced }}

{% endfor %}
{% endfor %}
{% endif %}
"""

SECTION = Section(place=40, parts=parts, html=HTML, markdown=MARKDOWN)
