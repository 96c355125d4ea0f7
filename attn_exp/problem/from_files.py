"""Find the arrays of a problem in files by their names, and convert their layout.

A projection may be one matrix or one per head; it may be transposed as in `nn.Linear`, or fused with others. It is
converted to the layout of a run: W_q, W_k, W_v `[m h*d]`, W_o `[h*e m]`, and a bias as one row.

Common names of arrays, matched from the end, so that `layers.0.attn.W_q.weight` is W_q:

- matrices: W_q, Wq, W_query, q_proj, query_proj, to_q, q_lin, linear_q, query, q; and with .weight, _weight or .kernel
- output matrix: W_o, Wo, W_out, o_proj, out_proj, to_out.0, out_lin, c_proj, dense, output
- biases: b_q, bq, bias_q, q_bias, beta_q, and .bias after the name of a matrix
- fused: in_proj_weight, in_proj_bias, c_attn, qkv, qkv_proj, Wqkv, to_qkv
- x: x, X, embeddings, embedding, vectors, inputs, hidden_states
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from attn_exp.arrays import Array, Arrays
from attn_exp.config.inputs import Projections
from attn_exp.errors import UserError, brief, some, unknown
from attn_exp.problem import files
from attn_exp.problem.drawing import PRINTED, is_plain, parse_printed
from attn_exp.problem.files import Contents, read_text
from attn_exp.problem.files.tables import make_list_entry
from attn_exp.problem.projections import MATRICES, Inputs


def read_array(file: str, key: str, wanted: str = "") -> Array:
    """Read one array of a file: the array whose name means `wanted`, or else the only array.

    `file` may also be an array as it was printed, such as `[[1. 2.] [3. 4.]]`, which is parsed.
    """
    if PRINTED.match(file):
        return parse_printed(file, key)
    contents, label = files.list_file(file, key), files.format_label(key, file)
    matching = group_names(contents.arrays, guess_projection).get(wanted) or [
        name for name in contents.arrays if name == wanted
    ]
    names = matching or list(contents.arrays)
    if len(names) != 1:
        expected = f" named {wanted}" if wanted else ""
        raise UserError(f"{label} holds {format_names(contents)}; expected one array{expected}")
    return files.read_numbers(contents.arrays[names[0]], f"{label}: {names[0]}" if names[0] else label)


def read_matrix_file(file: str, key: str, wanted: str) -> Array:
    return drop_batch_axis(read_array(file, key, wanted), files.format_label(key, file))


def drop_batch_axis(array: Array, label: str) -> Array:
    matrix = array[0] if array.ndim == 3 and len(array) == 1 else array
    if matrix.ndim != 2 or not matrix.size:
        several = "; put heads side by side in columns, and run a batch as several runs (-m)" if array.ndim > 2 else ""
        expected = f"expected rows and columns, such as [3,4]{several}"
        raise UserError(f"{label} holds an array of shape {list(array.shape)}; {expected}")
    return matrix


def read_tokens(file: str, key: str) -> tuple[str, ...]:
    """Read token names from a file.

    A text file has one name per line, or all names in one line. Any other file stores the names with its arrays.

    Raises:
        UserError: the file holds no token names.
    """
    label = files.format_label(key, file)
    if file.lower().endswith(".txt"):
        try:
            lines = [line.strip() for line in read_text(Path(file)).splitlines() if line.strip()]
        except (OSError, ValueError) as error:
            raise files.unreadable_error(label, error) from error
        names: tuple[str, ...] | None = tuple(lines[0].split() if len(lines) == 1 else lines)
    else:
        names = files.list_file(file, key).tokens
    if not names:
        raise UserError(f"{label} holds no token names")
    return names


def format_names(contents: Contents) -> str:
    return (
        some([name or "an array without a name" for name in contents.arrays], 100) if contents.arrays else "no arrays"
    )


def read_projections(settings: Projections, inputs: Inputs, head: int) -> dict[str, Array]:
    """Return the projections that come from files or have one matrix per head, by name, in the layout of a run.

    They are the arrays of `projections.file`, and those in `projections.given` that are a file or one matrix per head.

    Raises:
        UserError: an array is missing, ambiguous, or does not fit.
    """
    arrays: dict[str, Array] = {}
    if settings.file == "":
        raise UserError("projections=file needs a file: write projections.file=weights.npz")
    if settings.file is not None:
        contents = files.list_file(settings.file, "projections.file")
        label = files.format_label("projections.file", settings.file)
        for role, name in find_projections(settings, contents, label).items():
            array = files.read_numbers(contents.arrays[name], f"{label}: {name}")
            arrays |= convert_layout(array, role, inputs, head, settings.transposed, f"{label}: {name}")
        require_all(arrays, settings, contents, label)
    for name, value in settings.given.items():
        if not is_plain(value):
            key, transposed = f"projections.given.{name}", settings.columns or settings.transposed
            is_file = isinstance(value, str)
            array = read_array(value, key, name) if is_file else files.read_numbers(make_list_entry(value), key)
            arrays |= convert_layout(
                array, name, inputs, head, transposed, files.format_label(key, value) if is_file else key
            )
    return arrays


def find_projections(settings: Projections, contents: Contents, label: str) -> dict[str, str]:
    full_names = {
        name.removeprefix(settings.prefix): name for name in contents.arrays if name.startswith(settings.prefix)
    }
    if not full_names:
        raise UserError(
            f"{label}: no name begins with projections.prefix={brief(settings.prefix)}; "
            f"it holds {format_names(contents)}"
        )
    chosen = {role: name for role, name in settings.names.items() if name is not None}
    for role, name in chosen.items():
        if name not in contents.arrays:
            raise UserError(f"{label}: {unknown(name, list(contents.arrays), f'array for projections.names.{role}')}")
    for role, candidates in group_names(full_names, guess_projection).items():
        if role not in chosen and len(candidates) > 1:
            raise UserError(
                f"{label}: {some(candidates, 80)} could each be {role}; choose one with projections.names.{role}=..., "
                "or a layer with projections.prefix=..."
            )
        chosen.setdefault(role, full_names[candidates[0]])
    return chosen


def require_all(arrays: Arrays, settings: Projections, contents: Contents, label: str) -> None:
    missing = [name for name in MATRICES[:3] if name not in {**arrays, **settings.given, **settings.printed}]
    if missing and "" in contents.arrays:
        file, name = brief(settings.file or "", 60), missing[0]
        raise UserError(
            f"{label} holds an array without a name; if it is {name}, write +projections.given.{name}={file}"
        )
    if missing:
        raise UserError(
            f"{label} has no {' and no '.join(missing)}: it holds {format_names(contents)}; "
            f"projections.names.{missing[0]}=NAME names the right one"
        )


def convert_layout(
    array: Array, name: str, inputs: Inputs, head: int, transposed: bool, label: str
) -> dict[str, Array]:
    """Return an array by name, in the layout of a run: a matrix `[m h*d]` or a bias `[1 h*d]`.

    A fused array gives three arrays, for queries, keys and values. Any other array may be `[m h*d]`, `[h m d]`,
    `[m h d]`, or a transpose of these. `label` names the array in error messages.

    Raises:
        UserError: the array has none of these shapes.
    """
    if name.endswith("qkv"):
        axis = 0 if transposed else -1
        if array.ndim not in (1, 2) or array.shape[axis] % 3:
            expected = f"[3n,{inputs.width()}]" if transposed else f"[{inputs.width()},3n]"
            raise shape_error(array, f"{expected}, queries, keys and values side by side", label)
        arrays: dict[str, Array] = {}
        for letter, part in zip("qkv", np.split(array, 3, axis), strict=True):
            arrays |= convert_layout(part, name[:2] + letter, inputs, head, transposed, label)
        return arrays
    if name.startswith("b_"):
        return {name: array.reshape(1, -1)}
    if array.ndim == 3:
        array, transposed = join_heads(array, name, inputs.width(name), head, transposed, label), False
    if array.ndim != 2:
        raise shape_error(array, "rows and columns, or one such matrix per head", label)
    return {name: array.T if transposed else array}


def join_heads(array: Array, name: str, width: int, head: int, transposed: bool, label: str) -> Array:
    """Return one matrix, given one matrix per head.

    For W_q, W_k and W_v, the columns of the heads are concatenated; for W_o, their rows. There may be fewer key/value
    heads than query heads: several query heads then share one.
    """
    stacked = np.swapaxes(array, 1, 2) if transposed else array
    first, second, _ = stacked.shape
    if name == "W_o" and head % first == 0:  # [h d m]
        return stacked.reshape(first * second, -1)
    if name != "W_o" and second == width and head % first == 0:  # [h m d]
        return stacked.swapaxes(0, 1).reshape(second, -1)
    if name != "W_o" and not transposed and first == width and head % second == 0:  # [m h d], as in JAX
        return stacked.reshape(first, -1)
    expected = "d,m" if name == "W_o" else f"d,{width}" if transposed else f"{width},d"
    raise shape_error(array, f"[{head},{expected}], one matrix per head (head={head})", label)


def shape_error(array: Array, expected: str, label: str) -> UserError:
    return UserError(f"{label} has the shape [{','.join(map(str, array.shape))}]; expected {expected}")


# The meaning of names

LETTERS = {
    "q": "q|query|queries",
    "k": "k|key|keys",
    "v": "v|value|values|val",
    "o": "o|out|output|c_proj|dense|fc_out",
    "qkv": "qkv|in_proj|c_attn",
}
# what may precede a word (W_q, to_q) or follow it (q_proj, query_weight)
BEFORE = r"(?:w|weight|weights|kernel|omega|linear|lin|to|attn|proj)_?"
AFTER = r"_?(?:proj|projection|linear|lin|layer|weights?|kernel|matrix)(?:_(?:weights?|kernel))?"
# MATRIX: names of matrices. BARE: the words alone, which may also be other arrays. BIAS: names of biases.
MATRIX = {
    letter: re.compile(f"{BEFORE}(?:{words})(?:{AFTER})?|(?:{words}){AFTER}") for letter, words in LETTERS.items()
}
BARE = {letter: re.compile(words) for letter, words in LETTERS.items()}
BIAS = {
    letter: re.compile(f"(?:b|bias|beta)_?(?:{words})|(?:{words})(?:_?(?:proj|lin|linear))?_?(?:b|bias)")
    for letter, words in LETTERS.items()
}
STARTS = {
    "x": re.compile(r"x|embeddings?|vectors?|inputs?|input_embeddings|hidden_states?"),
    "weights": re.compile(r"weights|attention_weights|attn_weights"),
} | {letter: BARE[letter] for letter in "qkv"}


def split_name(name: str) -> list[str]:
    """Split a name into parts in lower case, without the layer number: `"attn.Q.0.weight" -> ["attn", "q", "weight"]`.

    Only a number at the end, or just before a part such as "weight", counts as a layer number.
    """
    parts = [part for part in re.split(r"[./\s]+", name.strip().lower()) if part]
    kinds = ("weight", "weights", "kernel", "bias", "w", "b")
    while len(parts) > 1 and (parts[-1].isdigit() or (parts[-1] in kinds and parts[-2].isdigit())):
        parts.pop(-1 if parts[-1].isdigit() else -2)
    return parts


def guess_projection(name: str) -> tuple[str, int] | None:
    """Return the projection that a name means, such as `W_q` or `b_qkv`, and its rank; None for other names.

    The rank is 0 for an exact name such as `q_proj`, and 1 for a guess such as `q`.
    """
    parts = split_name(name)
    if not parts:
        return None
    last, before = parts[-1], parts[-2] if len(parts) > 1 else ""
    for letter in LETTERS:
        is_matrix_name = any(form[letter].fullmatch(before) for form in (MATRIX, BARE))
        if BIAS[letter].fullmatch(last) or (last in ("bias", "b") and is_matrix_name):
            return f"b_{letter}", 0
        if MATRIX[letter].fullmatch(last) or (last in ("weight", "weights", "kernel", "w") and is_matrix_name):
            return f"W_{letter}", 0
        if BARE[letter].fullmatch(last):
            return f"W_{letter}", 1
    return None


def guess_stage(name: str) -> tuple[str, int] | None:
    """Return the starting stage that a name means, `x`, `q`, `k`, `v` or `weights`, and a rank; None for other names.

    The rank is always 0, which means an exact name in `guess_projection`.
    """
    parts = split_name(name) or [""]
    last = parts[-2] if parts[-1] in ("weight", "kernel") and len(parts) > 1 else parts[-1]
    return next(((start, 0) for start, words in STARTS.items() if words.fullmatch(last)), None)


def group_names(names: Iterable[str], meaning: Callable[[str], tuple[str, int] | None]) -> dict[str, list[str]]:
    """Group names by what they mean, such as `W_q`; an exact name wins over guesses.

    `meaning` is `guess_projection` or `guess_stage`.
    """
    roles: dict[str, dict[int, list[str]]] = {}
    for name in names:
        if (role_and_rank := meaning(name)) is not None:
            roles.setdefault(role_and_rank[0], {}).setdefault(role_and_rank[1], []).append(name)
    return {role: by_rank[min(by_rank)] for role, by_rank in roles.items()}
