"""Repeat what is on disk: recompute a run or a point of a sweep, or redraw a report."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from attn_exp import machine
from attn_exp.config.schema import Config
from attn_exp.config.spelling import Repeat
from attn_exp.errors import UserError, printable
from attn_exp.runs import input_files, reader, recorded_code, store, trust
from attn_exp.runs.recorded_code import OPTION, Record
from attn_exp.runs.rendering import said_anew


def render_again(words: Sequence[str]) -> str:
    """Redraw the report of a run or a sweep, with other figures or depth if the words say so."""
    folder = machine.folder(words[0])
    if not (folder / "manifest.json").is_file() or (folder / "run.json").exists():
        return reader.render_again(folder, words[1:])
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

    with recorded_members(about, [record["form"] for record in about.get("code", ())], folder, own):
        config = composed(words, repeat.folders, typed=False)
        for sentence in input_files.changed(config, about.get(input_files.KEY, ())).values():
            print(f"attn_exp: {printable(sentence)}; a sweep keeps no arrays", file=sys.stderr)
        if config.dtype:
            kinds = ", ".join(config.dtype)
            print(f"attn_exp: a run computes its rows in float64; the precision table shows {kinds}", file=sys.stderr)
        return run_here(config, repeat, folder, about.get("code", ()), own)


def run_again(folder: Path, own: bool) -> str:
    """Repeat a run from its stored settings."""
    config, words, about = store.settings_of(folder)
    config, words = with_its_own_arrays(config, words, about, folder)
    with recorded_members(about, recorded_code.functions_in(config), folder, own) as files:
        repeat = Repeat(tuple(trust.allowed_words(words, folder)), own=files)
        return run_here(config, repeat, folder, about.get("code", ()), own)


def with_its_own_arrays(
    config: Config, words: Sequence[str], about: Mapping[str, Any], folder: Path
) -> tuple[Config, Sequence[str]]:
    """Replace the input files of a run that have changed by the arrays that it stored."""
    changes = input_files.changed(config, about.get(input_files.KEY, ()))
    if not changes:
        return config, words
    problem = input_files.problem_of(folder)
    for sentence in changes.values():
        print(f"attn_exp: {printable(sentence)}; this run takes the arrays that {folder} kept", file=sys.stderr)
    kept = input_files.kept(config, problem)
    return kept, input_files.renamed(words, kept, changes)


@contextmanager
def recorded_members(
    about: Mapping[str, Any], forms: Sequence[str], folder: Path, own: bool
) -> Iterator[tuple[str, ...]]:
    """Register the members from outside that a run used, if the user asked for it; yield their files.

    Raises:
        UserError: there are some and `own` is not set, or one of their files is invalid.
    """
    records = about.get(recorded_code.MEMBERS, ())
    files = recorded_code.files_asked_for(records, forms, folder, own)
    for sentence in recorded_code.changes_of_files(records):
        print(f"attn_exp: {printable(sentence)}", file=sys.stderr)
    from attn_exp.plugins import members_known  # noqa: PLC0415 - slow to import

    with members_known(files):
        yield tuple(files)


def run_here(config: Config, repeat: Repeat, folder: Path, records: Sequence[Record], own: bool) -> str:
    """Run settings, with the user's code if `own` is set, and return what a run prints.

    Results go under the working folder, wherever the settings say.
    """
    from attn_exp.runs.execution import run  # noqa: PLC0415 - a report is drawn again without

    config = recorded_code.allow_functions(config, folder, own)
    for sentence in recorded_code.changes_of_functions(config, records):
        print(f"attn_exp: {printable(sentence)}", file=sys.stderr)
    return run(replace(config, output_dir=trust.allowed_output_dir(config.output_dir)), repeat).text
