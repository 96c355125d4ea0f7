"""A comparison as pandas DataFrames, for notebooks and further analysis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import pandas as pd

from attn_exp.errors import UserError, unknown
from attn_exp.experiment.comparison import Comparison, Run
from attn_exp.experiment.documents.published import Agreement
from attn_exp.experiment.row import Distance, Row
from attn_exp.experiment.timing import Timing
from attn_exp.report.walk import names


def comparison(shown: Comparison) -> pd.DataFrame:
    """Return a row per variant, indexed by its name; the columns are the fields of `Row`."""
    return frame(Row, shown.rows).set_index("variant")


def distances(shown: Comparison) -> pd.DataFrame:
    """Return a row per pair of variants."""
    return frame(Distance, shown.distances)


def published(shown: Comparison) -> pd.DataFrame:
    """Return a row per published result, whether the run agrees with it and by how much."""
    return frame(Agreement, shown.published)


def timings(run: Run) -> pd.DataFrame:
    """Return a row per variant, times in seconds, memory in bytes."""
    return frame(Timing, run.timings).set_index("variant")


def stage(shown: Comparison, variant: str, name: str, head: int = 0) -> pd.DataFrame:
    """Return one stage of one variant with tokens as labels, such as the weights of its first head.

    Raises:
        UserError: there is no such variant, or it did not form that stage.
    """
    if variant not in shown.traces:
        raise UserError(unknown(variant, list(shown.traces), "variant"))
    formed = dict(shown.traces[variant].stages())
    if name not in formed:
        raise UserError(unknown(name, list(formed), f"stage of {variant}"))
    array = formed[name]
    matrix = np.asarray(array if array.ndim == 2 else array[head])
    rows, columns = names(name, shown, matrix.shape, vector=False)
    return pd.DataFrame(matrix, index=list(rows), columns=list(columns))


def frame(schema: type, records: Sequence[Any]) -> pd.DataFrame:
    return pd.DataFrame([asdict(record) for record in records], columns=[field.name for field in fields(schema)])
