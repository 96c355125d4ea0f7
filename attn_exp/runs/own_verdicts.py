"""Verdicts on functions of the user's own, kept beside a run, so that its report needs none of their code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from attn_exp.runs import trust
from attn_exp.runs.trust import DamagedError

if TYPE_CHECKING:
    from attn_exp.experiment.verdict import Cells, Smallest, Verdict

FILE = "own.json"
FINDING = dict.fromkeys(("rung", "state", "said"), str)
STAGE = {"name": str, "right": [[[str]]], "mine": [[[str]]], "parts": bool}
SMALLEST = {**dict.fromkeys(("python", "command", "mine", "right"), str), "stages": [STAGE]}
VERDICT = {
    "variant": str, "name": str, "passed": bool, "mistakes": [str], "computes": str, "findings": [FINDING],
    "asked": str, "alike": [[str]], "smallest": (dict, NoneType), "seconds": float,
}  # fmt: skip


def write(verdicts: Mapping[str, Verdict], folder: Path) -> list[str]:
    """Write the verdicts of a run, by variant, and return the name of the file; nothing where there is none."""
    if not verdicts:
        return []
    plain = [{"variant": name, **verdict.plain()} for name, verdict in verdicts.items()]
    text = json.dumps({"verdicts": plain}, indent=1) + "\n"
    (folder / FILE).write_bytes(text.encode())
    return [FILE]


def load(folder: Path) -> dict[str, Verdict]:
    """Return the verdicts of a run, by variant.

    Raises:
        DamagedError: the file holds something else.
    """
    try:
        plain = trust.read_json(folder / FILE, {"verdicts": [VERDICT]})["verdicts"]
    except FileNotFoundError:
        return {}
    return {verdict["variant"]: verdict_from(verdict) for verdict in plain}


def verdict_from(plain: Mapping[str, Any]) -> Verdict:
    """Return one verdict."""
    from attn_exp.experiment.verdict import Finding, Verdict  # noqa: PLC0415 - most runs have none

    return Verdict(
        name=plain["name"],
        passed=plain["passed"],
        mistakes=tuple(plain["mistakes"]),
        computes=plain["computes"],
        findings=tuple(Finding(line["rung"], line["state"], line["said"]) for line in plain["findings"]),
        asked=plain["asked"],
        alike=tuple(map(tuple, plain["alike"])),
        smallest=None if plain["smallest"] is None else smallest_from(plain["smallest"]),
        seconds=plain["seconds"],
    )


def smallest_from(plain: Mapping[str, Any]) -> Smallest:
    """Return the smallest case of a verdict."""
    from attn_exp.experiment.verdict import Smallest, Stage  # noqa: PLC0415 - as above

    trust.check_shape(plain, SMALLEST, f"{FILE}: smallest")
    stages = tuple(
        Stage(stage["name"], cells(stage["right"]), cells(stage["mine"]), stage["parts"]) for stage in plain["stages"]
    )
    return Smallest(plain["python"], plain["command"], plain["mine"], plain["right"], stages)


def cells(matrices: list[list[list[str]]]) -> Cells:
    """Return lists as tuples."""
    if any(not matrix or len({len(row) for row in matrix}) > 1 for matrix in matrices):
        raise DamagedError(f"{FILE}: a stage whose rows are of unequal lengths")
    return tuple(tuple(map(tuple, matrix)) for matrix in matrices)
