"""Parts as Parquet files: a dataset that DuckDB and others query without loading it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from io import BytesIO
from pathlib import Path
from typing import Any, get_type_hints

from attn_exp import machine
from attn_exp.errors import UserError
from attn_exp.experiment.row import Row
from attn_exp.runs.records import cell
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


def kinds(columns: Sequence[str], axes: Sequence[Mapping[str, Any]], metrics: Sequence[str]) -> dict[str, str]:
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


def encoded(text: bytes, types: Mapping[str, str]) -> bytes:
    """Convert CSV to Parquet; only an empty cell is null."""
    arrow = library()
    csv = arrow.csv
    aliases = {"string": arrow.string(), "int64": arrow.int64(), "double": arrow.float64(), "bool": arrow.bool_()}
    convert = csv.ConvertOptions(
        column_types={name: aliases[kind] for name, kind in types.items()}, null_values=[""], strings_can_be_null=False
    )
    read = csv.ReadOptions(use_threads=False)
    parse = csv.ParseOptions(newlines_in_values=True)
    table = csv.read_csv(BytesIO(text), convert_options=convert, read_options=read, parse_options=parse)
    stream = BytesIO()
    arrow.parquet.write_table(table, stream)
    return stream.getvalue()


def lines(path: Path) -> Iterator[list[str]]:
    """Yield the rows of a part as CSV cells."""
    with machine.opened(path) as file:
        for batch in library().parquet.ParquetFile(file).iter_batches(1000):
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield [value if isinstance(value, str) else cell(value) for value in row]
