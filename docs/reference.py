"""What the files of the package say of themselves, as pages: rules, forms, metrics, mistakes, conventions, settings.

A page has a line `<!-- reference: masks -->`; `produce.py` writes what the members say below it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from attn_exp import forms, mistakes, registry, rules
from attn_exp.cli import list_member_choices as choices
from attn_exp.config import command_line
from attn_exp.config.choices import groups
from attn_exp.config.inputs import Embeddings, Projections
from attn_exp.config.kinds import kind_of
from attn_exp.config.schema import PRESETS, Config, Figures, Report, Sweep, Variant
from attn_exp.errors import shown
from attn_exp.experiment import metrics
from attn_exp.experiment.library_conventions import CONVENTIONS, Convention
from attn_exp.rules.example import Example

CONF = Path(__file__).resolve().parent.parent / "conf"


def reference(name: str) -> str:
    """Return what stands for `<!-- reference: NAME -->`."""
    return "\n\n".join(PARTS[name]())


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def told(docstring: str) -> tuple[str, str]:
    """Return what a docstring tells a user, in paragraphs, and its source; what a caller must know is left out."""
    text = re.sub(
        r"\n\n(Raises|Attributes|Returns):\n.*?(?=\n\n\S|\Z)", "", inspect.cleandoc(docstring), flags=re.DOTALL
    )
    found = re.search(r"(?:\A|\n\n)Source: (.*?)(?=\n\n|\Z)", text, re.DOTALL)
    text = (text.replace(found[0], "") if found else text).strip()
    for verb, plain in (("Return ", "Gives "), ("Compute ", "Computes ")):
        text = plain + text.removeprefix(verb) if text.startswith(verb) else text
    return text, found[1] if found else ""


def parts(docstring: str) -> Iterator[str]:
    """Yield the paragraphs of a docstring, and where they are from."""
    text, source = told(docstring)
    yield text
    if source:
        yield f"*Source:* {source}"


# Rules


def of_rules(group: str) -> Iterator[str]:
    """Yield the section of each rule of a group: what it does, its settings, its picture and its source."""
    for name in rules.names(group):
        kind = rules.rule_class(group, name)
        text, source = told(kind.__doc__ or "")
        yield f"## `{group}={name}`"
        yield text
        yield from settings(group, name, kind)
        yield from pictures(group, registry.module(rules.package(group), name).EXAMPLE)
        if source:
            yield f"*Source:* {source}"


def settings(group: str, name: str, kind: type) -> Iterator[str]:
    """Yield the table of a rule's settings: the default, what each takes, and what it means."""
    text = (CONF / group / f"{name}.yaml").read_text(encoding="utf-8")
    usual, said = yaml.safe_load(text)[name], dict(re.findall(r"^ +(\w+): .*?# (.*)$", text, re.MULTILINE))
    found = [
        [*taken(field, f"{group}.{name}.", hint, usual), said.get(field.name, "").strip(" ,").replace("; or", "")]
        for field, hint in with_hints(kind)
    ]
    if found:
        yield table(["setting", "default", "takes", "meaning"], found)


def with_hints(schema: type) -> list[tuple[Field[Any], Any]]:
    """Return the fields of a class, each with its annotation."""
    hints = get_type_hints(schema, include_extras=True)
    return [(field, hints[field.name]) for field in fields(schema)]


def taken(field: Field[Any], path: str, hint: Any, usual: Mapping[str, Any]) -> list[str]:
    """Return the name of a setting, its default, and what it takes."""
    default = usual.get(field.name, None if field.default is MISSING else field.default)
    takes = kind_of(hint).takes
    return [
        f"`{path}{field.name}`",
        "none" if default in (None, (), "") else f"`{shown(default)}`",
        "numbers" if takes == "anything" else takes,
    ]


