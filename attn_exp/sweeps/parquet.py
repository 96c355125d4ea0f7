"""Results as a Parquet file, which DuckDB and others query without loading it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from io import BytesIO
from typing import Any, get_type_hints

from attn_exp.errors import UserError
from attn_exp.experiment.row import Row
from attn_exp.sweeps.rows import Axes
from attn_exp.sweeps.task import row_columns


def library() -> Any:
    """Import `pyarrow` with its CSV and Parquet readers, an optional dependency that is slow to import.

    Raises:
        UserError: it is not installed; a sweep with this format checks before anything starts.
    """
    try:
        import pyarrow.csv  # noqa: PLC0415 - see above
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError as error:
        raise UserError("sweep.format=parquet is not installed; pip install 'attn-exp[parquet]'") from error
    return pyarrow


def kinds(columns: Sequence[str], axes: Axes, metrics: Sequence[str]) -> dict[str, str]:
    """Return the type of each column: by the fields of a row, by the values of an axis, else string."""
    known = {int: "int64", float: "double", bool: "bool"}
    hints = get_type_hints(Row)
    types = dict.fromkeys(columns, "string") | {"point": "int64"}
    types |= {
        name: known.get(hints[field.name], "string") for name, field in zip(row_columns(), fields(Row), strict=True)
    }
    types |= dict.fromkeys(metrics, "double")
    swept = {"int": "int64", "float": "double", "bool": "bool"}
    types |= {axis["column"]: swept.get(axis["kind"], "string") for axis in axes}
    return types


def encoded(pieces: Iterable[bytes], types: Mapping[str, str]) -> bytes:
    """Convert a table in CSV to Parquet, a piece at a time; only an empty cell is null."""
    arrow, head, stream = library(), next(pieces := iter(pieces)), BytesIO()
    aliases = {"string": arrow.string(), "int64": arrow.int64(), "double": arrow.float64(), "bool": arrow.bool_()}
    columns = {name: aliases[kind] for name, kind in types.items()}
    convert = arrow.csv.ConvertOptions(column_types=columns, null_values=[""], strings_can_be_null=False)
    parse, read = arrow.csv.ParseOptions(newlines_in_values=True), arrow.csv.ReadOptions(use_threads=False)
    with arrow.parquet.ParquetWriter(stream, arrow.schema(list(columns.items()))) as writer:
        for piece in pieces:
            writer.write_table(arrow.csv.read_csv(BytesIO(head + piece), read, parse, convert))
    return stream.getvalue()
