"""Repeat what is on disk: recompute a run or a point of a sweep, or redraw a report."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from attn_exp import machine
from attn_exp.config.schema import Config
from attn_exp.config.spelling import Repeat
from attn_exp.errors import UserError, printable
from attn_exp.runs import execution, provenance, store, trust
from attn_exp.runs.provenance import OPTION
from attn_exp.runs.rendering import said_anew


def render_again(words: Sequence[str]) -> str:
    folder = machine.folder(words[0])
    if not (folder / "manifest.json").is_file() or (folder / "run.json").exists():
        return execution.render_again(folder, words[1:])
    from attn_exp.sweeps.collect import collect_again  # noqa: PLC0415 - a run needs nothing of a sweep

    anew = said_anew(words[1:], "attn-exp report of a sweep")
    return collect_again(folder, anew.depth, anew.figures)


def rerun(words: Sequence[str]) -> str:
    """Recompute `DIR [POINT] [--own-code]`, and return what a run prints.

    Raises:
        UserError: invalid words, or as `run_or_point`.
    """
    plain = [word for word in words if word != OPTION]
    if len(plain) not in (1, 2) or len(words) - len(plain) > 1:
        raise UserError(f"attn-exp rerun {' '.join(words)}: expected attn-exp rerun DIR [POINT] [{OPTION}]")
    return run_or_point(machine.folder(plain[0]), plain[1] if len(plain) > 1 else None, own=len(plain) < len(words))


def run_or_point(folder: Path, point: str | None, own: bool = False) -> str:
    """Recompute a run or a point, writing under the working folder, and return what a run prints.

    The user's code runs only if `own` is set; stderr reports whether its file has changed.

    Raises:
        UserError: neither a run nor a sweep there, no such point, words that are no settings, or code without `own`.
    """
    if os.path.lexists(folder / "run.json"):
        return run_again(folder, own)
    from attn_exp.sweeps.manifest import load_manifest, point_command  # noqa: PLC0415 - as above

    about = load_manifest(folder)
    if point is None or not point.isdecimal() or len(point) > 20 or int(point) >= about["points"]:
        raise UserError(f"{folder} is a sweep; name one of its points, 0 to {about['points'] - 1}")
    repeat = point_command(about, int(point))
    words = trust.allowed_words(repeat.words, folder)
    from attn_exp.config.compose import composed  # noqa: PLC0415 - a run's own settings need no Hydra

    with provenance.members_allowed(about, folder, own):
        config = composed(words, repeat.folders, typed=False)
        for sentence in provenance.changed_inputs(config, about):
            print(f"attn_exp: {printable(sentence)}; a sweep keeps no arrays", file=sys.stderr)
        if config.dtype:
            kinds = ", ".join(config.dtype)
            print(f"attn_exp: a run computes its rows in float64; the precision table shows {kinds}", file=sys.stderr)
        return run_here(config, repeat, about, folder, own)


def run_again(folder: Path, own: bool) -> str:
    config, words, about = store.settings_of(folder)
    changes = provenance.changed_inputs(config, about)
    for sentence in changes:
        print(f"attn_exp: {printable(sentence)}; this run takes the arrays that {folder} kept", file=sys.stderr)
    if changes:
        config, words = provenance.with_stored_arrays(config, words, store.problem_of(folder))
    with provenance.members_allowed(about, folder, own) as files:
        return run_here(config, Repeat(tuple(trust.allowed_words(words, folder)), own=files), about, folder, own)


def run_here(config: Config, repeat: Repeat, about: Mapping[str, Any], folder: Path, own: bool) -> str:
    """Run settings, with the user's code if `own` is set, and return what a run prints.

    Results go under the working folder, wherever the settings say.
    """
    config = provenance.allow_functions(config, about, folder, own)
    return execution.run(replace(config, output_dir=trust.allowed_output_dir(config.output_dir)), repeat).text
