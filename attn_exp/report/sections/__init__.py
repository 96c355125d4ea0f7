"""The sections of a report; each has its own file, and is found by the name of that file.

The file defines `SECTION = Section(...)`: the data of a run that the section shows, and its templates for the page and
for Markdown. A new file adds a section to both.
"""

from __future__ import annotations

from typing import Any

from attn_exp import registry
from attn_exp.report import sentences
from attn_exp.report.sections.section import Material, Section
from attn_exp.report.stages import is_random


def sections() -> dict[str, Section]:
    known = {name: registry.module(__name__, name).SECTION for name in registry.names(__path__, without=("section",))}
    return dict(sorted(known.items(), key=lambda named: (named[1].place, named[0])))


def templates_of(form: str) -> dict[str, str]:
    known = sections()
    if form == "markdown":
        place = {name: known[name].place_in_markdown or known[name].place for name in known}
        known = {name: known[name] for name in sorted(known, key=lambda name: (place[name], name))}
    texts = {f"sections/{name}.{form}": getattr(member, form) for name, member in known.items()}
    return {name: text for name, text in texts.items() if text}


TRAINED = """\
In a trained model, the first token, [CLS] and separators often take most of the weight, and a large weight does not \
explain the model's output."""


def contents(material: Material, templates: dict[str, str]) -> dict[str, Any]:
    run, known = material.run, sections()
    comparison, config = run.comparison, run.comparison.config
    tokens = sentences.describe_tokens(comparison.problem)
    return {
        "title": config.title or tokens.title,
        "sentence": sentences.lead(comparison)
        + " The weights come from random numbers and say nothing about the tokens."
        * any(is_random(stage, comparison) for stage in ("x", "W_q", "W_k")),
        "more": [
            *filter(None, [sentences.who_agrees(comparison.rows, comparison.steps, config.against), tokens.queries]),
            *sentences.why_letters_are_shared(comparison),
            *sentences.where_functions_part(comparison),
        ],
        "notes": [
            *config.notes,
            *[TRAINED] * (config.model.family is not None),
        ],
        "command": str(run.about.get("command", "")),
        "depth": config.report.depth,
        "parts": [
            {**part, "template": template}
            for template in templates
            for part in known[template.partition("/")[2].rpartition(".")[0]].parts(material)
        ],
    }
