"""One run from configuration to what the terminal prints."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from attn_exp.config.schema import Config
from attn_exp.config.spelling import Repeat
from attn_exp.errors import UserError
from attn_exp.experiment import checks, threads
from attn_exp.experiment.compare import completed, tabulate
from attn_exp.experiment.comparison import Comparison, Run
from attn_exp.experiment.progress import Progress
from attn_exp.experiment.settling import settle
from attn_exp.experiment.timing import Timing, measure
from attn_exp.problem.left_to_model import ask_model
from attn_exp.problem.problem import build
from attn_exp.report import terminal
from attn_exp.runs import index, recorded_code, rendering, store
from attn_exp.runs.provenance import ask_git, origin


class Outcome(NamedTuple):
    """What a run leaves: its folder, the text for the terminal, and whether every printed figure agrees."""

    folder: Path
    text: str
    agrees: bool


def run(config: Config, command: Repeat) -> Outcome:
    """Compute, time, write and render one run.

    Raises:
        UserError: settings that do not fit each other, or an output folder that cannot be written to.
    """
    store.check_writable(Path(config.output_dir))
    with ask_git() as git:
        comparison, timings = compute(config)
        rendering.load_renderers(config)
        about = store.about(comparison, command, origin(git))
    folder = write(Run(comparison, timings, about))
    lines = [*filter(None, [rendering.not_drawn(folder, config)]), str(rendering.opens_first(folder, config))]
    text = "\n".join([terminal.summary(comparison), "", *lines])
    return Outcome(folder, text, all(figure.agrees for figure in comparison.published))


def check(config: Config) -> None:
    """Refuse settings that do not fit each other, before anything is computed or written.

    Raises:
        UserError: as `run`.
    """
    config = ask_model(config)
    problem, bind = build(config), recorded_code.binder(config)
    for name, variant in config.variant.items():
        settle(name, variant, config, problem, bind)


def compute(config: Config) -> tuple[Comparison, tuple[Timing, ...]]:
    """Compute and compare every variant, and time each."""
    wanted = checks.wanted(config)
    rendering.check_figures(config.figures)
    with threads.held(config):
        found = tabulate(config, Progress(len(config.variant)), bind=recorded_code.binder(config))
        comparison = completed(found, wanted)
        return comparison, measure(comparison.variants, comparison.problem, known=comparison.seconds)


def write(run: Run) -> Path:
    """Write a run to a folder of its own, put it into the index, and return the folder."""
    output_dir = Path(run.comparison.config.output_dir)
    folder = store.save(run, output_dir)
    with suppress(UserError):  # the run is there; `attn-exp index` says what is in the way
        index.rebuild(output_dir)
    return folder
