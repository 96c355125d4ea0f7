"""What a command left, as far as any two runs of it must agree, and where two of them part."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

SKIPPED = {".index.json", "__pycache__", "lock", "multirun.yaml", "parts-of-other-versions"}
PAGES = {"report.md", "report.html", "index.html"}
VARYING = {"started", "clock", "seconds", "versions", "version", "git", "cpu", "blas", "pins", "parts", "seal"}
RUN_NAME = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")
EMPTY_LINES = re.compile(r"\n\s*\n")
"""Between the elements of a page nobody sees them."""
STYLE = re.compile(r"<style>.*?</style>", re.DOTALL)
PASSING_WORDS = re.compile(
    r"^(.* left, .*|\S+ \[[#.]+\] .*"  # how far a sweep or a run is
    r"|[\d,]+ of [\d,]+ points, .*(?=\n[\d,]+ of )"
    r"|attn_exp: .* so far, .*"  # what takes long
    r"|.*UserWarning: Port \d+ is already in use(.*\n)+?  warnings.warn\()\n",  # of Dask
    re.MULTILINE,
)
VARYING_WORDS = [
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?([+-]\d{4})?"), "DATE"),
    (re.compile(r"(, [\d,]+/s)?, (\d+ failed), [\d,]+ cached"), r", \2"),  # another program computes all parts anew
    (re.compile(r"[\d.,]+ (s|min|h)\b"), "TIME"),
    (re.compile(r"\b[0-9a-f]{40}\b( with changes)?"), "COMMIT"),
]


def outcome(told: Mapping[str, Any], folder: Path, pages: bool) -> dict[str, bytes]:
    """Return what a command printed and wrote, by name, as far as two runs of it must agree."""
    names = told["paths"] | {run.name: f"RUN{number}" for number, run in enumerate(run_folders(folder))}
    found = {"exit code": str(told["code"]).encode()}
    found |= {
        key: without_times(renamed(PASSING_WORDS.sub("", told[key]), names)).encode() for key in ("stdout", "stderr")
    }
    for path in sorted(folder.rglob("*")):
        name = renamed(path.relative_to(folder).as_posix(), names)
        if path.is_symlink():
            found[name] = renamed(os.readlink(path), names).encode()
        elif path.is_file() and counts(path.relative_to(folder), told, pages):
            found[name] = comparable(path, names)
    return with_parts_numbered(found)


def counts(path: Path, told: Mapping[str, Any], pages: bool) -> bool:
    """Say whether a file is to be compared: of pages, those without times, or with those of a run that was there.

    The report.md of such a run counts in any case: it shows whether all of the run was read.
    """
    there = path.parent.name in told["there"]
    if path.name in PAGES:
        return (there and path.suffix == ".md") or (pages and (there or not RUN_NAME.fullmatch(path.parent.name)))
    return SKIPPED.isdisjoint(path.parts)


def run_folders(folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("run.json") if RUN_NAME.fullmatch(path.parent.name)]
    return [path.parent for path in sorted(files, key=lambda path: path.stat().st_mtime_ns)]


def renamed(text: str, names: Mapping[str, str]) -> str:
    for name, other in names.items():
        text = text.replace(name, other)
    return text


def without_times(text: str) -> str:
    for pattern, word in VARYING_WORDS:
        text = pattern.sub(word, text)
    return text


def comparable(path: Path, names: Mapping[str, str]) -> bytes:
    """Return a file's bytes without what differs between any two runs."""
    content = path.read_bytes()
    if path.name in ("run.json", "manifest.json"):
        kept = {key: value for key, value in json.loads(content).items() if key not in VARYING}
        kept |= (
            {"files": sorted(kept["files"])} if "files" in kept else {}
        )  # whose hashes hold times; they count themselves
        return without_times(renamed(json.dumps(kept, indent=1), names)).encode()
    if path.name == "timings.csv":
        lines = content.splitlines(keepends=True)
        return b"".join([*lines[:1], *(line.split(b",")[0] + b"\n" for line in lines[1:])])
    if path.name == "own.json":
        return re.sub(rb'"seconds": [\d.e-]+', b'"seconds": TIME', content)
    if path.name in PAGES:
        page = EMPTY_LINES.sub("\n", content.decode()) if path.suffix == ".html" else content.decode()
        return without_times(renamed(STYLE.sub("", page), names)).encode()
    return content


def with_parts_numbered(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Name the parts of a sweep by the order of their contents: their own names say which program made them."""
    parts = sorted((name for name in files if "/parts/" in name), key=lambda name: files[name])
    numbers = {name: f"{name.rpartition('/')[0]}/{number}" for number, name in enumerate(parts)}
    return {numbers.get(name, name): content for name, content in files.items()}


def differences(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> Iterator[str]:
    """Yield a line for each thing that is not the same."""
    for name in sorted({*before, *after}):
        if name not in before or name not in after:
            yield f"{name}: only {'before' if name in before else 'after'}"
        elif before[name] != after[name]:
            yield f"{name}{first_difference(before[name], after[name])}"


def first_difference(before: bytes, after: bytes) -> str:
    """Return the first line where two files part, or how large they are."""
    if b"\0" in before + after:
        return f": {len(before)} bytes before, {len(after)} after"
    lines = zip_longest(before.decode(errors="replace").split("\n"), after.decode(errors="replace").split("\n"))
    number, (left, right) = next((number, pair) for number, pair in enumerate(lines, 1) if pair[0] != pair[1])
    same = next((place for place, pair in enumerate(zip(left or "", right or "", strict=False)) if len({*pair}) > 1), 0)
    shown = slice(max(0, same - 30), same + 80)
    return f", line {number}:\n    before: {(left or '')[shown]}\n    after:  {(right or '')[shown]}"
