"""One run from configuration to what the terminal prints."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from attn_exp import report
from attn_exp.config.schema import Config, Report
from attn_exp.errors import UserError
from attn_exp.experiment import checks
from attn_exp.experiment.compare import completed, tabulate
from attn_exp.experiment.comparison import Comparison, Run
from attn_exp.experiment.progress import Progress
from attn_exp.experiment.timing import Timing, measure
from attn_exp.report import terminal
from attn_exp.runs import index, store
from attn_exp.runs.provenance import ask_git, origin


@dataclass(frozen=True)
class Outcome:
    """What a run leaves: its folder, and the text for the terminal."""

    folder: Path
    text: str


def run(config: Config, command: str) -> Outcome:
    """Compute, time, write and render one run.

    Raises:
        UserError: settings that do not fit each other, or an output folder that cannot be written to.
    """
    store.check_writable(Path(config.output_dir))
    with ask_git() as git:
        comparison, timings = compute(config)
        load_renderers(config.report)
        found = Run(comparison, timings, store.about(config, command, origin(git)))
    folder = write(found)
    return Outcome(folder, f"{terminal.summary(comparison)}\n\n{newest(folder, config)}")


def compute(config: Config) -> tuple[Comparison, tuple[Timing, ...]]:
    """Compute and compare every variant, and time each."""
    checks.wanted(config)
    comparison = completed(tabulate(config, Progress(len(config.variant))))
    return comparison, measure(comparison.variants, comparison.problem, known=comparison.seconds)


def write(found: Run) -> Path:
    """Write a run to a folder of its own, put it into the index, and return the folder."""
    output_dir = Path(found.comparison.config.output_dir)
    folder = store.save(found, output_dir, render)
    with suppress(UserError):  # the run is there; `attn-exp index` says what is in the way
        index.rebuild(output_dir)
    return folder


def load_renderers(wanted: Report) -> None:
    """Import what this run will draw and write with, so that the record of its versions is complete."""
    if wanted.figures:
        import_module("attn_exp.report.figures")
    if wanted.tables or wanted.pages:
        import_module("attn_exp.report.page")


def newest(folder: Path, config: Config) -> Path:
    """Return what a reader opens first: the page, the Markdown, or the folder where there is neither."""
    if config.report.pages:
        return folder / "report.html"
    return folder / "report.md" if config.report.tables else folder


def render(run: Run, folder: Path) -> None:
    """Write what the configuration wants a reader to see."""
    for name, content in report.documents(run).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
