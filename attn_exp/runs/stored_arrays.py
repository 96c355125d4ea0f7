"""Arrays next to settings: those passed from Python, large ones named by their hash, and `results.npz`.

Settings name the arrays that are too large to type, and the run's array file stores them. It is read without running
code and without trusting its sizes; the arrays of the problem must fit each other.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.config.large_arrays import MARK, as_numbers, name_of, stored
from attn_exp.config.spelling import spelled
from attn_exp.errors import first_line
from attn_exp.experiment.comparison import Comparison
from attn_exp.forms.trace import Summary, Trace
from attn_exp.problem.matrices import BIASES, MATRICES
from attn_exp.problem.problem import Problem
from attn_exp.runs.trust import DamagedError

FILE = "results.npz"
PROBLEM = {"x": "pm", "memory": "sn", "q": "ta", "k": "sb", "v": "sc", "weights": "ts"}
PROJECTIONS = {"W_q": "ma", "W_k": "nb", "W_v": "nc", "W_o": "uw", "b_q": "a", "b_k": "b", "b_v": "c", "b_o": "w"}
STAGES = {"q": "htd", "k": "gsd", "v": "gse", "lse": "ht", "context": "hte", "output": "tm"}
STAGES |= dict.fromkeys(("scores", "logits", "capped", "masked", "weights"), "hts")
"""Axes of each array; a letter has one size everywhere."""

INPUTS = ("tokens", "memory", "vectors", "q", "k", "v", "weights")
BESIDE = {"tokens", "memory"}
"""Inputs that accompany any other input and cannot be the only one."""


def split_arrays(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    inputs = {key: as_plain(value) for key, value in settings.items() if key in INPUTS}
    return inputs, {key: as_plain(value) for key, value in settings.items() if key in (*MATRICES, *BIASES)}


def as_plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: as_plain(item) for key, item in value.items()}
    return [as_plain(item) for item in value] if isinstance(value, list | tuple) else value


def words_to_start(inputs: Mapping[str, Any]) -> list[str]:
    """Return the words that make the input start at the stage of the given arrays; empty if only names are given."""
    if "vectors" in inputs:
        return ["embeddings=inline"]
    return ["embeddings=inline", "projections=none"] if inputs.keys() - BESIDE else []


def with_arrays(
    composed: Mapping[str, Any], inputs: Mapping[str, Any], projections: Mapping[str, Any]
) -> dict[str, Any]:
    settings = dict(composed)
    if inputs:
        kept = composed["embeddings"] if inputs.keys() <= BESIDE else {}
        settings["embeddings"] = {**kept, **inputs}
    if projections:
        section = composed["projections"]
        settings["projections"] = {**section, "given": {**(section.get("given") or {}), **projections}}
    return settings


def named_or_spelled(value: Any) -> str:
    array = as_numbers(value)
    return spelled(value) if array is None else stored(name_of(array))


def plain_settings(value: Any, arrays: dict[str, Array]) -> Any:
    """Convert settings to plain values; large arrays move to `arrays`, leaving `{"array": name}`."""
    if is_dataclass(value):
        return {field.name: plain_settings(getattr(value, field.name), arrays) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: plain_settings(item, arrays) for key, item in value.items()}
    if not isinstance(value, list | tuple | np.ndarray):
        return value
    array = as_numbers(value)
    if array is None:
        return value.tolist() if isinstance(value, np.ndarray) else [plain_settings(item, arrays) for item in value]
    name = name_of(array)
    arrays[name] = array
    return {MARK: name}


def put_back(value: Any, arrays: Mapping[str, Array]) -> Any:
    """Return settings with every named array inserted.

    Raises:
        KeyError: an array is missing.
    """
    if isinstance(value, Mapping):
        if set(value) == {MARK} and isinstance(value[MARK], str):
            return arrays[stored(value[MARK])].tolist()
        return {key: put_back(item, arrays) for key, item in value.items()}
    return [put_back(item, arrays) for item in value] if isinstance(value, list) else value


def named_arrays(comparison: Comparison) -> dict[str, Any]:
    """Return all arrays of a run by name: problem, projections, settings, `<variant>/<stage>` and steps."""
    problem = comparison.problem
    named: dict[str, Any] = {field.name: getattr(problem, field.name) for field in fields(problem)}
    named |= named.pop("projections")
    named.pop("marks")  # rules, which the settings describe
    for variant, trace in comparison.traces.items():
        named |= {f"{variant}/{stage}": array for stage, array in trace.stages()}
        if trace.summary is not None:
            named |= {f"{variant}/summary/{name}": array for name, array in vars(trace.summary).items()}
    for (variant, step), trace in comparison.rungs.items():
        named |= {f"{place_of_step(variant, step)}/{stage}": array for stage, array in trace.stages()}
    given: dict[str, Array] = {}
    plain_settings(comparison.config, given)
    named |= {stored(name): array for name, array in given.items()}
    return {name: np.asarray(array) for name, array in named.items() if array is not None}


def load_arrays(folder: Path) -> dict[str, Array]:
    """Load the arrays of a run.

    Raises:
        OSError: there is no such file, or not a regular one.
        DamagedError: it is invalid, or claims sizes that its bytes do not have.
    """
    from attn_exp.problem.files.numpy_files import load_archive  # noqa: PLC0415 - a run that is written needs none

    try:
        return load_archive(folder / FILE)
    except (ValueError, MemoryError) as error:
        raise DamagedError(f"{FILE}: {first_line(error)}") from error


def problem_from(results: Mapping[str, Array]) -> Problem:
    """Restore the problem from the arrays of a run.

    Raises:
        DamagedError: the arrays do not fit each other.
    """
    names = {field.name for field in fields(Problem)} - {"tokens", "key_tokens", "projections", "past", "marks"}
    projections = {name: array for name, array in results.items() if "/" not in name and name[:2] in ("W_", "b_")}
    named = results["tokens"], results["key_tokens"]
    if not all(map(are_texts, named)):
        raise DamagedError("tokens are not a list of texts")
    tokens, key_tokens = (tuple(map(str, texts)) for texts in named)
    stages: dict[str, Any] = {name: results.get(name) for name in names}
    past = results.get("past", np.array(0))
    if past.ndim or past.dtype.kind not in "iu":
        raise DamagedError("past is not a count of tokens")
    problem = Problem(tokens=tokens, key_tokens=key_tokens, projections=projections, past=int(past), **stages)
    check_problem(problem)
    return problem


def place_of_step(variant: str, step: int) -> str:
    """Return the prefix of the stages after one step of a variant's comparison with the baseline."""
    return f"{variant}/step {step}"


