"""Which words choose a point of a sweep, from its manifest alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attn_exp.config.spelling import Repeat
from attn_exp.runs import recorded_code


def point_words(about: Mapping[str, Any], point: int) -> tuple[list[str], list[str]]:
    """Return the words of the command line that choose one point, and the users' folders of YAML it needs."""
    index = kept(about, point)
    places: dict[int, int] = {}
    for together in reversed(about["dimensions"]):
        index, place = divmod(index, about["axes"][together[0]]["count"])
        places |= dict.fromkeys(together, place)
    swept = [word(axis, places[number]) for number, axis in enumerate(about["axes"])]
    fixed = [text for text in about["fixed"] if not text.startswith("sweep.")]
    return [*fixed, *swept], about["folders"]


def kept(about: Mapping[str, Any], point: int) -> int:
    """Return which combination a point is, of all before any were left out."""
    for first, stop in about["kept"]:
        if point < stop - first:
            return int(first + point)
        point -= stop - first
    raise IndexError(point)


def word(axis: Mapping[str, Any], place: int) -> str:
    """Return what chooses one value of an axis."""
    if "range" in axis:
        start, step = axis["range"]
        return f"{axis['sign']}{axis['key']}={start + place * step}"
    return f"{axis['sign']}{axis['key']}={axis['words'][place]}"


def command(about: Mapping[str, Any], point: int) -> Repeat:
    """Return the command that runs one point alone."""
    words, folders = point_words(about, point)
    return Repeat(tuple(words), tuple(folders), own=recorded_code.files_of_members(about))
