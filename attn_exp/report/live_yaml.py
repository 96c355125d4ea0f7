"""The YAML that computes a run from numbers that a reader of its page has changed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from attn_exp.errors import UserError
from attn_exp.report import words

PROGRAM, FOLDER, NAME = ("python", "-m", "attn_exp"), "--config-dir", "changed"


def said(line: Sequence[str], later: Mapping[str, str]) -> dict[str, Any] | None:
    """Return what the words of a command say as YAML: its `top`, its settings, and those of words that come `later`.

    None where YAML cannot say them.
    """
    from attn_exp.config.as_yaml import as_yaml  # noqa: PLC0415 - Hydra takes a while to import

    folders = [line[place + 1] for place, word in enumerate(line[:-1]) if word == FOLDER]
    rest = list(line[len(PROGRAM) + 2 * len(folders) :])
    if tuple(line[: len(PROGRAM)]) != PROGRAM or any(word.startswith("-") for word in rest):
        return None
    try:
        parts = {name: as_yaml(shlex.split(text)) for name, text in later.items()}
        start = as_yaml(rest, list(filter(os.path.isdir, folders)))
    except UserError:  # a run from disk may come with any command
        return None
    if start is None or None in parts.values():
        return None
    trees = {name: part[1] for name, part in parts.items() if part is not None}
    return {"top": top(start[0], folders), "start": start[1], **trees}


def top(defaults: Sequence[str], folders: Sequence[str]) -> str:
    """Return the first lines of the file: where it belongs, how it is run, and the files that it starts from."""
    folder = folders[0] if folders else "mine"
    told = words.SAVE_AS.format(
        file=f"{folder}/experiment/{NAME}.yaml", command=shlex.join([*PROGRAM, FOLDER, folder, f"experiment={NAME}"])
    )
    lines = ["# @package _global_", f"# {told}", "defaults:", *(f"  {line}" for line in [*defaults, "- _self_"])]
    return "\n".join(lines) + "\n\n"
