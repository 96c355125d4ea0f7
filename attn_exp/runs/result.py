"""`Result`: what a run from Python found, with its tables, stages and figures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attn_exp.config.schema import Config
from attn_exp.config.spelling import Repeat
from attn_exp.errors import chosen, folder
from attn_exp.experiment import ladder
from attn_exp.experiment.comparison import Comparison
from attn_exp.experiment.row import Timing
from attn_exp.report import terminal
from attn_exp.runs import execution, store

if TYPE_CHECKING:
    import pandas as pd

    from attn_exp.report.notebook import Drawing


@dataclass(frozen=True)
class Result:
    """The result of a run. A notebook shows the table, the summary, and the weights of every variant.

    `comparison` holds everything as plain data, `timings` what each variant costs, `repeat` how to repeat the run.
    """

    comparison: Comparison
    timings: tuple[Timing, ...]
    repeat: Repeat

    @property
    def command(self) -> str:
        """The command that repeats the run; a large array of yours appears as its name in `results.npz`."""
        return self.repeat.line

    @property
    def config(self) -> Config:
        """The settings, as the command line reads them."""
        return self.comparison.config

    @property
    def table(self) -> pd.DataFrame:
        """A row per variant: its settings, error, difference from the first row, and statistics of its weights."""
        from attn_exp.report import tables  # noqa: PLC0415 - pandas is slow to import

        return tables.comparison(self.comparison)

    @property
    def distances(self) -> pd.DataFrame:
        """The difference between the outputs of every two variants."""
        from attn_exp.report import tables  # noqa: PLC0415

        return tables.distances(self.comparison)

    @property
    def published(self) -> pd.DataFrame:
        """A row per printed result of a document, and whether the run agrees with it."""
        from attn_exp.report import tables  # noqa: PLC0415

        return tables.published(self.comparison)

    def steps(self, variant: str = "", against: str = "") -> pd.DataFrame:
        """Explain the difference between a row and the baseline, one setting at a time; without a variant, for all
        rows.

        `against` starts from another row. `moved` is how far a step moves the output from the one before, `least` and
        `most` the range of that over the `orders` of the settings. Steps that a stored run lacks, such as one of an
        earlier version, are computed now.

        Raises:
            UserError: there is no such variant, or it could not be computed.
        """
        from attn_exp.report import tables  # noqa: PLC0415

        run = self.comparison
        found = run.steps
        if against or not run.taken_apart:
            start = chosen(against, [row.variant for row in run.rows if row.same_as], "row") if against else None
            changed = run.config if start is None else replace(run.config, against=start)
            found = ladder.ladders(replace(run, config=changed))[0]
        wanted = chosen(variant, run.traces, "variant") if variant else ""
        return tables.steps([step for step in found if wanted in ("", step.variant)])

    def stage(self, variant: str, name: str, head: int = 1) -> pd.DataFrame:
        """Return a stage of a variant, `q`, `logits`, `weights`, `output` and so on, with tokens as labels.

        Heads count from 1, here and in every table and picture that people read.

        Raises:
            UserError: there is no such variant, it did not form that stage, or it has no such head.
        """
        from attn_exp.report import tables  # noqa: PLC0415

        return tables.stage(self.comparison, variant, name, head)

    def array(self, variant: str, name: str) -> NDArray[Any]:
        """Return a stage of a variant as an array, such as its weights `[h t s]` or its output `[t m]`.

        Raises:
            UserError: there is no such variant, or it did not form that stage.
        """
        formed = dict(self.comparison.traces[chosen(variant, self.comparison.traces, "variant")].stages())
        return np.array(formed[chosen(name, formed, f"stage of {variant}")])

    def figure(self, name: str = "weights") -> Drawing:
        """Return a figure of the report, which shows itself in a notebook: `weights`, `distances`, `entropy`, ...

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
            config = replace(config, output_dir=str(folder(output_dir, "output_dir")))
        store.check_writable(Path(config.output_dir))
        return execution.write(replace(self.comparison, config=config), self.timings, self.repeat)

    def __repr__(self) -> str:
        return terminal.summary(self.comparison)

    def _repr_html_(self) -> str:
        from attn_exp.report.notebook import run  # noqa: PLC0415 - only notebooks ask for it

        return run(self.comparison, self.timings)
