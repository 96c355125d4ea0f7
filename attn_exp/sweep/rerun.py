"""Repeats a run from its own settings, or one point of a sweep as a run of its own."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from attn_exp.config.repeat import Repeat
from attn_exp.config.schema import Config
from attn_exp.errors import UserError
from attn_exp.runs import store, trust
from attn_exp.runs.execution import run
from attn_exp.sweep import manifest
from attn_exp.sweep.points import command


def again(folder: Path, point: str | None) -> str:
    """Run it again, under the folder that the user is in, and return what a run prints.

    Raises:
        UserError: neither a run nor a sweep there, no such point, or words that are no settings.
    """
    if os.path.lexists(folder / "run.json"):
        config, words = store.settings_of(folder)
        return run(here(config), Repeat(tuple(trust.words(words, folder)))).text
    about = manifest.load(folder)
    if point is None or not point.isdecimal() or int(point) >= about["points"]:
        raise UserError(f"{folder} is a sweep; name one of its points, 0 to {about['points'] - 1}")
    repeat = command(about, int(point))
    words = trust.words(repeat.words, folder)
    from attn_exp.config.compose import composed  # noqa: PLC0415 - a run's own settings need no Hydra

    return run(here(composed(words, repeat.folders, typed=False)), repeat).text


def here(config: Config) -> Config:
    """Return the settings, writing under the folder that the user is in, wherever they say."""
    return replace(config, output_dir=trust.output_dir(config.output_dir))
