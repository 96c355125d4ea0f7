"""Input files of a run: recorded by hash, and replaced by the run's stored arrays if they have changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from attn_exp.config import large_arrays
from attn_exp.config.inputs import Embeddings, Projections
from attn_exp.config.schema import Config
from attn_exp.config.spelling import spelled
from attn_exp.errors import brief, refuse
from attn_exp.problem import input_files
from attn_exp.problem.problem import Problem
from attn_exp.runs import stored_arrays, trust

KEY = "inputs"
STAGES = ("vectors", "q", "k", "v", "weights")
Record = Mapping[str, str]
RECORD = dict.fromkeys(("setting", "file", "sha256"), str)


def recorded(settings: Any, swept: Iterable[tuple[str, Any]] = ()) -> dict[str, Any]:
    """Return the stored record of the files that settings and swept values name, or an empty dict."""
    named = [(key, value) for key, value in swept if input_files.is_file(key) and isinstance(value, str)]
    files = dict.fromkeys([*input_files.of(settings).items(), *named])
    records = [{"setting": key, "file": file, "sha256": input_files.fingerprint(file, key)} for key, file in files]
    return {KEY: records} if records else {}


def problem_of(folder: Path) -> Problem:
    """Load the problem that a run stored.

    Raises:
        UserError: there is none, or it cannot be read.
    """
    with refuse(f"{folder}: the arrays that it kept cannot be read", *trust.UNREADABLE):
        return stored_arrays.problem_from(stored_arrays.load_arrays(folder / stored_arrays.FILE))


def changed(config: Config, records: Iterable[Record]) -> dict[str, str]:
    """Return, by setting, a description of each file that has changed."""
    known = {(record["setting"], record["file"]): record for record in records}
    states = {key: state(key, file, known.get((key, file))) for key, file in input_files.of(config).items()}
    return {key: state for key, state in states.items() if state}


def state(key: str, file: str, record: Record | None) -> str:
    """Describe how a file differs from its record; empty if it is the same."""
    if record is None or not record["sha256"]:
        return f"{brief(file)} was not recorded"
    now = input_files.fingerprint(file, key)
    if not now:
        return f"{brief(file)} is gone"
    return "" if now == record["sha256"] else f"{brief(file)} has changed since"


def kept(config: Config, problem: Problem) -> Config:
    """Return the settings with the run's stored arrays in place of everything that it read or drew."""
    projections = config.projections
    if problem.projections:
        given = {name: matrix.tolist() for name, matrix in problem.projections.items()}
        projections = Projections(source="identity", given=given)
    return replace(config, embeddings=as_started(problem), projections=projections, draws=None)


def as_started(problem: Problem) -> Embeddings:
    """Return the settings of an input that starts at the arrays of a problem."""
    tokens = problem.key_tokens if problem.past else problem.tokens
    vectors = None if problem.memory is None else problem.memory.tolist()
    others = problem.past == 0 and problem.key_tokens != problem.tokens
    memory = Embeddings(tokens=problem.key_tokens, vectors=vectors) if others or vectors else None
    if problem.x is not None:
        return Embeddings(tokens=tokens, vectors=problem.x.tolist(), memory=memory)
    stages = ("weights", "v") if problem.weights is not None else ("q", "k", "v")
    arrays: dict[str, Any] = {name: getattr(problem, name) for name in stages}
    lists = {name: array.tolist() for name, array in arrays.items() if array is not None}
    return Embeddings(tokens=tokens, memory=memory, **lists)


def renamed(words: Sequence[str], config: Config, settings: Iterable[str]) -> tuple[str, ...]:
    """Return the words of a command with array names in place of files that have changed."""
    gone = set(settings)
    sections = {setting.partition(".")[0] for setting in gone}
    memory = config.embeddings.memory if "embeddings" in sections else None
    left = [word for word in words if not is_gone(word.partition("=")[0].lstrip("+"), gone, memory is not None)]
    given = config.projections.given if "projections" in sections else {}
    stages = [field.name for field in fields(Embeddings) if field.name in STAGES and "embeddings" in sections]
    arrays = {f"embeddings.{name}": getattr(config.embeddings, name) for name in stages}
    arrays |= {f"++projections.given.{name}": matrix for name, matrix in given.items()}
    if memory is not None:
        left.append(f"embeddings.memory.tokens={spelled(memory.tokens)}")
        arrays["embeddings.memory.vectors"] = memory.vectors
    named = {
        key: large_arrays.stored(large_arrays.name_of(np.array(array)))
        for key, array in arrays.items()
        if array is not None
    }
    return (*left, *(f"{key}={name}" for key, name in named.items()))


def is_gone(key: str, gone: set[str], memory: bool) -> bool:
    """Return whether a word is about a changed file, or about a `memory` that is written anew."""
    return key in gone or (memory and f"{key}.".startswith("embeddings.memory."))
