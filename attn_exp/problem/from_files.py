"""The arrays of a problem that lie in files: which of a file's arrays is meant, and how it lies there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attn_exp.arrays import Array
from attn_exp.config.inputs import Projections
from attn_exp.errors import UserError, brief, some, unknown
from attn_exp.problem import files, names
from attn_exp.problem.files.format import Held
from attn_exp.problem.files.json import array_of_lists
from attn_exp.problem.layouts import Sizes, laid_out, parted
from attn_exp.problem.matrices import PRINTED, as_printed

NEEDED = ("W_q", "W_k", "W_v")


def one(file: str, key: str, wanted: str = "") -> Array:
    """Return the array of a file that holds one, or calls one as the setting does, such as `W_q`; or of a print."""
    if PRINTED.match(file):
        return as_printed(file, key)
    held = files.look(file, key)
    alike = [name for name in held.arrays if wanted and (names.projection(name) or ("",))[0] == wanted]
    alike = alike or [name for name in held.arrays if name == wanted]
    if len(held.arrays) != 1 and len(alike) != 1:
        called = f" that is called {wanted}" if wanted else ""
        raise UserError(f"{key}={brief(file, files.LONGEST)} holds {listed(held)}; expected one array{called}")
    name = alike[0] if len(alike) == 1 else next(iter(held.arrays))
    return files.numbers(held.arrays[name], f"{key}={brief(file, files.LONGEST)}{f': {name}' * bool(name)}")


def rows(file: str, key: str, wanted: str) -> Array:
    """Return the array of a file as rows and columns.

    Raises:
        UserError: as `one`, or another shape.
    """
    matrix = one(file, key, wanted)
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
        fitting = sizes._replace(v=width(arrays.get("W_v")))
        arrays |= read(role, array, fitting, settings.turned, f"{said}: {meant[role]}")
    check_whole(arrays, settings, held, said)
    return arrays


def width(matrix: Array | None) -> int | None:
    """Return how many columns a matrix has, if there is one."""
    return None if matrix is None else int(matrix.shape[1])


def read(role: str, array: Array, sizes: Sizes, turned: bool, said: str) -> dict[str, Array]:
    """Return the matrices that one array of a file holds: one, or three."""
    parts = parted(array, role, sizes, turned, said) if role.endswith("qkv") else {role: array}
    return {name: laid_out(part, name, sizes, turned, said) for name, part in parts.items()}


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
    called = {role: several for role, several in names.named(inside).items() if role not in chosen}
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
        return laid_out(one(given, key, name), name, sizes, turned, f"{key}={brief(given, files.LONGEST)}")
    return laid_out(files.numbers(array_of_lists(given), key), name, sizes, turned, key)
