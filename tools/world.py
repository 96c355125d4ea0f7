"""The table of docs/world.md: what public implementations of attention compute, one a row.

    python benchmarks/check.py --world FOLDER --verdicts verdicts.jsonl
    python tools/world.py FOLDER verdicts.jsonl docs/world.md > world.md

The last word is a page that is there already: its rows stay, but for those of implementations in the folder, which are
known by their repository or package, path and name, whatever the commit or the release.

FOLDER holds local copies, one file each, with a `truth.csv` as `benchmarks/world.py` describes it. Its columns `source`
(repository, path, `commit` and the commit) and `what_is_true` (read by hand, before any check ran) are used here too. A
row comes from both: what was measured is said in the words of the check's verdict; where the check could not call it,
or said otherwise than the hand, the hand alone speaks. Bugs are left out, as most of them are mended by now.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HEAD = """# Public implementations of attention

What {count} public implementations of attention compute, each at the commit or release named. The table holds facts
about the code, not the code. Each was read by hand and then checked with `attn-exp check`, which called {called} of
them as they are; the others need a wrapper of a few lines, a GPU, a library that was not available, or more than a
minute.

- **computes**: what the check found, with the settings of a run. `mask=causal` means that later tokens are always
  hidden; `convention=torch_mha` that True in a mask hides. Other arguments, such as tables of positions, got values
  that change nothing. "In a way of its own" means that only the attention inside a layer was verified, not its
  projections. A dash means that the check could not tell; then only the last column counts.
- **rows without keys**: what a query gets that may see no key: NaN, zeros, the mean of all values, or other
  numbers.
- **type inside**: float32 if it computes in it, or takes the softmax in it, whatever the type of the input.
- **read by hand**: the meaning of masks, where causal masks stand with more keys than queries, what is around the
  attention, and what differs from the plain definition. "b t h d" and the like are its layout.

A difference is no fault: most are intended. `tools/world.py` makes this page from local copies. Please report a row
that is wrong or out of date.

| implementation | name | called | computes | rows without keys | type inside | read by hand |
| --- | --- | --- | --- | --- | --- | --- |
"""
SOURCE = re.compile(r"(?P<home>\S+) (?P<path>.*?) ?commit (?P<commit>[0-9a-f]{7,40})$")
RELEASE = re.compile(r"(?P<home>\S+) (?P<path>\S+) commit pip (?P<release>.*)$")
RIGHT = "judged right"
NOTHING_WRONG = (RIGHT, "not verified")
ASKED = (*NOTHING_WRONG, "false alarms", "wrong names")
"""Grades of `benchmarks/world.py`: a verdict that is not right is not repeated on the page."""
NOT_SAID = "-"
SEEN_INSIDE = r"attention .*?of the queries, keys and values that it makes of x in a way of its own"
"""What a verdict says of a layer whose attention is seen from inside alone."""
EMPTY_ROWS = (
    (r"rows without keys:? (?:are |get |give )?(?:zero|0)", "zeros"),
    (r"rows without keys:? (?:are |get |give )?(?:uniform|the mean|mean)", "the mean of all values"),
    (r"rows without keys:? (?:are |get |give )?nan", "NaN"),
)
"""How a hand writes what rows without keys give, and what the check calls it."""


def lines(folder: Path, verdicts: Path, page: Path | None) -> Iterator[str]:
    with (folder / "truth.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["right_or_wrong"] == "right" and origin(row["source"])]
    said = {row["file"]: row for row in map(json.loads, verdicts.read_text(encoding="utf-8").splitlines())}
    new = [[plain(cell) for cell in cells(row, said[row["file"]])] for row in rows if row["file"] in said]
    known = {whose(row) for row in new}
    made = [*new, *(row for row in rows_of(page) if whose(row) not in known)]
    called = sum(row[2] == "as it stands" for row in made)
    yield HEAD.format(count=len(made), called=called)
    for row in sorted(made, key=lambda row: (row[0].lower(), row[1].lower())):
        yield f"| {' | '.join(row)} |\n"


def rows_of(page: Path | None) -> Iterator[list[str]]:
    text = "" if page is None else page.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    for line in rows[len(("its titles", "a rule")) :]:
        yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def whose(row: Sequence[str]) -> tuple[str, str]:
    """Say which implementation a row is about, whatever its commit or its release."""
    return re.sub(r"^(\S+) [^ `]+(?= `)|(?<=`) at [0-9a-f]+$", r"\1", row[0]), row[1]


def cells(row: Mapping[str, str], said: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a row of the table: what was measured where that is right, else what was read."""
    verdict = said.get("verdict", {}) if said.get("grade") in NOTHING_WRONG else {}
    by_hand = row["what_is_true"]
    findings = {one["question"]: one for one in verdict.get("findings", ())}
    empty = findings.get("rows without keys", {}).get("said", "")
    told = next((word for pattern, word in EMPTY_ROWS if re.search(pattern, by_hand.lower())), "")
    accuracy = findings.get("accuracy", {}).get("said", "")
    kind = "float32" if "float32" in accuracy or re.search(r"float32|fp32|\.float\(\)", by_hand) else ""
    return (
        origin(row["source"]), f"`{row['name']}`",
        "as it stands" if said.get("grade") in ASKED and said.get("verdict") else "not as it stands",
        computes(verdict) or NOT_SAID, told or empty or NOT_SAID, kind or NOT_SAID, by_hand,
    )  # fmt: skip


