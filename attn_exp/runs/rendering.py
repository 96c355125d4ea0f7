"""Render a run next to its results: pages, figures and tables, as its settings ask.

When a stored run is rendered again, figure settings and the depth can be overridden.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from attn_exp import machine
from attn_exp.config.kinds import read_fields
from attn_exp.config.schema import Config, Figures, Report
from attn_exp.errors import UserError, unknown
from attn_exp.experiment.comparison import Run

DEPTH = "report.depth"
FIGURES = tuple(f"figures.{field.name}" for field in fields(Figures))


def check_figures(figures: Figures) -> None:
    """Refuse unknown figures and fonts before anything is computed; most runs name none.

    Raises:
        UserError: the name, and some known ones.
    """
    if figures.only or figures.font is not None:
        from attn_exp.report.figures import check as refuse_unknown  # noqa: PLC0415 - Matplotlib is slow to import

        refuse_unknown(figures)


def not_drawn(folder: Path, config: Config) -> str:
    if not config.report.figures:
        return ""
    figures = config.figures
    empty = [name for name in figures.only if not (folder / "figures" / f"{name}.{figures.format[0]}").exists()]
    return f"figures.only: this run has nothing to show in {' and '.join(empty)}" if empty else ""


def load_renderers(config: Config) -> None:
    """Import the renderers that a run needs, and no others, so that its recorded versions are complete."""
    wanted = config.report
    if wanted.figures:
        from attn_exp.report import figures  # noqa: PLC0415 - `report=none` needs none

        figures.load(config.figures)
    if wanted.tables or wanted.pages:
        import_module("attn_exp.report.documents")


def opens_first(folder: Path, config: Config) -> Path:
    if config.report.pages:
        return folder / "report.html"
    return folder / "report.md" if config.report.tables else folder


def render(run: Run, folder: Path) -> None:
    wanted = run.comparison.config.report
    if not (wanted.tables or wanted.figures or wanted.pages):
        return
    from attn_exp.report.documents import documents  # noqa: PLC0415 - `report=none` needs none

    machine.fill(folder, documents(run))


class Anew(NamedTuple):
    """Overrides for rendering again: figure settings and report depth; empty to keep the old ones."""

    figures: dict[str, Any]
    depth: str = ""


def said_anew(words: Sequence[str], command: str, known: Collection[str] = (*FIGURES, DEPTH)) -> Anew:
    """Parse and check the overrides in the words of a command.

    Raises:
        UserError: another setting, which only a new run can change, or an invalid value.
    """
    values = {}
    for word in words:
        key, equals, value = word.partition("=")
        if key not in known:
            raise UserError(unknown(key, list(known), f"setting of {command}"))
        if not equals:
            raise UserError(f"{word}: expected {key}=VALUE")
        values[key] = value if key in ("figures.font", DEPTH) else typed_value(value)
    drawn = {key.removeprefix("figures."): value for key, value in values.items() if key != DEPTH}
    read = {"depth": values[DEPTH]} if DEPTH in values else {}
    return Anew(read_fields(Figures, drawn, "figures."), read_fields(Report, read, "report.").get("depth", ""))


def typed_value(value: str) -> Any:
    """Parse a value as JSON or a list of words in brackets, or else take it as a word."""
    if value.startswith("[") and value.endswith("]"):
        return [typed_value(part.strip()) for part in value[1:-1].split(",") if part.strip()]
    try:
        return machine.parse_json(value.encode())
    except ValueError:
        return value
