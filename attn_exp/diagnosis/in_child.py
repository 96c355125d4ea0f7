"""`attn-exp check` as its user meets it: the function is imported and asked in a child, and what ends it is a verdict.

Code of others may call `sys.exit`, crash, hang or print. Here nothing of it is imported: the same words go to a child
process, which says what it is about to do, and answers with a verdict, or ends without one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from time import monotonic
from typing import Any

from attn_exp.child import Child, NoAnswerError, count_of_seconds
from attn_exp.errors import FaultError, UserError, brief
from attn_exp.own_code import split_files, with_other_joined

TIMEOUT, MOST_SECONDS = 60.0, 86_400.0
"""Seconds that a check may take, and the most that can be asked for."""
WORD = "timeout="
JSON = "--json"
CHECK_IN_CHILD = "attn_exp.cli:check_in_child"
ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Variables of a child that asks: its arrays are small, and threads that wait for each other take 20 times as long."""


def child_that_asks() -> Child:
    """Return a child in which functions are checked."""
    return Child(CHECK_IN_CHILD, variables=ALONE)


def checked(words: Sequence[str]) -> tuple[str, bool]:
    """Check the function that the first word names in a child, and return what to print and whether it passed.

    Of what could not be called a wrapper is printed, to be completed: the error is the one line of a user's mistake.
    Where JSON is asked for it holds both, so that programs have something to read.

    Raises:
        UserError: a function or a setting that is not there, one that cannot be asked of a function, or a function that
            cannot be called.
        FaultError: an error of our own, there too.
    """
    seconds, words = time_of(words), with_other_joined(words)
    heard: dict[str, Any] = {}
    rest = [word for word in words if not word.startswith(WORD)]
    if is_file(target_of(rest)):
        return every_one_checked(rest, seconds)
    with child_that_asks() as child:
        try:
            reply: dict[str, Any] = child.ask(rest, seconds, heard.update)
        except NoAnswerError as ended:
            return without_answer(rest, ended, seconds, heard)
    if not reply["uncalled"]:
        return reply["text"], reply["passed"]
    if reply["text"] and (JSON in words or "refused" in reply):
        print(reply["text"], flush=True)
    raise UserError(reply.get("refused") or f"{reply['name']} could not be called {reply['uncalled']}")


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
) -> tuple[str, bool]:
    """Return the verdict on a function that ended the process, or did not end; `heard` is what it was doing.

    Raises:
        FaultError: nothing of the function had been imported.
    """
    nothing_imported(ended, heard)
    from attn_exp.diagnosis.command import progress, shown  # noqa: PLC0415 - few checks end so
    from attn_exp.experiment.verdict import unfinished  # noqa: PLC0415

    progress()("")
    how = how_without(ended, seconds)
    doing = f" {heard['doing']}" if "doing" in heard else " before it was imported"
    target = target_of(words)
    name, settings = target.rpartition(":")[2], [word for word in words if word != target and not word.startswith("-")]
    asked = heard.get("asked", " ".join(settings))
    return shown(unfinished(name, f"{how}{doing}", asked), words), False


def nothing_imported(ended: NoAnswerError, heard: dict[str, Any]) -> None:
    """See that code of others is to blame for an end: it ran, or was about to, or the time was too short for anything.

    Raises:
        FaultError: it is not.
    """
    if "doing" not in heard and not ended.late:
        raise FaultError(f"the process in which attn_exp asks ended before it imported anything ({ended.how})")


def how_without(ended: NoAnswerError, seconds: float) -> str:
    """Say how a child ended that gave no answer."""
    if ended.late:
        return f"was ended without an answer after {count_of_seconds(seconds)} ({WORD}{seconds:g})"
    return f"ended without an answer ({ended.how})"


# Every attention of a file


def target_of(words: Sequence[str]) -> str:
    """Return the first word that is neither an option nor the file of one."""
    return next((word for word in split_files(words)[1] if not word.startswith("-")), "")


def is_file(target: str) -> bool:
    """Say whether a target is a file alone, without the name of a function."""
    return target.endswith(".py")


def every_one_checked(words: Sequence[str], seconds: float) -> tuple[str, bool]:
    """Check every attention of a file, and return a table, or a list for JSON, and whether all of them passed.

    They share one child and its time, what one leaves is for the others. One that ends the child, or does not end in
    its share, has failed, and the rest get another child.

    Raises:
        UserError: a file that is not there, or cannot be imported, and one in which nothing could be called.
    """
    from attn_exp.diagnosis.whole_file import kept, table  # noqa: PLC0415 - few checks are of a whole file

    place, start = target_of(words), monotonic()
    rows, child, asked, heard = list[dict[str, Any]](), child_that_asks(), "", dict[str, Any]()
    try:
        try:
            listed = child.ask(list(words), seconds, heard.update)
        except NoAnswerError as ended:
            nothing_imported(ended, heard)
            raise UserError(f"{place}: {how_without(ended, seconds)} while it was imported") from ended
        names, asked = listed["names"], listed["asked"]
        for left, one in zip(range(len(names), 0, -1), names, strict=True):
            named = [f"{place}:{one['name']}" if word == place else word for word in words]
            share = max((seconds - (monotonic() - start)) / left, LEAST_SHARE)
            row, over = one_row(child, named, share, asked)
            rows.append(one | row)
            if over:
                child.close()
                child = child_that_asks()
    finally:
        child.close()
    shown = kept(rows)
    called = [row for row in shown if not row["uncalled"]]
    if JSON in words:
        text = json.dumps([row["verdict"] or {"name": row["name"], "uncalled": row["uncalled"]} for row in shown])
    else:
        text = table(place, rows, asked)
    if not called:
        if JSON in words:
            print(text, flush=True)
        why = "; ".join(f"{row['name']}: {row['uncalled'].removeprefix(row['name']).strip()}" for row in shown)
        raise UserError(f"{place}: no attention that can be called{f' ({why})' if why else ''}")
    return text, all(row["verdict"]["passed"] for row in called)


def one_row(child: Child, words: Sequence[str], share: float, asked: str) -> tuple[dict[str, Any], bool]:
    """Return what became of one name, and whether the child ended.

    Raises:
        FaultError: an error of our own.
    """
    heard: dict[str, Any] = {}
    try:
        reply = child.ask(list(words), share, heard.update)
    except FaultError:
        raise
    except UserError as error:
        return {"uncalled": str(error), "verdict": None}, False
    except NoAnswerError as ended:
        nothing_imported(ended, heard)
        from attn_exp.experiment.verdict import unfinished  # noqa: PLC0415 - few checks end so

        said = f"{how_without(ended, share)} {heard.get('doing', '')}".rstrip()
        name = target_of(words).rpartition(":")[2]
        return {"uncalled": "", "verdict": unfinished(name, said, asked).plain()}, True
    return {"uncalled": reply["uncalled"], "verdict": reply["verdict"]}, False


LEAST_SHARE = 2.0
"""Seconds that each of many gets, however little is left."""
