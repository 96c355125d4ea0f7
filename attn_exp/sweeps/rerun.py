"""Repeats a run from its own settings, or one point of a sweep as a run of its own."""

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
from attn_exp.runs import input_files, recorded_code, store, trust
from attn_exp.runs.execution import run
from attn_exp.runs.recorded_code import OPTION, Record
from attn_exp.sweeps import manifest
from attn_exp.sweeps.points import command


def asked(words: Sequence[str]) -> str:
    """Run again what the words of the command say, `DIR [POINT] [--own-code]`, and return what a run prints.

    Raises:
        UserError: other words, or what `again` raises.
    """
    plain = [word for word in words if word != OPTION]
    if len(plain) not in (1, 2) or len(words) - len(plain) > 1:
        raise UserError(f"attn-exp rerun {' '.join(words)}: expected attn-exp rerun DIR [POINT] [{OPTION}]")
    return again(machine.folder(plain[0]), plain[1] if len(plain) > 1 else None, own=len(plain) < len(words))


def again(folder: Path, point: str | None, own: bool = False) -> str:
    """Run it again, under the folder that the user is in, and return what a run prints.

    Code of the user's own is run where `own` says so; whether its file has changed is said on stderr.

    Raises:
        UserError: neither a run nor a sweep there, no such point, words that are no settings, or code not asked for.
    """
    if os.path.lexists(folder / "run.json"):
        return run_again(folder, own)
    about = manifest.load(folder)
    if point is None or not point.isdecimal() or int(point) >= about["points"]:
        raise UserError(f"{folder} is a sweep; name one of its points, 0 to {about['points'] - 1}")
    repeat = command(about, int(point))
    words = trust.allowed_words(repeat.words, folder)
    from attn_exp.config.compose import composed  # noqa: PLC0415 - a run's own settings need no Hydra

    with members(about, [record["form"] for record in about.get("code", ())], folder, own):
        config = composed(words, repeat.folders, typed=False)
        for sentence in input_files.changed(config, about.get(input_files.KEY, ())).values():
            print(f"attn_exp: {printable(sentence)}; a sweep keeps no arrays", file=sys.stderr)
        return run(here(config, folder, about.get("code", ()), own), repeat).text


def run_again(folder: Path, own: bool) -> str:
    """Run what a run has done again, from its own settings."""
    config, words, about = store.settings_of(folder)
    config, words = with_its_own_arrays(config, words, about, folder)
    with members(about, recorded_code.functions_in(config), folder, own) as files:
        repeat = Repeat(tuple(trust.allowed_words(words, folder)), own=files)
        return run(here(config, folder, about.get("code", ()), own), repeat).text


def with_its_own_arrays(
    config: Config, words: Sequence[str], about: Mapping[str, Any], folder: Path
) -> tuple[Config, Sequence[str]]:
    """Return the settings and the words of a run with the arrays that it kept where its files are not as they were."""
    changes = input_files.changed(config, about.get(input_files.KEY, ()))
    if not changes:
        return config, words
    problem = input_files.problem_of(folder)
    for sentence in changes.values():
        print(f"attn_exp: {printable(sentence)}; this run takes the arrays that {folder} kept", file=sys.stderr)
    kept = input_files.kept(config, problem)
    return kept, input_files.renamed(words, kept, changes)


@contextmanager
def members(about: Mapping[str, Any], forms: Sequence[str], folder: Path, own: bool) -> Iterator[tuple[str, ...]]:
    """Let the members from outside that a run knew be known again, where the user asked for them; yield their files.

    Raises:
        UserError: there are some, and nobody asked for them, or one of their files is not as it should be.
    """
    records = about.get(recorded_code.MEMBERS, ())
    files = recorded_code.files_asked_for(records, forms, folder, own)
    for sentence in recorded_code.changes_of_files(records):
        print(f"attn_exp: {printable(sentence)}", file=sys.stderr)
    if not files:
        yield ()
        return
    from attn_exp.plugins import members_known  # noqa: PLC0415 - few runs know any

    with members_known(files):
        yield tuple(files)


def here(config: Config, folder: Path, records: Sequence[Record], own: bool) -> Config:
    """Return the settings, writing under the folder that the user is in, wherever they say, with the code asked for."""
    config = recorded_code.allow_functions(config, folder, own)
    for sentence in recorded_code.changes_of_functions(config, records):
        print(f"attn_exp: {printable(sentence)}", file=sys.stderr)
    return replace(config, output_dir=trust.allowed_output_dir(config.output_dir))
