"""One run, from its configuration to the text for the terminal, and the report of a stored run again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from attn_exp import drafts, machine
from attn_exp.config.schema import Config, Report
from attn_exp.config.spelling import Repeat
from attn_exp.errors import UserError, printable, refuse
from attn_exp.experiment import checks
from attn_exp.experiment.compare import completed, tabulate
from attn_exp.experiment.comparison import Comparison, Run
from attn_exp.experiment.executing import measure
from attn_exp.experiment.progress import Progress
from attn_exp.experiment.row import Timing
from attn_exp.experiment.settling import settle
from attn_exp.own_code import staying_here
from attn_exp.problem.left_to_model import Pass, ask_model
from attn_exp.problem.problem import build
from attn_exp.report import terminal
from attn_exp.runs import folders, provenance, rendering, store, trust
from attn_exp.runs.provenance import origin
from attn_exp.runs.rendering import DEPTH, Anew, said_anew

FEWEST_ROWS, MOST_ROWS = 32, 512
"""Up to the first number of rows a product uses one BLAS thread anyway; above the second, threads pay off."""


class Outcome(NamedTuple):
    """The result of a run: its folder, the text for the terminal, and whether every published figure agrees."""

    folder: Path
    text: str
    agrees: bool


def run(config: Config, command: Repeat, under_way: Pass | None = None) -> Outcome:
    """Compute, time, write and render one run; `under_way` is a forward pass of its model that is already prepared.

    Raises:
        UserError: settings that do not fit each other, or an output folder that cannot be written to.
    """
    store.check_writable(Path(config.output_dir))
    comparison, timings = compute(config, under_way)
    folder = write(comparison, timings, command)
    lines = [*filter(None, [rendering.not_drawn(folder, config)]), str(rendering.opens_first(folder, config))]
    text = "\n".join([terminal.summary(comparison), "", *lines])
    return Outcome(folder, text, all(figure.agrees for figure in comparison.published))


def check(config: Config) -> None:
    """Check that the settings fit each other, before anything is computed or written.

    Raises:
        UserError: as `run`.
    """
    config = ask_model(config)
    problem, bind = build(config), provenance.binder(config)
    for name, variant in config.variant.items():
        settle(name, variant, config, problem, bind)


def compute(config: Config, under_way: Pass | None = None) -> tuple[Comparison, tuple[Timing, ...]]:
    """Compute and compare every variant, and time each."""
    wanted = checks.wanted(config)
    rendering.check_figures(config.figures)
    with staying_here(), blas_asleep(config):
        found = tabulate(config, Progress(len(config.variant)), under_way, bind=provenance.binder(config))
        comparison = completed(found, wanted)
        return comparison, measure(comparison.variants, comparison.problem, known=comparison.seconds)


def blas_asleep(config: Config) -> AbstractContextManager[object]:
    """Limit the BLAS to one thread for a run of a few hundred tokens; threads of the variants themselves are
    unaffected.

    A product of a hundred rows takes less time than waking a thread and waiting for it, and a hundred times less on a
    busy machine, where the caller waits until the system schedules the thread.
    """
    tokens = config.embeddings.tokens if config.model.tokens is None else config.model.tokens
    rows = tokens if isinstance(tokens, int) else len(tokens or ())
    if config.model.text is not None:
        rows = len(config.model.text) // 3  # about three letters to a token
    if not FEWEST_ROWS <= rows <= MOST_ROWS:
        return nullcontext()
    from attn_exp.forms._blocks.threads import one_blas_thread  # noqa: PLC0415 - small runs need no threads at all

    return one_blas_thread(0, insist=True)


def write(comparison: Comparison, timings: tuple[Timing, ...], command: Repeat) -> Path:
    """Write a run and its report to a new folder, add it to the index, and return the folder."""
    output_dir = Path(comparison.config.output_dir)
    rendering.load_renderers(comparison.config)
    about = store.about(comparison, command, origin())
    folder = store.save(Run(comparison, timings, about), output_dir)
    with suppress(UserError):  # the run is saved; `attn-exp index` reports the problem
        folders.rebuild_index(output_dir)
    return folder


def render_again(folder: Path, words: Sequence[str] = ()) -> str:
    """Redraw the report of a run from its results, computing no attention, and return what to open.

    It writes what the run was configured to write, or everything if that was `report=none`. Words such as
    `figures.format=pdf` change how figures are drawn this time, even if the run drew none, and `report.depth` changes
    the depth; with `figures.only`, only the named figures are drawn and nothing else is written. Files are replaced
    once all are drawn.

    Raises:
        UserError: no readable run there, another setting, or a folder that cannot be written to.
    """
    folder = machine.resolved(folder)
    if (folder / "manifest.json").is_file():
        raise UserError(f"{folder} is a sweep; write attn-exp collect {folder}")
    changes = said_anew(words, "attn-exp report")
    run = shown_as(store.load(folder), changes)
    rendering.check_figures(run.comparison.config.figures)
    members = provenance.members_without_code(run.about)
    with refuse(f"{folder}: cannot be written to", OSError), drafts.more_files(folder) as draft, members:
        with trust.refuse_misfit(str(folder)):
            rendering.render(run, draft)
        lacking, empty = provenance.members_left_out(), rendering.not_drawn(draft, run.comparison.config)
        alone = sorted(path.name for path in (draft / "figures").glob("*"))
    home = folder.resolve().parent
    if home.name in folders.KINDS:
        with suppress(UserError):
            folders.rebuild_index(home.parent)
    for line in filter(None, (lacking, empty)):
        print(f"attn_exp: {printable(line)}", file=sys.stderr)
    if changes.figures.get("only"):
        return "\n".join(str(folder / "figures" / name) for name in alone)
    return str(rendering.opens_first(folder, run.comparison.config))


def shown_as(run: Run, changes: Anew) -> Run:
    """Apply changed settings of figures and depth to a run; one that wrote no report gets a full one.

    Raises:
        UserError: a depth for figures alone, which do not depend on it.
    """
    config, alone = run.comparison.config, changes.figures.get("only")
    if alone and changes.depth:
        raise UserError(f"{DEPTH}: figures.only draws figures alone; leave one of the two out")
    old = config.report
    is_none = not (old.tables or old.figures or old.pages)
    has_texts = is_none or (bool(changes.depth) and not (old.tables or old.pages))
    wanted = Report(
        tables=not alone and (old.tables or has_texts),
        pages=not alone and (old.pages or has_texts),
        figures=bool(alone or old.figures or is_none or changes.figures),
        depth=changes.depth or old.depth,
    )
    figures = replace(config.figures, **changes.figures)
    return replace(run, comparison=replace(run.comparison, config=replace(config, figures=figures, report=wanted)))
