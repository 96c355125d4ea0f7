"""Read the input from a file: x; or q, k and v; or weights and v; and the token names, if there are any."""

from __future__ import annotations

from attn_exp.errors import UserError, brief, unknown
from attn_exp.problem import files
from attn_exp.problem.files import Contents
from attn_exp.problem.from_files import drop_batch_axis, format_names, group_names, guess_stage
from attn_exp.problem.sources.source import Source, SourceRequest, Vectors

BINARY = (".npy", ".npz", ".safetensors")
"""Formats whose header contains the shape."""


def read(request: SourceRequest) -> Vectors:
    key = f"{request.path}.file"
    contents, label = files.list_file(request.own, key), files.format_label(key, request.own)
    arrays = {}
    for stage, name in choose_arrays(contents, request.settings.array, label).items():
        array_label = f"{label}: {name}" if name else label
        arrays[stage] = drop_batch_axis(files.read_numbers(contents.arrays[name], array_label), array_label)
    return Vectors(arrays.pop("x", None), contents.tokens, arrays)


def choose_arrays(contents: Contents, array: str | None, label: str) -> dict[str, str]:
    """Return the names of the arrays to start from, by stage, such as `{"x": "embeddings"}`.

    The stages are x; or q and k, perhaps with v; or weights and v.

    Raises:
        UserError: no array has such a name, or several do.
    """
    names = list(contents.arrays)
    if array and names == [""]:
        raise UserError(f"{label} holds one array, without a name; leave out embeddings.array={brief(array)}")
    if array is not None and array not in contents.arrays:
        raise UserError(f"{label}: {unknown(array, names, 'embeddings.array')}")
    if array is not None or "" in contents.arrays or len(names) == 1:
        return {"x": array if array is not None else "" if "" in contents.arrays else names[0]}
    candidates = group_names(names, guess_stage)
    chosen = next(
        (
            stages
            for stages in (("x",), ("q", "k", "v"), ("q", "k"), ("weights", "v"))
            if set(stages) <= set(candidates)
        ),
        (),
    )
    if not chosen or any(len(candidates[stage]) > 1 for stage in chosen):
        raise UserError(
            f"{label} holds {format_names(contents)}; expected one named x or embeddings; "
            "embeddings.array=NAME selects another"
        )
    return {stage: candidates[stage][0] for stage in chosen}


def size(request: SourceRequest) -> tuple[int, int] | None:
    """Return the shape of x if the file's header contains it; None for text files, which have no header."""
    if not request.own.lower().endswith(BINARY):
        return None
    try:
        contents = files.list_file(request.own, "embeddings.file")
        shape = contents.arrays[choose_arrays(contents, request.settings.array, "")["x"]].shape
    except (UserError, KeyError):
        return None  # reading the file raises the error
    shape = shape[1:] if len(shape) == 3 and shape[0] == 1 else shape
    return (shape[0], shape[1]) if len(shape) == 2 else None


SOURCE = Source(read=read, size=size, turns=True)
