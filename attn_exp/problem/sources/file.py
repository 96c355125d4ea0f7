"""Read x from a file, with its token names if it has any; or q, k and v; or weights and v."""

from __future__ import annotations

from attn_exp.errors import UserError, brief, unknown
from attn_exp.problem import files
from attn_exp.problem.files import Held
from attn_exp.problem.from_files import drop_batch_axis, group_names, listed, meant_start
from attn_exp.problem.sources.source import Asked, Source, Vectors

BINARY = (".npy", ".npz", ".safetensors")
"""Formats whose header contains the shape."""


def read(asked: Asked) -> Vectors:
    key = f"{asked.path}.file"
    held, said = files.look(asked.own, key), files.name_file(key, asked.own)
    arrays = {}
    for stage, name in choose_arrays(held, asked.settings.array, said).items():
        place = f"{said}: {name}" if name else said
        arrays[stage] = drop_batch_axis(files.numbers(held.arrays[name], place), place)
    return Vectors(arrays.pop("x", None), held.tokens, arrays)


def choose_arrays(held: Held, array: str | None, said: str) -> dict[str, str]:
    """Return which array of a file is x, or which are q, k and v, or weights and v.

    Raises:
        UserError: no array has such a name, or several do.
    """
    known = list(held.arrays)
    if array and known == [""]:
        raise UserError(f"{said} holds one array, without a name; leave out embeddings.array={brief(array)}")
    if array is not None and array not in held.arrays:
        raise UserError(f"{said}: {unknown(array, known, 'embeddings.array')}")
    if array is not None or "" in held.arrays or len(known) == 1:
        return {"x": array if array is not None else "" if "" in held.arrays else known[0]}
    called = group_names(known, meant_start)
    wanted = next(
        (stages for stages in (("x",), ("q", "k", "v"), ("q", "k"), ("weights", "v")) if set(stages) <= set(called)), ()
    )
    if not wanted or any(len(called[stage]) > 1 for stage in wanted):
        raise UserError(
            f"{said} holds {listed(held)}; expected one named x or embeddings; embeddings.array=NAME selects another"
        )
    return {stage: called[stage][0] for stage in wanted}


def size(asked: Asked) -> tuple[int, int] | None:
    """Return the shape of x if the file's header contains it; None for text files, which have no header."""
    if not asked.own.lower().endswith(BINARY):
        return None
    try:
        held = files.look(asked.own, "embeddings.file")
        shape = held.arrays[choose_arrays(held, asked.settings.array, "")["x"]].shape
    except (UserError, KeyError):
        return None  # reading the file raises the error
    shape = shape[1:] if len(shape) == 3 and shape[0] == 1 else shape
    return (shape[0], shape[1]) if len(shape) == 2 else None


SOURCE = Source(read=read, size=size, turns=True)
