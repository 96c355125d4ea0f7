"""How the check judges the code of others: a folder of files, each held against what was written of it by hand.

The folder has a `truth.csv`, and the files that it names. Its columns:

- `file`: a path in the folder. Its number, the first in the name, says whether it belongs to the even or the odd half.
- `name`: the function, the class or the object in it.
- `right_or_wrong`: `right`, or anything else for a bug.
- `expected`: of a bug, the names of the catalogue that say all of it, apart by spaces; `a|b` where either will do, and
  `-` for a part that the catalogue has no name for, so that it can be named in part alone. Remarks are no part of it.
- `stage`: of a mistake without a name, the stages that it changes first, if they are known; the column may be missing.
- `words`: settings that a user would pass with it, such as `mask=causal`; mostly nothing.

`framework` says which libraries are imported before the first check; other columns are for readers. Each check is what
`attn-exp check FILE:NAME WORDS --json` does in its child: here that is a fork of a process that has the libraries
imported, one after the other, so that seconds are those of the check.
"""

from __future__ import annotations

import csv
import importlib
import json
import multiprocessing
import os
import re
import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from attn_exp.errors import NOT_VERIFIED, UserError
from attn_exp.mistakes import catalogue

LIMIT = 60.0
"""Seconds that one check may take."""
LIBRARIES = ("torch", "keras", "jax", "flax", "haiku", "equinox")
"""Imported before the first check, where they are installed and a `framework` names them."""
COLUMNS = (
    "file", "name", "right_or_wrong", "grade", "names", "right_under", "computes", "error", "seconds", "with_ignore",
)  # fmt: skip
RIGHT, ALARM, WRONG, UNCALLED, OPEN = "judged right", "false alarms", "wrong names", "not callable", NOT_VERIFIED
FULL, PART, LOCATED = "named in full", "named in part", "located"
UNEXPLAINED, UNSEEN = "unexplained", "not seen"
OF_RIGHT = (RIGHT, OPEN, ALARM, WRONG, UNCALLED)
OF_BUGS = (FULL, PART, LOCATED, OPEN, WRONG, UNEXPLAINED, UNSEEN, UNCALLED)
GOALS = {("right", ALARM): "0", ("right", WRONG): "0", ("bugs", FULL): "72 %"}


@dataclass(frozen=True)
class Checked:
    """What became of one check: its verdict as JSON has it, or the error that stood for it."""

    code: int
    seconds: float
    verdict: Mapping[str, Any]
    error: str


def measure(folder: Path, only: str, table: Path | None, verdicts: Path | None = None) -> None:
    """Check every file of a folder, print how it was judged, and write each verdict to a table where one is named.

    `only` is `even`, `odd`, or pieces of names apart by commas; nothing means all. `verdicts` keeps every
    verdict whole, as lines of JSON, for `tools/world.py`.
    """
    with (folder / "truth.csv").open(newline="", encoding="utf-8") as file:
        every = list(csv.DictReader(file))
    rows = [row for row in every if chosen(row["file"], only)]
    import_libraries(" ".join(row.get("framework", "") for row in rows))
    done: list[dict[str, Any]] = []
    for row in rows:
        words = [f"{folder.resolve() / row['file']}:{row['name']}", *row.get("words", "").split(), "--json"]
        made = graded(row, in_a_fork(partial(checked, words)))
        if row["right_or_wrong"] == "right" and made["grade"] == OPEN:
            left_open = " ".join(made["verdict"].get("not_verified", ()))
            aside = sorted(set(re.findall("`([^`]+)`", left_open)))
            again = partial(checked, [*words, f"ignore=[{','.join(aside)}]"])
            made["with_ignore"] = graded(row, in_a_fork(again))["grade"] if aside else OPEN
        done.append(made)
        print(f"{made['file']:44} {made['seconds']:5.1f} s  {made['grade']:14} {made['said'][:110]}", flush=True)
    if table is not None:
        with table.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(done)
    if verdicts is not None:
        kept = [
            {"file": row["file"], "name": row["name"], "grade": row["grade"], "verdict": row["verdict"]} for row in done
        ]
        verdicts.write_text("".join(f"{json.dumps(row)}\n" for row in kept), encoding="utf-8")
    print("\n".join(["", *summary(done)]))


def chosen(file: str, only: str) -> bool:
    number = re.search(r"\d+", Path(file).name)
    if only in ("even", "odd"):
        return number is not None and int(number[0]) % 2 == (only == "odd")
    return not only or any(piece in file for piece in only.split(","))


def import_libraries(spoken_of: str) -> None:
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    sys.dont_write_bytecode = True
    os.environ.setdefault("KERAS_BACKEND", "torch")
    for name in LIBRARIES:
        if find_spec(name) is not None and name in spoken_of:
            importlib.import_module(name)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    for name in ("cli", "diagnosis.command", "diagnosis.judging.check", "diagnosis.explaining.smallest"):
        importlib.import_module(f"attn_exp.{name}")


def checked(words: Sequence[str]) -> tuple[int, str, str]:
    """Return the exit code of a check, its JSON and its error, in the process that this is."""
    from attn_exp.cli import check_in_child  # noqa: PLC0415 - imported before the fork

    try:
        reply = check_in_child(words, lambda said: None)
    except UserError as error:
        return 2, "", str(error)
    except SystemExit as error:
        return 1, "", f"it exits with {error.code!r}"
    if reply["uncalled"]:
        return 3, reply["text"], reply["uncalled"]
    return reply["code"], reply["text"], ""


