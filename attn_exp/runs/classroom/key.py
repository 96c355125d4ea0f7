"""A key: the settings that give a student's numbers, and what was asked of them. It holds no answers, and no code."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attn_exp import machine
from attn_exp.config.compose import values
from attn_exp.config.read import read as read_config
from attn_exp.diagnosis.paper import Paper, paper
from attn_exp.errors import UserError
from attn_exp.runs import json_file
from attn_exp.runs.given import split, with_arrays
from attn_exp.runs.json_file import DamagedError

SHAPE = {"student": str, "words": [str], "numbers": dict, "stages": [str], "digits": int, "turned": bool}
OWN = ["embeddings=inline", "projections=identity"]
"""What becomes of an input whose numbers are each student's own."""
MOST_DIGITS = 6
Composed = Callable[[tuple[str, ...]], Mapping[str, Any]]
"""What returns the settings that words compose."""


@dataclass(frozen=True)
class Key:
    """What makes a student's sheet: the words of a run, the student's own `numbers` if any, and how it asks."""

    student: str
    words: tuple[str, ...]
    numbers: Mapping[str, Any]
    stages: tuple[str, ...] = ()
    digits: int = 2
    turned: bool = False

    def paper(self, composed: Composed) -> Paper:
        """Return the sheet; what is right is computed anew.

        Raises:
            UserError: settings that make no sheet.
        """
        settings = composed(self.words + tuple(OWN if self.numbers else ()))
        inputs, projections = split(self.numbers)
        config = read_config(with_arrays(settings, inputs, projections) if self.numbers else settings)
        return paper(config, self.stages, self.digits, self.turned)

    def written(self) -> bytes:
        """Return the key as JSON."""
        fields = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}
        return (json.dumps(fields, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def composer(typed: bool) -> Composed:
    """Return what composes words, those of a whole class once; what nobody has `typed` now reads no environment."""
    known: dict[tuple[str, ...], Mapping[str, Any]] = {}

    def composed(words: tuple[str, ...]) -> Mapping[str, Any]:
        if words not in known:
            known[words] = values(list(words), [], typed=typed)
        return known[words]

    return composed


def read(path: Path) -> Key:
    """Return the key that a file holds.

    Raises:
        UserError: it cannot be read, or is none.
    """
    try:
        record = json_file.read(path, SHAPE, most=machine.MOST_BYTES)
    except (OSError, DamagedError, ValueError) as error:
        raise UserError(f"{path}: no key of a sheet ({error})") from error
    if not 0 <= record["digits"] <= MOST_DIGITS:
        raise UserError(f"{path}: no key of a sheet (digits={record['digits']})")
    return Key(
        record["student"], tuple(record["words"]), record["numbers"], tuple(record["stages"]), record["digits"],
        record["turned"],
    )  # fmt: skip
