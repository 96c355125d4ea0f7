"""A comparison as pandas DataFrames, for notebooks and further analysis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import pandas as pd

from attn_exp.errors import UserError, chosen, given, shown
from attn_exp.experiment.comparison import Comparison, Run
from attn_exp.experiment.row import Agreement, Distance, Row, Step, Timing
from attn_exp.report.walk import names


def comparison(run: Comparison) -> pd.DataFrame:
    """Return a row per variant, indexed by its name; the columns are the fields of `Row`."""
    return frame(Row, run.rows).set_index("variant")


def distances(run: Comparison) -> pd.DataFrame:
    """Return a row per pair of variants."""
    return frame(Distance, run.distances)


def steps(found: Sequence[Step]) -> pd.DataFrame:
    """Return a row per step of a ladder: which setting it changes, and how far that moves the answer."""
    return frame(Step, found)


def published(run: Comparison) -> pd.DataFrame:
    """Return a row per published result, whether the run agrees with it and by how much."""
    return frame(Agreement, run.published)


def timings(run: Run) -> pd.DataFrame:
    """Return a row per variant, times in seconds, memory in bytes."""
    return frame(Timing, run.timings).set_index("variant")


def stage(run: Comparison, variant: str, name: str, head: int = 1) -> pd.DataFrame:
    """Return one stage of one variant with tokens as labels, such as the weights of its first head, which is head 1.

    Raises:
        UserError: there is no such variant, it did not form that stage, or it has no such head.
    """
    formed = dict(run.traces[chosen(variant, run.traces, "variant")].stages())
    array = formed[chosen(name, formed, "stage", variant)]
    heads = array if array.ndim == 3 else (array.T if name == "lse" else array)[None]
    check_head(head, len(heads), f"{name} of {variant}")
    matrix = np.asarray(heads[int(head) - 1])
    rows, columns = names(name, run, matrix.shape, vector=False)
    return pd.DataFrame(matrix, index=list(rows), columns=list(columns))


def check_head(head: Any, count: int, whose: str) -> None:
    """Refuse a head that is not there; for people they count from 1.

    Raises:
        UserError: the head, and which there are.
    """
    if not isinstance(head, int | float | np.number | str):
        raise UserError(f"head is {given(head)}; expected a whole number from 1 to {count}")
    if head not in range(1, count + 1):
        known = "one head; choose 1" if count == 1 else f"{count} heads, counted from 1; choose 1 to {count}"
        raise UserError(f"head={shown(head)}: {whose} has {known}")


def frame(schema: type, records: Sequence[Any]) -> pd.DataFrame:
    """Return records as a frame, a column for each field."""
    return pd.DataFrame([asdict(record) for record in records], columns=[field.name for field in fields(schema)])
