"""`attn-exp check` as its user meets it: the function is imported and asked in a child, and what ends it is a verdict.

Code of others may call `sys.exit`, crash, hang or print. Here nothing of it is imported: the same words go to a child
process, which says what it is about to do, and answers with a verdict, or ends without one.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from typing import Any

from attn_exp.child import Child, NoAnswerError
from attn_exp.errors import EXIT_CODES, NOT_VERIFIED, RIGHT, WRONG, FaultError, UserError, brief, printable
from attn_exp.own_code import split_files, with_other_joined

TIMEOUT, MOST_SECONDS = 60.0, 86_400.0
"""Seconds that a function may take to be asked, and the most that can be given."""
PREPARING = 300.0
"""Seconds for what is not counted: importing the file and its libraries, building and compiling."""
WORD = "timeout="
JSON = "--json"
CHECK_IN_CHILD = "attn_exp.cli:check_in_child"
ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Variables of a child that asks: its arrays are small, and threads that wait for each other take 20 times as long."""


def child_that_asks() -> Child:
    """Return a child in which functions are checked."""
    return Child(CHECK_IN_CHILD, variables=ALONE)


def checked(words: Sequence[str]) -> tuple[str, int]:
    """Check the function that the first word names in a child, and return what to print and the exit code.

    If the function cannot be called, a wrapper to be completed goes to stdout, or JSON that holds it, and the error to
    stderr.

    Raises:
        UserError: a function or a setting that is not there, or one that cannot be asked of a function.
        FaultError: an error of our own, there too.
    """
    seconds, words = time_of(words), with_other_joined(["--verbose" if word == "-v" else word for word in words])
    heard: dict[str, Any] = {}
    rest = [word for word in words if not word.startswith(WORD)]
    if is_file(target_of(rest)):
        return every_one_checked(rest, seconds)
    with child_that_asks() as child:
        try:
            reply: dict[str, Any] = ask(child, rest, seconds, heard)
        except NoAnswerError as ended:
            return without_answer(rest, ended, seconds, heard)
    if not reply["uncalled"]:
        return reply["text"], reply["code"]
    why = reply.get("refused") or f"{reply['name']} could not be called {reply['uncalled']}"
    return report_uncalled(why, reply["text"] if JSON in words or "refused" in reply else "")


def ask(child: Child, words: Sequence[str], seconds: float, heard: dict[str, Any]) -> Any:
    """Return what a child says of a function; `heard` is what it was doing, and whether its clock runs."""

    def hear(said: dict[str, Any]) -> bool:
        heard.update(said)
        return bool(said.get("asking"))

    return child.ask(list(words), seconds, hear, PREPARING)


def report_uncalled(why: str, text: str) -> tuple[str, int]:
    """Say on stderr why nothing could be called, and return what to print and the exit code."""
    if text:
        print(text, flush=True)
    print(f"attn_exp: {NOT_VERIFIED}: {brief(printable(why), 280)}", file=sys.stderr)
    return "", EXIT_CODES[NOT_VERIFIED]


def time_of(words: Sequence[str]) -> float:
    """Return how many seconds the check may take.

    Raises:
        UserError: what is given is no such number.
    """
    given = next((word.removeprefix(WORD) for word in reversed(words) if word.startswith(WORD)), str(TIMEOUT))
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= MOST_SECONDS:
        raise UserError(f"timeout is {brief(repr(given))}; expected seconds, above 0 and at most {MOST_SECONDS:,.0f}")
    return seconds


def without_answer(
    words: Sequence[str], ended: NoAnswerError, seconds: float, heard: dict[str, Any]
) -> tuple[str, int]:
    """Return the verdict on a function that ended the process, or did not end; `heard` is what it was doing.

    Raises:
        FaultError: nothing of the function had been imported.
    """
    nothing_imported(ended, heard)
    from attn_exp.diagnosis.command import progress, shown  # noqa: PLC0415 - few checks end so
    from attn_exp.experiment.verdict import unfinished  # noqa: PLC0415

    progress()("")
    how = how_without(ended, seconds, heard)
    doing = heard.get("doing", "before it was imported")
    target = target_of(words)
    name, settings = target.rpartition(":")[2], [word for word in words if word != target and not word.startswith("-")]
    asked = heard.get("asked", " ".join(settings))
    return shown(unfinished(name, f"{how} {doing}", asked), words, target), EXIT_CODES[NOT_VERIFIED]


