"""A comparison as pandas DataFrames, for notebooks and further analysis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import pandas as pd

from attn_exp.errors import UserError, chosen, shown
from attn_exp.experiment.comparison import Comparison, Run
from attn_exp.experiment.row import Agreement, Distance, Row, Step, Timing
from attn_exp.report.walk import names


def comparison(run: Comparison) -> pd.DataFrame:
    """Return a row per variant, indexed by its name; the columns are the fields of `Row`."""
    return frame(Row, run.rows).set_index("variant")


def distances(run: Comparison) -> pd.DataFrame:
    return frame(Distance, run.distances)


def steps(found: Sequence[Step]) -> pd.DataFrame:
    """Return a row per step of a ladder: the setting it changes, and how far that moves the output."""
    return frame(Step, found)


def published(run: Comparison) -> pd.DataFrame:
    """Return a row per published result: whether the run agrees with it, and the difference."""
    return frame(Agreement, run.published)


def timings(run: Run) -> pd.DataFrame:
    return frame(Timing, run.timings).set_index("variant")


def stage(run: Comparison, variant: str, name: str, head: object = 1) -> pd.DataFrame:
    """Return one stage of one variant labelled with tokens, such as the weights of its first head, `head=1`.

    Raises:
        UserError: no such variant, a stage that it did not form, or no such head.
    """
    formed = dict(run.traces[chosen(variant, run.traces, "variant")].stages())
    array = formed[chosen(name, formed, f"stage of {variant}")]
    heads = array if array.ndim == 3 else (array.T if name == "lse" else array)[None]
    if not isinstance(head, int | np.integer) or head not in range(1, len(heads) + 1):
        known = (
            "one head; choose 1" if len(heads) == 1 else f"{len(heads)} heads, counted from 1; choose 1 to {len(heads)}"
        )
        raise UserError(f"head={shown(head)}: {name} of {variant} has {known}")
    matrix = np.asarray(heads[int(head) - 1])
    rows, columns = names(name, run, matrix.shape, vector=False)
    return pd.DataFrame(matrix, index=list(rows), columns=list(columns))


def frame(schema: type, records: Sequence[Any]) -> pd.DataFrame:
    return pd.DataFrame([asdict(record) for record in records], columns=[field.name for field in fields(schema)])
