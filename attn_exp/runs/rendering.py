"""What a reader sees of a run, written beside its results: pages, figures and tables, as its settings want them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from attn_exp import machine
from attn_exp.config.schema import Config, Figures
from attn_exp.experiment.comparison import Run


def check(figures: Figures) -> None:
    """Refuse figures and fonts that there are not, before anything is computed; most runs name none.

    Raises:
        UserError: the name, and some that there are.
    """
    if figures.only or figures.font is not None:
        from attn_exp.report.figures import check as refuse_unknown  # noqa: PLC0415 - Matplotlib is slow to import

        refuse_unknown(figures)


def undrawn(folder: Path, config: Config) -> str:
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
    path.write_bytes(text.encode("utf-8", "backslashreplace"))
