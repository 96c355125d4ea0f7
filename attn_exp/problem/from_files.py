"""The arrays of a problem that lie in files: which of a file's arrays is meant, and how it lies there.

Projections lie whole, head by head, turned as `nn.Linear` keeps them, or three in one. Each becomes what a run computes
with: W_q, W_k, W_v `[m h*d]`, W_o `[h*e m]`, a bias one row. What does not fit says its own shape and the one expected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from attn_exp.arrays import Array
from attn_exp.config.inputs import Projections
from attn_exp.errors import UserError, brief, some, unknown
from attn_exp.problem import array_names, files
from attn_exp.problem.files.format import Held
from attn_exp.problem.files.json import array_of_lists
from attn_exp.problem.matrices import PRINTED, as_printed

NEEDED = ("W_q", "W_k", "W_v")


class Sizes(NamedTuple):
    """What an array has to fit: the width of x, the number of heads, and the size of v where that is known.

    `memory` is the width of a memory, which W_k and W_v project in the place of x.
    """

    d_model: int
    head: int
    v: int | None = None
    memory: int | None = None

    def of(self, name: str) -> Sizes:
        """Return the sizes that an array has to fit, whose `d_model` is the width of what it projects."""
        return self._replace(d_model=self.memory) if self.memory is not None and name in ("W_k", "W_v") else self


def read_array(file: str, key: str, wanted: str = "") -> Array:
    """Return the array of a file that holds one, or calls one as the setting does, such as `W_q`; or of a print."""
    if PRINTED.match(file):
        return as_printed(file, key)
    held = files.look(file, key)
    alike = [name for name in held.arrays if wanted and (array_names.meant_projection(name) or ("",))[0] == wanted]
    alike = alike or [name for name in held.arrays if name == wanted]
    if len(held.arrays) != 1 and len(alike) != 1:
        called = f" that is called {wanted}" if wanted else ""
        raise UserError(f"{key}={brief(file, files.LONGEST)} holds {listed(held)}; expected one array{called}")
    name = alike[0] if len(alike) == 1 else next(iter(held.arrays))
    return files.numbers(held.arrays[name], f"{key}={brief(file, files.LONGEST)}{f': {name}' * bool(name)}")


def rows(file: str, key: str, wanted: str) -> Array:
    """Return the array of a file as rows and columns.

    Raises:
        UserError: as `read_array`, or another shape.
    """
    matrix = read_array(file, key, wanted)
    matrix = matrix[0] if matrix.ndim == 3 and len(matrix) == 1 else matrix
    if matrix.ndim != 2 or not matrix.size:
        raise files.no_matrix(f"{key}={brief(file, files.LONGEST)}", matrix.shape, heads=wanted != "weights")
    return matrix


def tokens(file: str, key: str) -> tuple[str, ...]:
    """Return the names of tokens in a file: one in each line of a text, or all in one line; or those of an array.

    Raises:
        UserError: a file that holds none.
    """
    if file.lower().endswith(".txt"):
        lines = [line.strip() for line in files.text(file, key).splitlines() if line.strip()]
        named: tuple[str, ...] | None = tuple(lines[0].split() if len(lines) == 1 else lines)
    else:
        named = files.look(file, key).tokens
    if not named:
        raise UserError(f"{key}={brief(file, files.LONGEST)} holds no names of tokens")
    return named


def listed(held: Held) -> str:
    """Write the names of what a file holds."""
    return some([name or "an array without a name" for name in held.arrays], 100) if held.arrays else "no arrays"


def projections(settings: Projections, sizes: Sizes) -> dict[str, Array]:
    """Return the projections of `projections.file`, whatever it calls them; nothing where there is none.

    Raises:
        UserError: one that is missing, that several names mean, or that does not fit.
    """
    if settings.file is None:
        return {}
    if not settings.file:
        raise UserError("projections=file needs a file: write projections.file=weights.npz")
    held = files.look(settings.file, "projections.file")
    said = f"projections.file={brief(settings.file, files.LONGEST)}"
    meant = chosen(settings, held, said)
    arrays: dict[str, Array] = {}
    for role in sorted(meant, key=lambda role: ("Wb".find(role[0]), "qkvo".find(role[-1]))):  # W_o has to fit W_v
        array = files.numbers(held.arrays[meant[role]], f"{said}: {meant[role]}")
        known = sizes._replace(v=arrays["W_v"].shape[1] if "W_v" in arrays else None)
        where, turned = f"{said}: {meant[role]}", settings.turned
        three = role.endswith("qkv")
        parts = split_threefold(array, role, known, turned, where) if three else {role: array}
        arrays |= {name: laid_out(part, name, known, turned, where) for name, part in parts.items()}
    check_whole(arrays, settings, held, said)
    return arrays


def chosen(settings: Projections, held: Held, said: str) -> dict[str, str]:
    """Return which array of a file each projection is: as the settings name it, else as it is called.

    Raises:
        UserError: a name that is not there, or several that mean one thing.
    """
    inside = {name.removeprefix(settings.prefix): name for name in held.arrays if name.startswith(settings.prefix)}
    if not inside:
        raise UserError(
            f"{said}: no name begins with projections.prefix={brief(settings.prefix)}; it holds {listed(held)}"
        )
    chosen = {role: str(name) for role, name in settings.names.items() if name is not None}
    for role, name in chosen.items():
        if name not in held.arrays:
            raise UserError(f"{said}: {unknown(name, list(held.arrays), f'array for projections.names.{role}')}")
    called = {role: several for role, several in array_names.by_projection(inside).items() if role not in chosen}
    for role, several in called.items():
        if len(several) > 1:
            raise UserError(
                f"{said}: {some(several, 80)} may all be {role}; say which with projections.names.{role}=..., or where "
                "with projections.prefix=..."
            )
    return {role: inside[several[0]] for role, several in called.items()} | chosen


def check_whole(arrays: Mapping[str, Array], settings: Projections, held: Held, said: str) -> None:
    """Refuse a file that lacks a projection which nothing else gives."""
    missing = [name for name in NEEDED if name not in {**arrays, **settings.given, **settings.printed}]
    if missing and "" in held.arrays:
        file, name = brief(settings.file or "", 60), missing[0]
        raise UserError(
            f"{said} holds an array without a name; +projections.given.{name}={file} says that it is {name}"
        )
    if missing:
        raise UserError(
            f"{said} has no {' and no '.join(missing)}: it holds {listed(held)}; projections.names.{missing[0]}=NAME "
            "says which it is"
        )


def typed(given: Any, name: str, sizes: Sizes, turned: bool) -> Array:
    """Return an array that the settings name by its file, or write head by head."""
    key = f"projections.given.{name}"
    if isinstance(given, str):
        return laid_out(read_array(given, key, name), name, sizes, turned, f"{key}={brief(given, files.LONGEST)}")
    return laid_out(files.numbers(array_of_lists(given), key), name, sizes, turned, key)


def laid_out(array: Array, name: str, sizes: Sizes, turned: bool, said: str) -> Array:
    """Return an array `[m h*d]`, `[h m d]`, `[m h d]`, or `turned`, as one matrix `[m h*d]`, and a bias as `[1 h*d]`.

    Raises:
        UserError: another shape; `said` names where the array comes from.
    """
    sizes = sizes.of(name)
    if name.startswith("b_"):
        return bias_row(array, sizes.head, said)
    if array.ndim == 3:
        return join_heads(np.swapaxes(array, 1, 2) if turned else array, name == "W_o", sizes, turned, said)
    if array.ndim != 2:
        raise shape_error(array, "rows and columns, or heads of them", said)
    matrix = array.T if turned else array
    if name == "W_o":
        rows, meaning, columns = sizes.v, "the size of v", "m"
    else:
        width = "d_model" if sizes.of(name) is sizes else "the memory's width"
        rows, meaning, columns = sizes.d_model, width, "h*d"
    if rows is not None and len(matrix) != rows:
        hint = f"; it fits with projections.turned={str(not turned).lower()}" if matrix.shape[1] == rows else ""
        expected = f"[{columns},{rows}]" if turned else f"[{rows},{columns}]"
        raise shape_error(array, expected, said, f", {meaning}={rows}{hint}")
    return matrix


def join_heads(array: Array, output: bool, sizes: Sizes, turned: bool, said: str) -> Array:
    """Return matrices of heads, `[h m d]` or JAX's `[m h d]`, side by side, and those of W_o, `[h d m]`, one above the
    other.

    Keys and values may have fewer heads, which the queries share.
    """
    heads, rows, _ = array.shape
    if output:
        if sizes.head % heads:
            raise shape_error(array, f"[{sizes.head},d,m]", said, f", one matrix for each of head={sizes.head}")
        return array.reshape(heads * rows, -1)
    if rows == sizes.d_model and sizes.head % heads == 0:
        return array.swapaxes(0, 1).reshape(rows, -1)
    if not turned and heads == sizes.d_model and sizes.head % rows == 0:
        return array.reshape(heads, -1)
    expected = f"[{sizes.head},d,{sizes.d_model}]" if turned else f"[{sizes.head},{sizes.d_model},d]"
    raise shape_error(array, expected, said, f", one matrix for each of head={sizes.head}")


def bias_row(array: Array, head: int, said: str) -> Array:
    """Return a bias `[h*d]`, `[h d]`, or as one row or one column, as one row."""
    if array.ndim == 1 or (array.ndim == 2 and (1 in array.shape or head % array.shape[0] == 0)):
        return array.reshape(1, -1)
    raise shape_error(array, f"[h*d], or [{head},d] by heads", said)


def split_threefold(array: Array, name: str, sizes: Sizes, turned: bool, said: str) -> dict[str, Array]:
    """Return the three arrays of one that holds queries, keys and values side by side: `[m 3n]`, or `[3n]`."""
    axis = 0 if turned and array.ndim == 2 else array.ndim - 1
    if not is_threefold(array, axis, sizes.d_model):
        expected = f"[3n,{sizes.d_model}]" if turned else f"[{sizes.d_model},3n]"
        turns = array.ndim == 2 and is_threefold(array, 1 - axis, sizes.d_model)
        hint = f"; it fits with projections.turned={str(not turned).lower()}" if turns else ""
        raise shape_error(array, expected, said, f", queries, keys and values side by side{hint}")
    return {f"{name[:2]}{letter}": part for letter, part in zip("qkv", np.split(array, 3, axis), strict=True)}


def is_threefold(array: Array, axis: int, d_model: int) -> bool:
    """Say whether an array can be three side by side along an axis, the other one as wide as x."""
    return array.ndim in (1, 2) and array.shape[axis] % 3 == 0 and (array.ndim == 1 or array.shape[1 - axis] == d_model)


def shape_error(array: Array, expected: str, said: str, why: str = "") -> UserError:
    """Return the line that says which shape an array has, and which was expected."""
    shape = ",".join(map(str, array.shape))
    return UserError(f"{said} has the shape [{shape}]; expected {expected}{why}")