def in_a_fork(work: Callable[[], tuple[int, str, str]]) -> Checked:
    """Do something in a fork of this process, which is ended when its time is over."""
    context = multiprocessing.get_context("fork")
    reading, writing = context.Pipe(duplex=False)
    child = context.Process(target=answer, args=(work, writing))
    start = time.monotonic()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # libraries warn of their threads, of which none runs yet
        child.start()
    writing.close()
    late = not reading.poll(LIMIT)
    if late:
        child.kill()
    try:
        code, said, error = (3, "", f"no answer in {LIMIT:g} s") if late else reading.recv()
    except EOFError:
        code, said, error = 3, "", "it ended without an answer"
    seconds = time.monotonic() - start
    child.join()
    return Checked(code, seconds, json.loads(said) if said else {}, error)


def answer(work: Callable[[], tuple[int, str, str]], writing: Connection) -> None:
    """Send what some work comes to, in the fork that this is; what it prints goes nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    try:
        said = work()
    except BaseException as error:  # whatever it is, the check should not have let it out
        said = (70, "", f"the check itself failed: {type(error).__name__}: {error}")
    writing.send(said)
    writing.close()
    os._exit(0)


# What a verdict is worth


def graded(row: Mapping[str, str], made: Checked) -> dict[str, Any]:
    verdict = made.verdict
    outcome = verdict.get("outcome", NOT_VERIFIED)
    under = verdict.get("right_under", "")
    names = list(verdict.get("mistakes", ())) if outcome == "wrong" else []  # else they are remarks
    if made.code == 2 or (made.error and verdict):
        grade = UNCALLED
    elif row["right_or_wrong"] == "right":
        grade = WRONG if names else ALARM
        grade = RIGHT if outcome == "right" else OPEN if outcome == NOT_VERIFIED else grade
    else:
        expected = row.get("expected", "")
        alike = [name for group in verdict.get("alike", ()) for name in group] if under else []
        also = [name for name in alike if name in re.split(r"[ |]", expected)]  # a bug as often as a convention
        grade = grade_of_names([*names, *also], expected, outcome == "right")
        grade = OPEN if outcome == NOT_VERIFIED and grade == UNEXPLAINED else grade
        grade = (
            LOCATED
            if grade == UNEXPLAINED and is_located(verdict.get("stage", ""), expected, row.get("stage") or "")
            else grade
        )
    said = made.error or verdict.get("computes", "")
    return {
        "file": row["file"], "name": row["name"], "right_or_wrong": row["right_or_wrong"], "grade": grade,
        "names": " ".join(names), "right_under": under, "computes": verdict.get("computes", ""), "error": made.error,
        "seconds": round(made.seconds, 1), "said": " ".join([*names, under, "-", " ".join(said.split())]).strip(),
        "verdict": dict(verdict),
    }  # fmt: skip


def grade_of_names(names: Sequence[str], expected: str, passed: bool) -> str:
    """Say how far some names tell a bug: all of it, a part, or something else; no name may be wrong."""
    parts = [part.split("|") for part in expected.split()]
    told = [part for part in parts if set(part) & set(names)]
    wrong = [name for name in names if not any(name in part for part in parts)]
    if not told and passed:
        return UNSEEN
    if wrong:
        return WRONG
    return UNEXPLAINED if not told else FULL if len(told) == len(parts) else PART


def is_located(stage: str, expected: str, said: str = "") -> bool:
    """Say whether a stage that a verdict names is where one of some mistakes changes something first.

    `said` are the stages that are known to be wrong of a mistake without a name.
    """
    known = set(re.findall(r"[a-z]+", said)) | {
        catalogue()[name].stage for name in re.split(r"[ |]", expected) if name in catalogue()
    }
    return bool(known & WITHIN.get(stage, {stage}))


INPUTS, SCORES = {"q", "k", "v"}, {"scores", "logits", "capped"}
WITHIN = {"masked": {"masked", "masks"}, "q": INPUTS, "scores": SCORES, "logits": SCORES | {"q", "k"},
          "output": {"output", "merge"}}  # fmt: skip
"""Which stages of the catalogue a verdict means by one: it says `logits` for all that makes them."""


def summary(done: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines of the table: how many of each grade, and how long a check took."""
    for title, is_right, grades in (("right", True, OF_RIGHT), ("bugs", False, OF_BUGS)):
        rows = [row for row in done if (row["right_or_wrong"] == "right") is is_right]
        counts = Counter(row["grade"] for row in rows)
        if rows:
            yield f"{len(rows)} {title}"
        for grade in grades if rows else ():
            goal = GOALS.get((title, grade), "")
            share = f"{counts[grade]:5} {counts[grade] / len(rows):6.1%}"
            yield f"  {grade:14} {share}{f'   goal {goal}' if goal else ''}"
        if is_right and rows:
            right = counts[RIGHT] + sum(row.get("with_ignore") == RIGHT for row in rows)
            yield f"  {'with ignore=':14} {right:5} {right / len(rows):6.1%}   goal 60 %"
    seconds = [row["seconds"] for row in done]
    if seconds:
        slowest = max(done, key=lambda row: row["seconds"])
        middle = statistics.median(seconds)
        yield f"a check: median {middle:.1f} s (goal 1.2), slowest {max(seconds):.1f} s, {slowest['file']}"
