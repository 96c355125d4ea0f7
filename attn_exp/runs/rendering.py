"""What a reader sees of a run, written beside its results: pages, figures and tables, as its settings want them.

Where something on disk is shown once more, settings of figures and how much is read may be said anew.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from attn_exp import drafts, machine
from attn_exp.config.fields import read_fields
from attn_exp.config.schema import Config, Figures, Report
from attn_exp.errors import UserError, unknown
from attn_exp.experiment.comparison import Run

DEPTH = "report.depth"
FIGURES = tuple(f"figures.{field.name}" for field in fields(Figures))


def check_figures(figures: Figures) -> None:
    """Refuse figures and fonts that there are not, before anything is computed; most runs name none.

    Raises:
        UserError: the name, and some that there are.
    """
    if figures.only or figures.font is not None:
        from attn_exp.report.figures import check as refuse_unknown  # noqa: PLC0415 - Matplotlib is slow to import

        refuse_unknown(figures)


def not_drawn(folder: Path, config: Config) -> str:
    """Say which figures were asked for by name in which a run has nothing to show; nothing where there are none."""
    if not config.report.figures:
        return ""
    figures = config.figures
    empty = [name for name in figures.only if not (folder / "figures" / f"{name}.{figures.format[0]}").exists()]
    return f"figures.only: this run has nothing to show in {' and '.join(empty)}" if empty else ""


def load_renderers(config: Config) -> None:
    """Import what a run will draw and write with, and nothing else, so that the record of its versions is complete."""
    wanted = config.report
    if wanted.figures:
        from attn_exp.report import figures  # noqa: PLC0415 - `report=none` needs none

        figures.load(config.figures)
    if wanted.tables or wanted.pages:
        import_module("attn_exp.report.page")


def opens_first(folder: Path, config: Config) -> Path:
    """Return what a reader opens first: the page, the Markdown, or the folder where there is neither."""
    if config.report.pages:
        return folder / "report.html"
    return folder / "report.md" if config.report.tables else folder


def render(run: Run, folder: Path) -> None:
    """Write what the configuration wants a reader to see."""
    wanted = run.comparison.config.report
    if not (wanted.tables or wanted.figures or wanted.pages):
        return
    from attn_exp.report.documents import documents  # noqa: PLC0415 - `report=none` needs none

    for name, content in documents(run).items():
        machine.own_folder((folder / name).parent)
        (folder / name).write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write a text as UTF-8 with plain line ends; half a surrogate pair, which it cannot hold, becomes its number."""
    path.write_bytes(drafts.as_bytes(text))


class Anew(NamedTuple):
    """What is said anew: settings of figures, and the depth of the report; empty where the old one stays."""

    figures: dict[str, Any]
    depth: str = ""


def said_anew(words: Sequence[str], command: str, known: Collection[str] = (*FIGURES, DEPTH)) -> Anew:
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
        values[key] = value if key in ("figures.font", DEPTH) else typed_value(value)
    drawn = {key.removeprefix("figures."): value for key, value in values.items() if key != DEPTH}
    read = {"depth": values[DEPTH]} if DEPTH in values else {}
    return Anew(read_fields(Figures, drawn, "figures."), read_fields(Report, read, "report.").get("depth", ""))


def typed_value(value: str) -> Any:
    """Return what a value says: a number, a list in brackets, or a word."""
    if value.startswith("[") and value.endswith("]"):
        return [typed_value(part.strip()) for part in value[1:-1].split(",") if part.strip()]
    try:
        return float(value)
    except ValueError:
        return value
