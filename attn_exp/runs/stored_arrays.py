"""Arrays next to settings: those passed from Python, large ones named by their hash, and `results.npz`.

Settings name the arrays that are too large to type, and the run's array file stores them. It is read without running
code and without trusting its sizes.
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
from attn_exp.experiment.row import Step
from attn_exp.forms.trace import Summary, Trace
from attn_exp.problem.matrices import BIASES, MATRICES
from attn_exp.problem.problem import Problem
from attn_exp.runs import stored_shapes
from attn_exp.runs.trust import DamagedError

FILE = "results.npz"

INPUTS = ("tokens", "memory", "vectors", "q", "k", "v", "weights")
BESIDE = {"tokens", "memory"}
"""Inputs that accompany any other input and cannot be the only one."""


def split_arrays(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the arrays of the input from those of the projections, as plain lists."""
    inputs = {key: as_plain(value) for key, value in settings.items() if key in INPUTS}
    return inputs, {key: as_plain(value) for key, value in settings.items() if key in (*MATRICES, *BIASES)}


def as_plain(value: Any) -> Any:
    """Convert a value to lists and Python numbers."""
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
    """Insert the arrays into the composed settings."""
    settings = dict(composed)
    if inputs:
        kept = composed["embeddings"] if inputs.keys() <= BESIDE else {}
        settings["embeddings"] = {**kept, **inputs}
    if projections:
        section = composed["projections"]
        settings["projections"] = {**section, "given": {**(section.get("given") or {}), **projections}}
    return settings


def named_or_spelled(value: Any) -> str:
    """Return a value as it is typed, or the name of an array too large to type."""
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
        named |= {rung_name(variant, step, stage): array for stage, array in trace.stages()}
    given: dict[str, Array] = {}
    plain_settings(comparison.config, given)
    named |= {stored(name): array for name, array in given.items()}
    return {name: np.asarray(array) for name, array in named.items() if array is not None}


def load_arrays(path: Path) -> dict[str, Array]:
    """Load the arrays of a run.

    Raises:
        OSError: there is no such file, or no regular one.
        DamagedError: it is invalid, or claims sizes that its bytes do not have.
    """
    from attn_exp.problem.files.numpy_files import load_archive  # noqa: PLC0415 - a run that is written needs none

    try:
        return load_archive(path)
    except (ValueError, MemoryError) as error:
        raise DamagedError(f"{path.name}: {first_line(error)}") from error


def problem_from(results: Mapping[str, Array]) -> Problem:
    """Restore the problem from the arrays of a run.

    Raises:
        DamagedError: the arrays do not fit each other.
    """
    names = {field.name for field in fields(Problem)} - {"tokens", "key_tokens", "projections", "past", "marks"}
    projections = {name: array for name, array in results.items() if "/" not in name and name[:2] in ("W_", "b_")}
    named = results["tokens"], results["key_tokens"]
    if not all(map(are_texts, named)):
        raise DamagedError("tokens are no list of texts")
    tokens, key_tokens = (tuple(map(str, texts)) for texts in named)
    stages: dict[str, Any] = {name: results.get(name) for name in names}
    past = results.get("past", np.array(0))
    if past.ndim or past.dtype.kind not in "iu":
        raise DamagedError("past is no count of tokens")
    problem = Problem(tokens=tokens, key_tokens=key_tokens, projections=projections, past=int(past), **stages)
    stored_shapes.check_problem(problem)
    return problem


def rung_name(variant: str, step: int, stage: str) -> str:
    """Return the name of a stage after one step of a variant's comparison with the baseline."""
    return f"{variant}/step {step}/{stage}"


def rung_from(results: Mapping[str, Array], step: Step) -> Trace:
    """Restore the stored arrays after a step."""
    weights, output = (results.get(rung_name(step.variant, step.step, name)) for name in ("weights", "output"))
    return Trace(weights=weights, output=output)


def are_texts(array: Array) -> bool:
    """Return whether an array is a list of valid texts: NumPy accepts any number as a character."""
    if array.dtype.kind != "U" or array.ndim != 1:
        return False
    codes = np.frombuffer(array.astype(array.dtype.newbyteorder("=")).tobytes(), np.uint32)
    return not (codes > sys.maxunicode).any()


def trace_from(results: Mapping[str, Array], variant: str) -> Trace:
    """Restore the trace of a variant from the arrays of a run."""
    stages: dict[str, Any] = {field.name: results.get(f"{variant}/{field.name}") for field in fields(Trace)}
    parts: dict[str, Any] = {field.name: results.get(f"{variant}/summary/{field.name}") for field in fields(Summary)}
    whole = all(part is not None for part in parts.values())
    return Trace(**stages | {"summary": Summary(**parts) if whole else None})