def nothing_imported(ended: NoAnswerError, heard: dict[str, Any]) -> None:
    """See that code of others is to blame for an end: it ran, or was about to, or the time was too short for anything.

    Raises:
        FaultError: it is not.
    """
    if "doing" not in heard and not ended.late:
        raise FaultError(f"the process in which attn_exp asks ended before it imported anything ({ended.how})")


def how_without(ended: NoAnswerError, seconds: float, heard: dict[str, Any]) -> str:
    """Say how a child ended that gave no answer."""
    if not ended.late:
        return f"it ended without an answer ({ended.how})"
    is_asked = "asking" in heard
    return (
        f"no answer within {seconds if is_asked else max(seconds, PREPARING):g} s{f' ({WORD}{seconds:g})' * is_asked}"
    )


# Every attention of a file


def target_of(words: Sequence[str]) -> str:
    """Return the first word that is neither an option nor the file of one."""
    return next((word for word in split_files(words)[1] if not word.startswith("-")), "")


def is_file(target: str) -> bool:
    """Say whether a target is a file alone, without the name of a function."""
    return target.endswith(".py")


def every_one_checked(words: Sequence[str], seconds: float) -> tuple[str, int]:
    """Check every attention of a file, and return a table, or a list for JSON, and the exit code.

    They share one child, and each has as many seconds. After one that ends the child, or does not end in time, the rest
    get another child.

    Raises:
        UserError: a file that is not there, or cannot be imported, and one without an attention.
    """
    from attn_exp.diagnosis.whole_file import kept, outcome, table  # noqa: PLC0415 - few checks are of a whole file

    place = target_of(words)
    rows, child, asked, heard = list[dict[str, Any]](), child_that_asks(), "", dict[str, Any]()
    try:
        try:
            listed = ask(child, words, seconds, heard)
        except NoAnswerError as ended:
            nothing_imported(ended, heard)
            raise UserError(f"{place}: {how_without(ended, seconds, heard)} while it was imported") from ended
        names, asked = listed["names"], listed["asked"]
        for one in names:
            named = [f"{place}:{one['name']}" if word == place else word for word in words]
            row, over = one_row(child, named, seconds, asked)
            rows.append(one | row)
            if over:
                child.close()
                child = child_that_asks()
    finally:
        child.close()
    if not (shown := kept(rows)):
        raise UserError(f"{place}: no attention that can be called")
    plain = [
        row["verdict"]
        or {"name": row["name"], "outcome": NOT_VERIFIED, "reason": row["uncalled"], "uncalled": row["uncalled"]}
        for row in shown
    ]
    outcomes = {outcome(row) for row in shown}
    code = next(EXIT_CODES[one] for one in (WRONG, NOT_VERIFIED, RIGHT) if one in outcomes)
    return json.dumps(plain) if JSON in words else table(place, rows, asked), code


def one_row(child: Child, words: Sequence[str], seconds: float, asked: str) -> tuple[dict[str, Any], bool]:
    """Return what became of one name, and whether the child ended.

    Raises:
        FaultError: an error of our own.
    """
    heard: dict[str, Any] = {}
    try:
        reply = ask(child, words, seconds, heard)
    except FaultError:
        raise
    except UserError as error:
        return {"uncalled": str(error), "verdict": None}, False
    except NoAnswerError as ended:
        nothing_imported(ended, heard)
        from attn_exp.experiment.verdict import unfinished  # noqa: PLC0415 - few checks end so

        said = f"{how_without(ended, seconds, heard)} {heard.get('doing', '')}".rstrip()
        name = target_of(words).rpartition(":")[2]
        return {"uncalled": "", "verdict": unfinished(name, said, asked).plain()}, True
    return {"uncalled": reply["uncalled"], "verdict": reply["verdict"]}, False
