"""The input of a problem: token names and the arrays it starts from."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attn_exp.config.schema import Draw, Embeddings
from attn_exp.errors import UserError, shown
from attn_exp.streams import draw, legacy_draw

Array = NDArray[Any]


class Start(NamedTuple):
    """What a problem starts from: token names `[t]`, and the arrays of its first stage; None where not given."""

    tokens: tuple[str, ...]
    x: Array | None
    q: Array | None
    k: Array | None
    v: Array | None
    weights: Array | None


def start(settings: Embeddings, seed: int) -> Start:
    """Return the start that the settings describe, tokens always in rows.

    Raises:
        UserError: no or several starting stages, arrays that are ragged, empty, not numbers or not finite, or not as
            many tokens as vectors.
    """
    names, x = vectors(settings, seed)
    q, k, v, weights = (
        None if given is None else array(given, f"embeddings.{key}")
        for key, given in (
            ("q", settings.q),
            ("k", settings.k),
            ("v", settings.v),
            ("weights", settings.weights),
        )
    )
    check_stage(x, q, k, weights)
    if x is not None and settings.d_model is not None and settings.d_model != x.shape[1]:
        raise UserError(f"embeddings.d_model={settings.d_model}, but the vectors have {x.shape[1]} numbers")
    first = next(stage for stage in (x, q, weights) if stage is not None)
    own_names = settings.tokens if isinstance(settings.tokens, tuple) or names is None else names
    return Start(token_names(own_names, len(first)), x, q, k, v, weights)


def vectors(settings: Embeddings, seed: int) -> tuple[tuple[str, ...] | None, Array | None]:
    """Return the token names that a file holds, and x `[t m]`, from whichever source the settings name."""
    given = [name for name in ("file", "vectors", "distribution") if getattr(settings, name) is not None]
    if len(given) > 1:
        raise UserError(f"embeddings.{given[0]} and embeddings.{given[1]} both say what x is; give one of them")
    if settings.file is not None:
        names, x = read_file(Path(settings.file))
        return names, x.T if settings.columns else x
    if settings.vectors is not None:
        x = array(settings.vectors, "embeddings.vectors")
        return None, x.T if settings.columns else x
    if settings.distribution is None:
        return None, None
    if settings.tokens is None or settings.d_model is None:
        raise UserError("embeddings.distribution needs embeddings.tokens and embeddings.d_model")
    count = settings.tokens if isinstance(settings.tokens, int) else len(settings.tokens)
    return None, draw(seed, "x", settings.distribution, (count, settings.d_model))


def array(given: Any, key: str) -> Array:
    """Return numbers as a matrix of float64, or draw what a `Draw` describes."""
    if isinstance(given, Draw):
        return legacy_draw(np.random.RandomState(given.legacy_seed), given.distribution, given.shape)
    if not isinstance(given, (list, tuple)) or not given or not all(isinstance(row, (list, tuple)) for row in given):
        raise UserError(f"{key}={shown(given)}: expected a list of rows, such as [[1,0],[0,1]]")
    widths = {len(row) for row in given}
    if len(widths) > 1:
        raise UserError(f"{key} is ragged: rows of {', '.join(str(len(row)) for row in given)} numbers")
    if widths == {0}:
        raise UserError(f"{key} is empty: expected at least one number in each row")
    for place, row in enumerate(given):
        for entry in row:
            if isinstance(entry, bool) or not isinstance(entry, (int, float)):
                held = repr(entry) if isinstance(entry, str) else shown(entry)
                raise UserError(f"{key}: row {place} holds {held}, which is not a number")
    return finite(np.array(given, dtype=np.float64), key)


def finite(matrix: Array, key: str) -> Array:
    """Return the matrix, or say where it holds NaN or infinity."""
    bad = np.argwhere(~np.isfinite(matrix))
    if len(bad):
        row, column = bad[0]
        raise UserError(f"{key}: row {row}, column {column} holds {matrix[row, column]}; expected finite numbers")
    return matrix


def read_file(path: Path) -> tuple[tuple[str, ...] | None, Array]:
    """Read x from a .npy file, or from a .csv file whose first column may hold the token names."""
    try:
        if path.suffix == ".npy":
            matrix = np.load(path, allow_pickle=False)
            return None, array(matrix.tolist(), f"embeddings.file={path}")
        with path.open(newline="", encoding="utf-8") as lines:
            rows = [row for row in csv.reader(lines) if row]
    except (OSError, ValueError, EOFError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        reason = "no NumPy file of plain numbers" if "pickle" in reason else reason
        raise UserError(f"embeddings.file={path}: cannot be read ({reason})") from error
    named = bool(rows) and not all(is_number(row[0]) for row in rows)
    names = tuple(row[0] for row in rows) if named else None
    cells = [[float(cell) if is_number(cell) else cell for cell in row[named:]] for row in rows]
    return names, array(cells, f"embeddings.file={path}")


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def check_stage(x: Array | None, q: Array | None, k: Array | None, weights: Array | None) -> None:
    """Refuse a problem that starts nowhere, or at two stages at once."""
    if (q is None) != (k is None):
        raise UserError("embeddings.q and embeddings.k go together; only one is given")
    stages = [name for name, stage in (("vectors", x), ("q and k", q), ("weights", weights)) if stage is not None]
    if not stages:
        raise UserError("embeddings has nothing to start from; give embeddings.vectors, a file, q and k, or weights")
    if len(stages) > 1:
        raise UserError(f"embeddings starts at {' and at '.join(stages)}; give one of them")


def token_names(given: tuple[str, ...] | int | None, count: int) -> tuple[str, ...]:
    """Return the names given, or `x0`, `x1`, ...; there must be one for each row."""
    if given is None or isinstance(given, int):
        if given is not None and given != count:
            raise UserError(f"embeddings.tokens={given}, but there are {count} vectors")
        return tuple(f"x{place}" for place in range(count))
    if len(given) != count:
        raise UserError(f"embeddings.tokens names {len(given)} tokens, but there are {count} vectors")
    return given
