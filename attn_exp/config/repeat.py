"""The command that repeats a run or a sweep."""

from __future__ import annotations

import shlex
from typing import NamedTuple


class Repeat(NamedTuple):
    """The words that chose the settings, the users' folders of YAML searched first, whether it is a sweep, and the
    files of code whose members the words may name."""

    words: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    many: bool = False
    own: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The command as it is typed in a shell."""
        options = [option for file in self.own for option in ("--with", file)]
        options += [option for folder in self.folders for option in ("--config-dir", folder)]
        return shlex.join(["python", "-m", "attn_exp", *options, *["-m"] * self.many, *self.words])
