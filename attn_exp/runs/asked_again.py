"""The settings that may be said anew where something on disk is shown once more: of figures, and how much is read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from attn_exp.config.fields import read_fields
from attn_exp.config.schema import Figures, Report
from attn_exp.errors import UserError, unknown

DEPTH = "report.depth"
FIGURES = tuple(f"figures.{field.name}" for field in fields(Figures))


class Anew(NamedTuple):
    """What is said anew: settings of figures, and the depth of the report; empty where the old one stays."""

    figures: dict[str, Any]
    depth: str = ""


def anew(words: Sequence[str], command: str, known: Collection[str] = (*FIGURES, DEPTH)) -> Anew:
    """Return what the words of a command set anew, checked.

    Raises:
        UserError: another setting, which only a new run can change, or a value that does not fit.
    """
    values = {}
    for word in words:
        key, equals, value = word.partition("=")
        if key not in known:
            raise UserError(unknown(key, list(known), f"setting of {command}"))
        if not equals:
            raise UserError(f"{word}: expected {key}=VALUE")
        values[key] = value if key in ("figures.font", DEPTH) else spoken(value)
    drawn = {key.removeprefix("figures."): value for key, value in values.items() if key != DEPTH}
    read = {"depth": values[DEPTH]} if DEPTH in values else {}
    return Anew(read_fields(Figures, drawn, "figures."), read_fields(Report, read, "report.").get("depth", ""))


def spoken(value: str) -> Any:
    """Return what a value says: a number, a list in brackets, or a word."""
    if value.startswith("[") and value.endswith("]"):
        return [spoken(part.strip()) for part in value[1:-1].split(",") if part.strip()]
    try:
        return float(value)
    except ValueError:
        return value
