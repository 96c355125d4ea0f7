"""A matrix in a section: a small table with numbers, or a picture where it is large."""

from __future__ import annotations

from typing import NamedTuple

from attn_exp.arrays import Array
from attn_exp.report import walk
from attn_exp.report.pixels import picture
from attn_exp.report.views import Colours


class Drawn(NamedTuple):
    """A small table of a `step`, or the address of a `picture` of so many pixels; `coarse` ones are shown wider."""

    title: str
    step: walk.Step | None = None
    picture: str = ""
    width: int = 0
    height: int = 0
    coarse: bool = False

    @property
    def table(self) -> walk.Table | None:
        """The table without a title of its own."""
        return None if self.step is None else self.step.tables[0]._replace(title="", parts=())


def draw_picture(
    title: str, matrix: Array, scale: Colours, closed: Array | None = None, *, coarse: bool = False
) -> Drawn:
    """Return a matrix as a picture, a pixel for each number."""
    height, width = matrix.shape
    return Drawn(title, None, picture(matrix, scale.shares, closed), width, height, coarse)