def are_texts(array: Array) -> bool:
    """Return whether an array is a list of valid texts: NumPy accepts any number as a character."""
    if array.dtype.kind != "U" or array.ndim != 1:
        return False
    codes = np.frombuffer(array.astype(array.dtype.newbyteorder("=")).tobytes(), np.uint32)
    return not (codes > sys.maxunicode).any()


def trace_from(results: Mapping[str, Array], place: str) -> Trace:
    stages: dict[str, Any] = {field.name: results.get(f"{place}/{field.name}") for field in fields(Trace)}
    parts: dict[str, Any] = {field.name: results.get(f"{place}/summary/{field.name}") for field in fields(Summary)}
    whole = all(part is not None for part in parts.values())
    return Trace(**stages | {"summary": Summary(**parts) if whole else None})


def check_problem(problem: Problem) -> None:
    """Check that the arrays of a problem fit each other.

    Raises:
        DamagedError: what does not fit.
    """
    queries, keys, past = len(problem.tokens), len(problem.key_tokens), problem.past
    arrays = {name: getattr(problem, name) for name in PROBLEM} | dict(problem.projections)
    given = {name for name, array in arrays.items() if array is not None}
    is_input = {"q", "k"} <= given or "weights" in given
    is_projected = ("x" in given) == ({"W_q", "W_k", "W_v"} <= given) and ("x" in given or not problem.projections)
    if not queries or not keys or past < 0 or (past and keys != past + queries) or not (is_input and is_projected):
        raise DamagedError(f"{', '.join(sorted(given)) or 'nothing'} does not fit {queries} queries and {keys} keys")
    sizes = {"t": queries, "s": keys, "p": past + queries}
    if problem.memory is None and problem.x is not None and problem.x.ndim == 2:
        sizes["n"] = problem.x.shape[1]
    check_shapes(arrays, PROBLEM | PROJECTIONS, sizes)
    for name in given & PROBLEM.keys():
        if not np.isfinite(arrays[name]).all():
            raise DamagedError(f"{name} holds numbers that are not finite")


def check_shapes(arrays: Mapping[str, Any], shapes: Mapping[str, str], sizes: dict[str, int]) -> None:
    for name, array in arrays.items():
        letters = shapes.get(name, "")
        if array is not None and (
            array.dtype.kind != "f"
            or array.ndim != len(letters)
            or any(sizes.setdefault(letter, size) != size for letter, size in zip(letters, array.shape, strict=True))
        ):
            expected = ",".join(str(sizes.get(letter, "any")) for letter in letters)
            raise DamagedError(f"{name} is {array.dtype} {list(array.shape)}; expected floats [{expected}]")
