"""Repeats a run from its own settings, or one point of a sweep as a run of its own."""

from __future__ import annotations

import json
from pathlib import Path

from attn_exp.config.read import read
from attn_exp.errors import UserError
from attn_exp.runs.execution import run
from attn_exp.sweep import manifest
from attn_exp.sweep.points import command, point_words


def again(folder: Path, point: str | None) -> str:
    """Run it again and return what a run prints.

    Raises:
        UserError: neither a run nor a sweep there, or no such point.
    """
    if (folder / "run.json").is_file():
        return run_again(folder)
    about = manifest.load(folder)
    if point is None or not point.isdecimal() or int(point) >= about["points"]:
        raise UserError(f"{folder} is a sweep; name one of its points, 0 to {about['points'] - 1}")
    from attn_exp.config.compose import composed  # noqa: PLC0415 - a run's own settings need no Hydra

    return run(composed(*point_words(about, int(point)), typed=False), command(about, int(point))).text


def run_again(folder: Path) -> str:
    """Run the very settings that a run has written, whatever the YAML says today."""
    try:
        about = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        config = read(about["config"])
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{folder}: its run.json cannot be read ({error})") from error
    return run(config, about["command"]).text