def pictures(group: str, example: Example) -> Iterator[str]:
    """Yield the picture that a rule must give, and the one from outside."""
    yield picture(group, example)
    if isinstance(example.outside, Example):
        yield picture(group, example.outside)


def picture(group: str, example: Example) -> str:
    """Return what a rule gives, as it was written down by hand."""
    drawn = ", ".join(f"{key}: {brief(value)}" for key, value in example.settings.items())
    where = [drawn] if drawn else []
    if example.heads > 1:
        where.append(f"head {example.head + 1} of {example.heads}")
    if example.offset:
        where.append(f"the first query at place {example.offset}")
    heading = f"With {'; '.join(where)}:" if where else "With the default settings:"
    lines = "\n".join(grid(example) if group == "mask" else numbers(group, example))
    source = f"\n\n(From {example.source}.)" if example.source else ""
    return f"{heading}\n\n```text\n{lines}\n```{source}"


def brief(value: Any) -> str:
    """Return a setting as a picture's heading has it; a long table is only named."""
    text = shown(value)
    return f"`{text}`" if len(text) <= 40 else "a table of numbers in order"


def grid(example: Example) -> Iterator[str]:
    """Yield a mask: a line for each query, a column for each key."""
    yield f"          key {' '.join(f'{key:2}' for key in range(len(example.outcome[0])))}"
    for place, row in enumerate(example.outcome):
        yield f"query {place:3}     {' '.join(f' {cell}' for cell in row)}"


def numbers(group: str, example: Example) -> Iterator[str]:
    """Yield rows of numbers: before the rule, where they are not all zero, and after it."""
    before, after = TITLES["pairs" if group == "score" and example.keys else group]
    if any(any(row) for row in example.given):
        yield from columns(before, example.given)
    if example.keys:
        yield from columns("keys", example.keys)
    yield from columns(after, example.outcome)
    if example.keys_after and example.keys_after != example.outcome:
        yield from columns("keys after", example.keys_after)


TITLES = {
    "score": ("logits", "logits after it"),
    "pairs": ("queries", "scores"),
    "position": ("before", "after"),
    "normalizer": ("logits", "weights"),
}


def columns(title: str, several: Sequence[Sequence[float]]) -> Iterator[str]:
    """Yield a title and rows of numbers in columns, to four decimals."""
    for place, row in enumerate(several):
        cells = "".join(f"{f'{number:.4f}'.rstrip('0').rstrip('.'):>9}" for number in row)
        yield f"{'' if place else title:16}{cells}"


def of_normalizers() -> Iterator[str]:
    """Yield the section of each normalizer."""
    for name in rules.names("normalizer"):
        module = registry.module(rules.package("normalizer"), name)
        yield f"## `normalizer={name}`"
        yield inspect.cleandoc(module.__doc__ or "")
        text, source = told(module.NORMALIZER.weigh.__doc__ or "")
        yield text
        yield from pictures("normalizer", module.EXAMPLE)
        if source:
            yield f"*Source:* {source}"


# Forms, metrics, mistakes


def of_forms() -> Iterator[str]:
    """Yield the section of each form: what it computes, and what is special about it."""
    for name in forms.NAMES:
        module, form = registry.module(forms.__name__, name), forms.form(name)
        yield f"## `{name}`"
        yield inspect.cleandoc(module.__doc__ or "")
        yield from parts(inspect.unwrap(getattr(form.attend, "func", form.attend)).__doc__ or "")
        yield f"*{special(form)}.*"


def special(form: forms.Form) -> str:
    """Return who computes a form, in which type, and what it holds at once."""
    arrays = {0: "no array", 1: "one array"}.get(form.matrices, f"{form.matrices} arrays")
    said = [f"computed by {form.library}"] if form.library else []
    said += [f"in {form.dtype} at most"] if form.dtype else []
    return "; ".join([*said, f"keeps {arrays} of heads x queries x keys in memory"]).capitalize()


