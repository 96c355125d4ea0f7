"""Compute, write and render one run, for the terminal or as a `Result` in Python; render a stored run again."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, chdir, nullcontext, suppress
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attn_exp import machine
from attn_exp.config.kinds import read_fields
from attn_exp.config.schema import Config, Figures, Report
from attn_exp.config.spelling import Repeat
from attn_exp.errors import UserError, chosen, printable, refuse, unknown
from attn_exp.experiment import checks, ladder
from attn_exp.experiment.compare import complete, tabulate
from attn_exp.experiment.executing import measure
from attn_exp.experiment.long_runs import Progress
from attn_exp.experiment.row import Comparison, Run, Timing
from attn_exp.problem.problem import Pass
from attn_exp.report import sentences
from attn_exp.runs import folders, provenance, store, trust
from attn_exp.runs.provenance import describe_origin

if TYPE_CHECKING:
    import pandas as pd

    from attn_exp.report.notebook import Drawing

DEPTH = "report.depth"
FIGURES = tuple(f"figures.{field.name}" for field in fields(Figures))  # settings of figures, such as `figures.width`
FEWEST_ROWS, MOST_ROWS = 32, 512
"""With fewer rows, a matrix product uses one BLAS thread anyway; with more, several threads pay off."""


class Outcome(NamedTuple):
    """The result of a run: its folder, the text for the terminal, and whether it agrees with every published result."""

    folder: Path
    text: str
    agrees: bool


def run(config: Config, command: Repeat, under_way: Pass | None = None) -> Outcome:
    """Compute, time, write and render one run; `under_way` is a forward pass of its model that is already prepared.

    Raises:
        UserError: the settings contradict each other, or the output folder cannot be written to.
    """
    store.check_writable(Path(config.output_dir))
    comparison, timings = compute(config, under_way)
    folder = write(comparison, timings, command)
    lines = [*filter(None, [describe_empty_figures(folder, config)]), str(find_first_page(folder, config))]
    text = "\n".join([sentences.summary(comparison), "", *lines])
    return Outcome(folder, text, all(figure.agrees for figure in comparison.published))


def compute(config: Config, under_way: Pass | None = None) -> tuple[Comparison, tuple[Timing, ...]]:
    check_names = checks.choose_checks(config)
    check_figures(config.figures)
    with chdir(os.curdir), limit_blas_threads(config):
        tabulated = tabulate(config, Progress(), under_way, bind=provenance.find_binder(config))
        comparison = complete(tabulated, check_names)
        return comparison, measure(comparison.variants, comparison.problem, known_seconds=comparison.seconds)


def limit_blas_threads(config: Config) -> AbstractContextManager[object]:
    """Limit BLAS to one thread for a run of a few hundred tokens; threads that variants start are unaffected.

    Waking a thread and waiting for it takes longer than multiplying a hundred rows. On a busy machine, it takes a
    hundred times longer, since the caller waits until the system schedules the thread.
    """
    tokens = config.embeddings.tokens if config.model.tokens is None else config.model.tokens
    rows = tokens if isinstance(tokens, int) else len(tokens or ())
    if not FEWEST_ROWS <= rows <= MOST_ROWS:
        return nullcontext()
    from attn_exp.forms._blocks.threads import one_blas_thread  # noqa: PLC0415 - small runs need no threads at all

    return one_blas_thread(0, insist=True)


def write(comparison: Comparison, timings: tuple[Timing, ...], command: Repeat) -> Path:
    """Write a run and its report to a new folder, add it to the index, and return the folder."""
    output_dir = Path(comparison.config.output_dir)
    load_renderers(comparison.config)
    about = store.describe_run(comparison, command, describe_origin())
    folder = store.save(Run(comparison, timings, about), output_dir)
    with suppress(UserError):  # the run is saved; `attn-exp index` reports the problem
        folders.rebuild_index(output_dir)
    return folder


def check_figures(figures: Figures) -> None:
    """Refuse unknown figures and fonts before anything is computed.

    Raises:
        UserError: a figure or the font is unknown.
    """
    if figures.only or figures.font is not None:
        import_module("attn_exp.report.figures").check(figures)


def describe_empty_figures(folder: Path, config: Config) -> str:
    figures, names = config.figures, config.figures.only if config.report.figures else ()
    empty = [name for name in names if not (folder / "figures" / f"{name}.{figures.format[0]}").exists()]
    return f"figures.only: this run has nothing to show in {' and '.join(empty)}" if empty else ""


def load_renderers(config: Config) -> None:
    """Import only the renderers that a run needs, before the versions of imported libraries are recorded."""
    wanted = config.report
    if wanted.figures:
        import_module("attn_exp.report.figures").load(config.figures)
    if wanted.tables or wanted.pages:
        import_module("attn_exp.report.documents")


def find_first_page(folder: Path, config: Config) -> Path:
    if config.report.pages:
        return folder / "report.html"
    return folder / "report.md" if config.report.tables else folder


class Overrides(NamedTuple):
    """Settings that replace those of a run when it is rendered again; an empty field changes nothing."""

    figures: dict[str, Any]
    depth: str = ""


def parse_overrides(words: Sequence[str], command: str, allowed: Collection[str] = (*FIGURES, DEPTH)) -> Overrides:
    """Parse and check the overrides in the arguments of a command.

    Raises:
        UserError: a setting can be changed only in a new run, or a value is invalid.
    """
    values = {}
    for word in words:
        key, equals, value = word.partition("=")
        if key not in allowed:
            raise UserError(unknown(key, list(allowed), f"setting of {command}"))
        if not equals:
            raise UserError(f"{word}: expected {key}=VALUE")
        values[key] = value if key in ("figures.font", DEPTH) else parse_value(value)
    figure_values = {key.removeprefix("figures."): value for key, value in values.items() if key != DEPTH}
    report_values = {"depth": values[DEPTH]} if DEPTH in values else {}
    return Overrides(
        read_fields(Figures, figure_values, "figures."), read_fields(Report, report_values, "report.").get("depth", "")
    )


def parse_value(value: str) -> Any:
    """Parse a value as JSON or as a list of words in brackets; anything else is a string."""
    if value.startswith("[") and value.endswith("]"):
        return [parse_value(part.strip()) for part in value[1:-1].split(",") if part.strip()]
    try:
        return machine.parse_json(value.encode())
    except ValueError:
        return value


def render_again(folder: Path, words: Sequence[str] = ()) -> str:
    """Redraw the report of a run from its results, without computing attention, and return the path to open.

    It writes the files that the run was configured to write; if the run had `report=none`, it writes all of them.
    Files are replaced only when all of them are complete. `words` are settings that replace those of the run:

    - `figures.format=pdf` and the like: draw figures in this way, even if the run drew none.
    - `figures.only`: draw these figures, and write nothing else.
    - `report.depth`: write the report with this depth.

    Raises:
        UserError: the folder holds no readable run or cannot be written to, or an override is invalid.
    """
    folder = machine.folder(folder)
    if (folder / "manifest.json").is_file():
        raise UserError(f"{folder} is a sweep; run attn-exp collect {folder}")
    overrides = parse_overrides(words, "attn-exp report")
    run = apply_overrides(store.load(folder), overrides)
    check_figures(run.comparison.config.figures)
    members = provenance.register_names_only(run.about)
    with refuse(f"{folder}: cannot be written to", OSError), machine.write_folder(folder, add=True) as draft, members:
        with trust.refuse_damaged(f"{folder}: its tables and arrays are inconsistent", *trust.MISFIT):
            store.render(run, draft)
        empty = describe_empty_figures(draft, run.comparison.config)
        figure_files = sorted(path.name for path in (draft / "figures").glob("*"))
    kind_folder = folder.resolve().parent
    if kind_folder.name in folders.KINDS:
        with suppress(UserError):
            folders.rebuild_index(kind_folder.parent)
    if empty:
        print(f"attn_exp: {printable(empty)}", file=sys.stderr)
    if overrides.figures.get("only"):
        return "\n".join(str(folder / "figures" / name) for name in figure_files)
    return str(find_first_page(folder, run.comparison.config))


def apply_overrides(run: Run, overrides: Overrides) -> Run:
    """Return a run with other settings of figures and report; if the run wrote no report, it now gets a full one.

    Raises:
        UserError: both `figures.only` and a depth are set, but figures do not depend on the depth.
    """
    config, only_figures = run.comparison.config, overrides.figures.get("only")
    if only_figures and overrides.depth:
        raise UserError(f"{DEPTH}: figures.only draws only figures; leave out one of the two")
    report = config.report
    is_bare = not (report.tables or report.pages)  # a run that wrote no text
    adds_text = is_bare and bool(overrides.depth or not report.figures)
    new_report = Report(
        tables=not only_figures and (report.tables or adds_text),
        pages=not only_figures and (report.pages or adds_text),
        figures=bool(overrides.figures or report.figures or is_bare),
        depth=overrides.depth or report.depth,
    )
    figures = replace(config.figures, **overrides.figures)
    return replace(run, comparison=replace(run.comparison, config=replace(config, figures=figures, report=new_report)))


@dataclass(frozen=True)
class Result:
    """The result of a run. A notebook shows the table, the summary, and the weights of every variant.

    - `comparison`: all results, as plain data.
    - `timings`: the time of each variant.
    - `repeat`: how to repeat the run.
    """

    comparison: Comparison
    timings: tuple[Timing, ...]
    repeat: Repeat

    @property
    def command(self) -> str:
        """The command that repeats the run; a large array that you passed appears as its name in `results.npz`."""
        return self.repeat.line

    @property
    def config(self) -> Config:
        """The validated settings of the run."""
        return self.comparison.config

    @property
    def table(self) -> pd.DataFrame:
        """One row per variant: its settings, error, difference from the first row, and statistics of its weights."""
        from attn_exp.report import notebook  # noqa: PLC0415 - pandas is slow to import

        return notebook.comparison(self.comparison)

    @property
    def distances(self) -> pd.DataFrame:
        """The difference between the outputs of each pair of variants."""
        from attn_exp.report import notebook  # noqa: PLC0415

        return notebook.distances(self.comparison)

    @property
    def published(self) -> pd.DataFrame:
        """One row per result that a document prints, and whether the run agrees with it."""
        from attn_exp.report import notebook  # noqa: PLC0415

        return notebook.published(self.comparison)

    def steps(self, variant: str = "", against: str = "") -> pd.DataFrame:
        """Explain the difference between a row and the baseline, one setting at a time; by default for all rows.

        `against` names another row to start from. In the result, `moved` is how far a step changes the output of the
        step before; `least` and `most` are its range over all `orders` of the settings.

        Raises:
            UserError: there is no such variant, or it could not be computed.
        """
        from attn_exp.report import notebook  # noqa: PLC0415

        comparison = self.comparison
        steps = comparison.steps
        if against:
            baseline = chosen(against, [row.variant for row in comparison.rows if row.same_as], "row")
            steps = ladder.build_ladders(replace(comparison, config=replace(comparison.config, against=baseline)))[0]
        only = chosen(variant, comparison.traces, "variant") if variant else ""
        return notebook.steps([step for step in steps if only in ("", step.variant)])

    def stage(self, variant: str, name: str, head: int | np.integer[Any] = 1) -> pd.DataFrame:
        """Return a stage of a variant, such as `q`, `logits`, `weights` or `output`, with tokens as labels.

        Heads are numbered from 1, as in every table and figure.

        Raises:
            UserError: there is no such variant, it did not compute that stage, or it has no such head.
        """
        from attn_exp.report import notebook  # noqa: PLC0415

        return notebook.stage(self.comparison, variant, name, head)

    def array(self, variant: str, name: str) -> NDArray[Any]:
        """Return a stage of a variant as an array, such as its weights `[h t s]` or its output `[t m]`.

        Raises:
            UserError: there is no such variant, or it did not compute that stage.
        """
        stages = dict(self.comparison.traces[chosen(variant, self.comparison.traces, "variant")].stages())
        return np.array(stages[chosen(name, stages, f"stage of {variant}")])

    def figure(self, name: str = "weights") -> Drawing:
        """Return a figure of the report, such as `weights`, `distances` or `entropy`; a notebook displays it.

        Raises:
            UserError: this run has no such figure.
        """
        from attn_exp.report.notebook import drawing  # noqa: PLC0415 - Matplotlib is slow to import

        return drawing(self.comparison, name)

    def save(self, output_dir: str | Path | None = None) -> Path:
        """Write the run and its report as the command line does, and return the new folder.

        Raises:
            UserError: the folder cannot be written to.
        """
        config = self.config
        if output_dir is not None:
            config = replace(config, output_dir=str(Path(output_dir)))
        store.check_writable(Path(config.output_dir))
        return write(replace(self.comparison, config=config), self.timings, self.repeat)

    def __repr__(self) -> str:
        return sentences.summary(self.comparison)

    def _repr_html_(self) -> str:
        from attn_exp.report.notebook import run  # noqa: PLC0415 - only notebooks ask for it

        return run(self.comparison, self.timings)
