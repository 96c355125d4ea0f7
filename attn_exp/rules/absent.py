"""Stands in for rules whose code is not at hand: a run on disk names them, and it is shown without running any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from attn_exp.arrays import Array
from attn_exp.errors import UserError
from attn_exp.rules.grid import Grid
from attn_exp.rules.masks.mask import Mask
from attn_exp.rules.normalizers.normalizer import Normalizer
from attn_exp.rules.positions.position import Position
from attn_exp.rules.scores.score import Score


def refuse(name: str) -> NoReturn:
    """Refuse to compute with a rule of which only the name is known.

    Raises:
        UserError: always.
    """
    raise UserError(f"{name} is code from outside the package, and the command line does not name its file: --with")


@dataclass(frozen=True)
class AbsentMask(Mask):
    """A mask that is known by its name alone."""

    name: str

    def allows(self, grid: Grid) -> Array | bool:
        refuse(f"mask={self.name}")


@dataclass(frozen=True)
class AbsentScore(Score):
    """A score rule that is known by its name alone."""

    name: str

    def bend(self, logits: Any) -> Any:
        refuse(f"score={self.name}")


@dataclass(frozen=True)
class AbsentPosition(Position):
    """A position that is known by its name alone."""

    name: str

    def embed(self, x: Array) -> Array:
        refuse(f"position={self.name}")


KINDS = {"mask": AbsentMask, "score": AbsentScore, "position": AbsentPosition}


def rule(group: str, name: str) -> Any:
    """Return what stands in for a mask, a score rule or a position of that name."""
    return KINDS[group](name)


def normalizer(name: str) -> Normalizer:
    """Return what stands in for a normalizer of that name."""

    def weigh(logits: Array, extra: Array | None) -> Array:
        refuse(f"normalizer={name}")

    weigh.__name__ = name
    return Normalizer(weigh, takes_extra=True)
