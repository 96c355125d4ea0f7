"""`results.npz`: every array of a run by name, read without running anything and without trusting its sizes."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from attn_exp import machine
from attn_exp.arrays import Array
from attn_exp.config import large
from attn_exp.experiment.comparison import Comparison
from attn_exp.forms.trace import Summary, Trace
from attn_exp.problem.problem import Problem
from attn_exp.runs import arrays
from attn_exp.runs.json_file import DamagedError

FILE = "results.npz"


def of(comparison: Comparison) -> dict[str, Any]:
    """Name every array of a run: those of the problem, its projections, its settings, and `<variant>/<stage>`."""
    problem = comparison.problem
    named: dict[str, Any] = {field.name: getattr(problem, field.name) for field in fields(problem)}
    named |= named.pop("projections")
    for variant, trace in comparison.traces.items():
        named |= {f"{variant}/{stage}": array for stage, array in trace.stages()}
        if trace.summary is not None:
            named |= {f"{variant}/summary/{name}": array for name, array in vars(trace.summary).items()}
    given: dict[str, Array] = {}
    arrays.settings(comparison.config, given)
    named |= {large.stored(name): array for name, array in given.items()}
    return {name: np.asarray(array) for name, array in named.items() if array is not None}


def load(path: Path) -> dict[str, Array]:
    """Return the arrays of a run.

    Raises:
        OSError: there is no such file, or no regular one.
        DamagedError: it holds something else, or claims sizes that its bytes do not have.
    """
    with machine.opened(path) as file:
        try:
            check_sizes(zipfile.ZipFile(file))
            file.seek(0)
            with np.load(file, allow_pickle=False) as stored:
                return dict(stored)
        except DamagedError:
            raise
        except Exception as error:  # the readers of ZIP and of NumPy raise a dozen kinds for bytes that are not theirs
            raise DamagedError(f"{path.name} holds no arrays that can be read") from error


def check_sizes(archive: zipfile.ZipFile) -> None:
    """Refuse an archive whose files could be larger than itself: those of a run are stored as they are."""
    if any(item.compress_type != zipfile.ZIP_STORED for item in archive.infolist()):
        raise DamagedError(f"{FILE} is packed otherwise than a run packs it")


def problem_from(results: Mapping[str, Array]) -> Problem:
    """Put the problem together from the arrays of a run."""
    names = {field.name for field in fields(Problem)} - {"tokens", "key_tokens", "projections", "past"}
    projections = {name: array for name, array in results.items() if "/" not in name and name[:2] in ("W_", "b_")}
    tokens, key_tokens = (tuple(str(token) for token in results[name]) for name in ("tokens", "key_tokens"))
    stages: dict[str, Any] = {name: results.get(name) for name in names}
    past = int(results.get("past", np.array(0)))
    return Problem(tokens=tokens, key_tokens=key_tokens, projections=projections, past=past, **stages)


def trace_from(results: Mapping[str, Array], variant: str) -> Trace:
    """Put the trace of a variant together from the arrays of a run."""
    stages: dict[str, Any] = {field.name: results.get(f"{variant}/{field.name}") for field in fields(Trace)}
    parts: dict[str, Any] = {field.name: results.get(f"{variant}/summary/{field.name}") for field in fields(Summary)}
    whole = all(part is not None for part in parts.values())
    return Trace(**stages | {"summary": Summary(**parts) if whole else None})
