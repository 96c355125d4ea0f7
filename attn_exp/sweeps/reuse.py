"""What a sweep shares with the one that lies in its folder: points with the same settings are not computed again.

The key of a point is the sum, modulo 2^128, of a hash of each of its settings. It does not depend on which settings are
swept, in which order, and over how many values.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from attn_exp import machine
from attn_exp.config.spelling import key_of, spelled
from attn_exp.errors import UserError
from attn_exp.own_code import fingerprint_of_function
from attn_exp.problem import input_files
from attn_exp.sweeps import collect, manifest, parts
from attn_exp.sweeps.plan import NO_RESULT, Plan
from attn_exp.sweeps.space import Space
from attn_exp.sweeps.task import settings_cells

Lines = list[list[str]]
SIZE = 2**128
MOST_POINTS = 1_000_000
"""Points of a sweep that are looked up; of a larger one nothing is reused."""


def hash_of(key: str, text: str) -> int:
    """Return the hash of one setting and its value as text."""
    return int.from_bytes(hashlib.sha256(f"{key}={text}".encode()).digest()[:16], "big")


def leaves(settings: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted key and the value of each setting that holds no others."""
    if isinstance(settings, Mapping) and settings:
        for name, value in settings.items():
            yield from leaves(value, f"{key}.{name}" if key else str(name))
    else:
        yield key, settings


def key_of_base(base: Mapping[str, Any], space: Space) -> int:
    """Return the sum over all settings that no axis puts in, and over the files and functions that they name."""
    swept = tuple(axis.key for axis in space.axes if not axis.composed)
    deciding = {name: value for name, value in base.items() if name not in NO_RESULT}
    total = sum(
        hash_of(key, spelled(value))
        for key, value in leaves(deciding)
        if not any(key == one or key.startswith(f"{one}.") for one in swept)
    )
    files = {key: input_files.fingerprint(file, key) for key, file in input_files.of(base).items()}
    total += sum(hash_of(f"{key} file", text) for key, text in files.items())
    functions = {name: fingerprint_of_function(variant.get("form")) for name, variant in base["variant"].items()}
    return total + sum(hash_of(f"{name} function", text) for name, text in functions.items() if text)


def describe_keys(plan: Plan) -> dict[str, Any]:
    """Return what a manifest holds so that the keys of its points can be told."""
    space, own = plan.space, hash_of("own members", ",".join(origin.sha256 for origin in plan.own))
    bases = {place: (key_of_base(base, space) + own) % SIZE for place, base in space.bases.items()}
    return {
        "bases": {" ".join(map(str, place)): f"{key:x}" for place, key in bases.items()},
        "composed": [axis.composed for axis in space.axes],
        "files": plan.files,
    }


def list_keys(about: Mapping[str, Any]) -> list[int]:
    """Return the key of each point of a sweep that a manifest describes, in the order of its points."""
    axes, composed, files = about["axes"], about["keys"]["composed"], about["keys"]["files"]
    bases = {place: int(key, 16) for place, key in about["keys"]["bases"].items()}
    words = [[manifest.word_of(axis, place) for place in range(axis["count"])] for axis in axes]
    values = [
        [0 if alone else hash_of(axis["key"], files.get(word, word.partition("=")[2])) for word in some]
        for axis, alone, some in zip(axes, composed, words, strict=True)
    ]
    keys, places = list[int](), [0] * len(axes)
    for first, stop in about["kept"]:
        for combination in range(first, stop):
            index = combination
            for together in reversed(about["dimensions"]):
                index, place = divmod(index, axes[together[0]]["count"])
                for axis in together:
                    places[axis] = place
            base = " ".join(str(place) for place, alone in zip(places, composed, strict=True) if alone)
            keys.append((bases[base] + sum(map(list.__getitem__, values, places))) % SIZE)
    return keys


def previous(place: Path, about: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the manifest in a folder, if it is of another sweep than `about` describes."""
    try:
        before = manifest.load_manifest(place)
    except UserError:
        return None
    return before if before["parts"] != about["parts"] and "keys" in before else None


def keep_manifest(folder: Path, about: Mapping[str, Any]) -> None:
    """Keep the manifest of the sweep that `about` takes the place of, beside the parts that are set aside."""
    before = previous(folder, about)
    if before is not None:
        name = hashlib.sha256(" ".join(before["parts"]).encode()).hexdigest()[:16]
        manifest.write_manifest(machine.own_folder(machine.own_folder(folder / parts.ASIDE) / name), before)


def find_shared_points(plan: Plan, folder: Path, about: Mapping[str, Any]) -> dict[int, Lines]:
    """Return the lines of points that sweeps in a folder have already, the last one and those before it, by their
    numbers in a new plan.

    Raises:
        UserError: another sweep lies there, and no point is in common with any.
    """
    last, aside = previous(folder, about), folder / parts.ASIDE
    is_ours = aside.is_dir() and not aside.is_symlink()
    earlier = [path for path in sorted(aside.iterdir()) if path.is_dir()] if is_ours else []
    manifests = [one for one in (last, *(previous(place, about) for place in earlier)) if one is not None]
    if not manifests or plan.points > MOST_POINTS:
        return {}
    numbers = defaultdict[int, list[int]](list)
    for number, key in enumerate(list_keys(about)):
        numbers[key].append(number)
    lines, is_shared = dict[int, Lines](), last is None
    for before in manifests:
        if max(before["points"], *(axis["count"] for axis in before["axes"])) > MOST_POINTS:
            return lines
        try:
            keys = list_keys(before)
        except (LookupError, ValueError, TypeError):  # somebody else wrote the manifest: nothing is reused
            return lines
        wanted = {number: numbers[key] for number, key in enumerate(keys) if key in numbers}
        is_shared = is_shared or bool(wanted)
        lines = read_lines(plan, folder, about, before, wanted) | lines
    if last is not None and not is_shared and deciding(last["words"]) != deciding(about["words"]):
        raise UserError(
            f"{folder} holds another sweep: {last['command']}; choose another sweep.name, or remove that folder"
        )
    return lines


def read_lines(
    plan: Plan, folder: Path, about: Mapping[str, Any], before: Mapping[str, Any], wanted: Mapping[int, Sequence[int]]
) -> dict[int, Lines]:
    """Return the lines of the wanted points of an earlier sweep, wherever its parts lie, as a new plan numbers them."""
    missing = set(about["columns"]) - set(before["columns"]) - {axis["column"] for axis in about["axes"]}
    if not wanted or before["version"] != about["version"] or missing or before.get("tally") != about["tally"]:
        return {}
    shelf = collect.shelf_of(folder, before)
    start = 1 + len(about["axes"])
    places = [shelf.head.index(name) for name in (*about["columns"][start:], *about["tally"])]
    lines = dict[int, Lines]()
    for where in (replace(shelf, folder=folder / parts.ASIDE), shelf):
        for part in where.find(before["parts"]).whole.values():
            for number, some in where.good_lines(part).items():
                for new in wanted.get(number, ()):
                    cells = settings_cells(plan, new)
                    lines[new] = [[*cells, *(line[place] for place in places)] for line in some]
    return lines


def deciding(words: Sequence[str]) -> list[str]:
    """Return the words of a command that decide its results."""
    return sorted(word for word in words if key_of(word).split(".")[0] not in NO_RESULT)
