"""What a folder on disk may decide when its run is repeated: settings, but neither where to write nor what to read
of the machine."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from attn_exp.errors import UserError
from attn_exp.report.plain import plain

USUAL = "outputs"
PLAIN_INTERPOLATION = re.compile(r"\$\{[\w.\[\]]+\}")
"""One that reads another setting; what else stands in `${...}` can read the environment."""

HYDRAS_OWN = re.compile(r"[+~]*hydra\b")


def output_dir(named: str) -> str:
    """Return the output folder that a run names if it lies under the folder that the user is in; else the usual one."""
    here = Path.cwd().resolve()
    inside = not Path(named).is_absolute() and (here / named).resolve().is_relative_to(here)
    return named if inside else USUAL


def words(command: Iterable[str], folder: Path) -> list[str]:
    """Return the words of a command that are settings and nothing else.

    Raises:
        UserError: an option, a setting of Hydra's own, or an interpolation that could read the environment.
    """
    checked = list(command)
    for word in checked:
        if word.lstrip().startswith("-") or HYDRAS_OWN.match(word.lstrip()):
            raise UserError(f"{folder}: {plain(word)} is no setting of a run; it is not followed")
        if "${" in PLAIN_INTERPOLATION.sub("", word):
            raise UserError(f"{folder}: {plain(word)} could read more than settings; it is not followed")
    return checked
