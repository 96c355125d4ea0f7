"""The sections of a report; each has its own file, and is found by the name of that file.

The file defines `SECTION = Section(...)`: the data of a run that the section shows, and its templates for the page and
for Markdown. A new file adds a section to both.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from attn_exp import registry
from attn_exp.report import sentences
from attn_exp.report.sections.section import Material, Section
from attn_exp.report.stages import is_random


def sections() -> dict[str, Section]:
    members = {name: registry.module(__name__, name).SECTION for name in registry.names(__path__, without=("section",))}
    return dict(sorted(members.items(), key=lambda item: (item[1].place, item[0])))


def templates_of(form: str) -> dict[str, str]:
    """Return the templates of the sections by name, such as `sections/walks.html`, in the order of the report.

    `form` is `html` or `markdown`; report.md may have another order.
    """
    members = sections()
    if form == "markdown":
        members = dict(sorted(members.items(), key=lambda item: (item[1].place_in_markdown or item[1].place, item[0])))
    templates = {f"sections/{name}.{form}": getattr(member, form) for name, member in members.items()}
    return {name: template for name, template in templates.items() if template}


RANDOM = " The weights come from random numbers and say nothing about the tokens."

TRAINED = """\
In a trained model, the first token, [CLS] and separators often take most of the weight, and a large weight does not \
explain the model's output."""


def contents(material: Material, templates: Iterable[str]) -> dict[str, Any]:
    """Return the variables of the template of a report; the parts of all sections are ordered as `templates`."""
    run, members = material.run, sections()
    comparison, config = run.comparison, run.comparison.config
    tokens = sentences.describe_tokens(comparison.problem)
    groups = sentences.describe_groups(comparison.rows, comparison.steps, config.against)
    warning = RANDOM if any(is_random(stage, comparison) for stage in ("x", "W_q", "W_k")) else ""
    return {
        "title": config.title or tokens.title,
        "sentence": f"{sentences.lead(comparison)}{warning}",
        "more": [
            *filter(None, [groups, tokens.queries]),
            *sentences.explain_shared_letters(comparison),
            *sentences.describe_first_differences(comparison),
        ],
        "notes": [*config.notes, TRAINED] if config.model.family is not None else config.notes,
        "command": str(run.about.get("command", "")),
        "depth": config.report.depth,
        "parts": [
            {**part, "template": template}
            for template in templates
            for part in members[PurePath(template).stem].parts(material)
        ],
    }
