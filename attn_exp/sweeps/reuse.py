"""Reuse points of earlier sweeps in the same folder that have the same settings.

Each earlier sweep is in its own folder below `parts-of-other-versions`: its manifest and its parts.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attn_exp import machine, system
from attn_exp.config.spelling import key_of
from attn_exp.errors import UserError
from attn_exp.sweeps import collect, manifest, parts
from attn_exp.sweeps.plan import KEYS, NO_RESULT, Plan, hash_setting
from attn_exp.sweeps.task import settings_cells

Lines = list[list[str]]
EARLIER = "parts-of-other-versions"
MOST_POINTS = 1_000_000
"""Maximum number of points that are looked up; a larger sweep reuses nothing."""


def list_keys(about: Mapping[str, Any]) -> list[int]:
    """Return the key of each point of the sweep in a manifest, in order."""
    space, composed, files = manifest.space_of(about), about["keys"]["composed"], about["keys"]["files"]
    bases = {place: int(key, 16) for place, key in about["keys"]["bases"].items()}
    hashes = []
    for axis, alone in zip(space.axes, composed, strict=True):
        words = [axis.value_word(place) for place in range(len(axis.values))]
        texts = [files.get(f"{axis.sign}{axis.key}={word}", word) for word in words]
        hashes.append([0 if alone else hash_setting(axis.key, text) for text in texts])
    keys = []
    for first, stop in about["kept"]:
        for index in range(first, stop):
            places = space.places(index)
            base = " ".join(str(place) for place, alone in zip(places, composed, strict=True) if alone)
            keys.append((bases[base] + sum(map(list.__getitem__, hashes, places))) % KEYS)
    return keys


def find_shared_points(
    plan: Plan, folder: Path, about: Mapping[str, Any], last: dict[str, Any] | None
) -> dict[int, Lines]:
    """Return the lines of points that earlier sweeps in a folder have already computed, by their numbers in a new plan.

    Raises:
        UserError: another sweep is there, and shares no point with this one.
    """
    all_before = {place: manifest.find_manifest(place) for place in find_earlier(folder)}
    if last is not None and last["parts"] != about["parts"]:
        all_before[folder] = last
    others = {place: before for place, before in all_before.items() if before is not None}
    if not others or plan.points > MOST_POINTS:
        return {}
    numbers = defaultdict[int, list[int]](list)
    for number, key in enumerate(list_keys(about)):
        numbers[key].append(number)
    lines, is_shared = dict[int, Lines](), folder not in others
    for place, before in others.items():
        try:
            wanted = find_wanted(before, numbers)
        except (LookupError, ValueError, TypeError):  # an untrusted manifest is inconsistent: nothing is reused
            return lines
        is_shared = is_shared or bool(wanted)
        lines |= read_lines(plan, place, about, before, wanted)
    if not is_shared and last is not None and list_deciding(last["words"]) != list_deciding(about["words"]):
        raise UserError(
            f"{folder} holds another sweep: {last['command']}; choose another sweep.name, or remove that folder"
        )
    return lines


def find_earlier(folder: Path) -> list[Path]:
    """Return the folders of the sweeps before the last one."""
    earlier = folder / EARLIER
    return sorted(earlier.iterdir()) if earlier.is_dir() and not earlier.is_symlink() else []


def find_wanted(before: Mapping[str, Any], numbers: Mapping[int, Sequence[int]]) -> dict[int, Sequence[int]]:
    """Map the numbers of points in an earlier sweep to their numbers in a new plan."""
    if max(before["points"], *(axis["count"] for axis in before["axes"]), 0) > MOST_POINTS:
        return {}
    return {number: numbers[key] for number, key in enumerate(list_keys(before)) if key in numbers}


def read_lines(
    plan: Plan, place: Path, about: Mapping[str, Any], before: Mapping[str, Any], wanted: Mapping[int, Sequence[int]]
) -> dict[int, Lines]:
    """Return the lines of the wanted points of an earlier sweep, as a new plan numbers them."""
    names = about["columns"][1 + len(about["axes"]) :]
    same = before["version"] == about["version"] and before["tally"] == about["tally"]
    if not wanted or not same or not set(names) <= set(before["columns"]):
        return {}
    shelf = collect.shelf_of(place, before)
    places = [shelf.head.index(name) for name in (*names, *about["tally"])]
    lines = dict[int, Lines]()
    for part in shelf.find(before["parts"]).whole.values():
        for number, some in shelf.good_lines(part).items():
            for new in wanted.get(number, ()):
                cells = settings_cells(plan, new)
                lines[new] = [[*cells, *(line[place] for place in places)] for line in some]
    return lines


def set_aside(folder: Path, plan: Plan, last: Mapping[str, Any] | None) -> None:
    """Move parts of other plans to a folder of their own, with the manifest of their sweep.

    A kill between two of these steps leaves a folder from which the same command continues.
    """
    names = set(plan.names)
    others = [path for path, match in parts.find_parts(folder / "parts").items() if match[1] not in names]
    if not others:
        return
    before = last["parts"] if last is not None else []
    home = machine.own_folder(folder / EARLIER) / hashlib.sha256(" ".join(before).encode()).hexdigest()[:16]
    machine.own_folder(home)
    if last is not None:
        manifest.write_manifest(home, last)
    for path in others:
        system.replace(path, machine.own_folder(home / "parts") / path.name)


def list_deciding(words: Sequence[str]) -> list[str]:
    """Return the words of a command that determine its results."""
    return sorted(word for word in words if key_of(word).split(".")[0] not in NO_RESULT)