def computes(verdict: Mapping[str, Any]) -> str:
    """Say what a verdict found: plain attention, or attention under other words."""
    if not verdict:
        return ""
    under, said = verdict.get("right_under", ""), verdict.get("computes", "")
    seen = re.match(SEEN_INSIDE, said)
    what = "attention" if seen is None else seen[0]
    return f"{what} under `{under}`" if under else what


def origin(source: str) -> str:
    """Return where an implementation stands, without its licence; nothing where no repository is named.

    It is the repository, the path and the commit, or the release of a package.
    """
    bare = re.sub(r"\s*licence .*$", "", source)
    found = SOURCE.match(bare)
    if found is not None:
        return f"{found['home']} `{found['path'].strip() or '.'}` at {found['commit'][:10]}"
    found = RELEASE.match(bare)
    return "" if found is None else f"{found['release']} `{found['path']}`"


def plain(text: str) -> str:
    """Return a text as one cell of a table: what Markdown would read as its own is escaped, but for code."""
    parts = " ".join(text.split()).split("`")
    return "`".join(re.sub(r"([|*_<>\[\]])", r"\\\1", part) if place % 2 == 0 else part.replace("|", "\\|")
                    for place, part in enumerate(parts))  # fmt: skip


def at_odds(folder: Path, verdicts: Path) -> Iterator[str]:
    """Yield what the check and the hand say differently of the rows without keys of one implementation."""
    with (folder / "truth.csv").open(newline="", encoding="utf-8") as file:
        truth = {row["file"]: row["what_is_true"].lower() for row in csv.DictReader(file)}
    for row in map(json.loads, verdicts.read_text(encoding="utf-8").splitlines()):
        findings = {one["question"]: one["message"] for one in row["verdict"].get("findings", ())}
        empty = findings.get("rows without keys", "")
        told = next((word for pattern, word in EMPTY_ROWS if re.search(pattern, truth.get(row["file"], ""))), "")
        if row["grade"] == RIGHT and empty and told and empty != told:
            yield f"{row['file']}: the check says {empty}, the hand {told}"


def main(words: Sequence[str]) -> None:
    """Print the page, and to stderr what check and hand say differently."""
    folder, verdicts, *pages = map(Path, words)
    sys.stdout.writelines(lines(folder, verdicts, next(iter(pages), None)))
    sys.stderr.writelines(f"{line}\n" for line in at_odds(folder, verdicts))


if __name__ == "__main__":
    main(sys.argv[1:])
