"""Code of the user's own: which of it the command line names, so that nothing on disk can start any.

A form with a colon, such as `mine.py:attention`, is code. Only a `Named` one is ever imported, and a form becomes one
where the very words stand on the command line of now. What YAML, a run or a sweep on disk says stays a plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from attn_exp.config.schema import Config

FORM = re.compile(r"\+{0,2}variant\.([^.=]+)\.form=(.*)", re.DOTALL)
BETWEEN = re.compile(r"""[\[\]{},'"]""")


class Named(str):
    """The name of code that the user wrote on the command line now, or in Python; a plain text names none."""

    __slots__ = ()


def is_code(form: Any) -> bool:
    """Say whether a form is code of the user's own, and no form of the project's."""
    return isinstance(form, str) and ":" in form


def names_code(config: Config) -> bool:
    """Say whether the form of any variant is code that may be run: the user named it on the command line of now."""
    return any(isinstance(variant.form, Named) for variant in config.variant.values())


def variants(words: Iterable[str]) -> list[str]:
    """Return the variants whose forms these words name as code."""
    matches = [FORM.fullmatch(word) for word in words]
    return [match[1] for match in matches if match and is_code(match[2])]


def unlisted(words: Sequence[str], known: Iterable[str]) -> list[str]:
    """Return the variants that get code for a form, have no YAML, and stand in no list of variants."""
    listed = " ".join(word for word in words if word.lstrip("+").startswith("variant="))
    named = {*known, *re.findall(r"[\w-]+", listed)}
    return [name for name in variants(words) if name not in named]


def marked(settings: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """Return plain settings in which the code that these words name is `Named`."""
    chosen = settings.get("variant")
    if not isinstance(chosen, Mapping):
        return dict(settings)
    typed = spoken(words)
    return {**settings, "variant": {name: with_form(variant, typed) for name, variant in chosen.items()}}


def with_form(variant: Any, typed: set[str]) -> Any:
    """Return the settings of one variant, its form `Named` where it was typed."""
    form = variant.get("form") if isinstance(variant, Mapping) else None
    return {**variant, "form": Named(form)} if is_code(form) and form in typed else variant


def spoken(words: Sequence[str]) -> set[str]:
    """Return every text that the words about variants may give as a form."""
    texts: set[str] = set()
    for word in words:
        key, _, value = word.lstrip("+").partition("=")
        if key.partition(".")[0] == "variant":
            parts = [part.strip() for part in BETWEEN.split(value)]
            texts |= {value.strip("'\""), *parts, *(part.removeprefix("form:").strip() for part in parts)}
    return texts


def granted(config: Config, code: Iterable[str]) -> Config:
    """Return settings from disk in which code that the user asks for now is `Named`."""
    wanted = set(code)
    return replace(
        config,
        variant={
            name: replace(variant, form=Named(variant.form)) if variant.form in wanted else variant
            for name, variant in config.variant.items()
        },
    )