def of_metrics() -> Iterator[str]:
    """Yield a table of each family of metrics."""
    for family in metrics.FAMILIES:
        module = registry.module(metrics.__name__, family)
        yield f"## {heading(module)}"
        head = ["metric", "what it says", "unit", "source"]
        yield table(head, [[f"`{each.name}`", each.meaning, each.unit, each.source] for each in module.METRICS])


def of_mistakes() -> Iterator[str]:
    """Yield a table of each group of mistakes."""
    for group in dict.fromkeys(mistake.group for mistake in mistakes.catalogue().values()):
        yield f"## {heading(registry.module(mistakes.__name__, group))}"
        several = {name: each for name, each in mistakes.catalogue().items() if each.group == group}
        head = ["name", "what it does", "how to fix it", "seen in"]
        yield table(head, [[f"`{name}`", each.says, each.fix, each.seen] for name, each in several.items()])


def heading(module: Any) -> str:
    """Return the first sentence of a module as a heading."""
    return str((module.__doc__ or "").partition("\n")[0].rstrip(". "))


# Conventions

EMPTY = {
    "zeros": "zeros",
    "nan": "NaN",
    "mean": "mean of all values",
    "less_1e9": "softmax of the scores minus 1e9",
    "less_65504": "softmax of the scores minus 65504",
}


def of_conventions() -> Iterator[str]:
    """Yield the table of conventions."""
    head = ["`convention=`", "True means", "causal alignment", "a row without keys", "softmax in", "source"]
    yield table(head, [convention_row(name, each) for name, each in CONVENTIONS.items()])


def convention_row(name: str, each: Convention) -> list[str]:
    """Return a convention as a line of the table."""
    stands = {
        "top_left": "first query with first key",
        "bottom_right": "last query with last key",
        "before_filler": "last query with last key before the filler",
    }[each.default_align]
    return [
        f"`{name}`",
        "may not attend" if each.blocks else "may attend",
        f"{stands}{', after a cache' if each.cached else ''}",
        EMPTY[each.empty],
        each.softmax_dtype or "input dtype",
        each.source,
    ]


# Settings


def of_settings(schemas: Sequence[tuple[type, str]]) -> Iterator[str]:
    """Yield the table of the settings of some sections."""
    known = {**choices(), "preset": tuple(PRESETS)}
    lines = [line for schema, path in schemas for line in command_line.list_settings(schema, known, path)]
    head = ["setting", "meaning", "default"]
    kept = [line for line in lines if line.name not in groups()]
    yield table(head, [[f"`{line.name}`", line.meaning, line.default] for line in kept])


def of_fields(schema: type, path: str) -> Iterator[str]:
    """Yield what a section of the configuration is for, and the table of its settings with their bounds."""
    yield told(schema.__doc__ or "")[0]
    yield table(["setting", "default", "takes"], [taken(field, path, hint, {}) for field, hint in with_hints(schema)])


def of_groups() -> Iterator[str]:
    """Yield the table of the groups and their choices."""
    head = ["group", "choices"]
    yield table(head, [[f"`{group}`", ", ".join(f"`{name}`" for name in names)] for group, names in groups().items()])


PARTS: dict[str, Callable[[], Iterator[str]]] = {
    "masks": partial(of_rules, "mask"),
    "scores": partial(of_rules, "score"),
    "positions": partial(of_rules, "position"),
    "normalizers": of_normalizers,
    "forms": of_forms,
    "metrics": of_metrics,
    "mistakes": of_mistakes,
    "conventions": of_conventions,
    "groups": of_groups,
    "settings": partial(of_settings, [(Config, ""), (Report, "report."), (Figures, "figures.")]),
    "embeddings": partial(of_fields, Embeddings, "embeddings."),
    "projections": partial(of_fields, Projections, "projections."),
    "variant": partial(of_fields, Variant, "variant.NAME."),
    "sweep settings": partial(of_settings, [(Sweep, "sweep.")]),
}
