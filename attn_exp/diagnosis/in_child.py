"""`attn-exp check` as its user meets it: the function is imported and asked in a child, and what ends it is a verdict.

Code of others may call `sys.exit`, crash, hang or print. Here nothing of it is imported: the same words go to a child
process, which says what it is about to do, and answers with a verdict, or ends without one. Of a whole file each name
is asked in its turn, and a table says what became of it.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attn_exp.errors import EXIT_CODES, NOT_VERIFIED, RIGHT, WRONG, FaultError, UserError, brief, printable
from attn_exp.own_code import split_files, with_other_joined
from attn_exp.processes import Child, NoAnswerError

TIMEOUT, MOST_SECONDS = 60.0, 86_400.0
"""Seconds that a function may take to be asked, and the most that can be given."""
PREPARING = 300.0
"""Seconds for what is not counted: importing the file and its libraries, building and compiling."""
WORD = "timeout="
JSON = "--json"
CHECK_IN_CHILD = "attn_exp.cli:check_in_child"
ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Variables of a child that asks: its arrays are small, and threads that wait for each other take 20 times as long."""
WIDEST_SAID = 90

Reply = Mapping[str, Any]
"""What is known of a name: its `verdict` as JSON and as `text`, the exit `code`, or why it could not be called
(`uncalled`)."""


def checked(words: Sequence[str]) -> tuple[str, int]:
    """Check the function that the first word names in a child, and return what to print and the exit code.

    If the function cannot be called, a wrapper to be completed goes to stdout, or JSON that holds it, and the error to
    stderr.

    Raises:
        UserError: a function or a setting that is not there, or one that cannot be asked of a function.
        FaultError: an error of our own, there too.
    """
    seconds, words = time_of(words), with_other_joined(["--verbose" if word == "-v" else word for word in words])
    rest = [word for word in words if not word.startswith(WORD)]
    if target_of(rest).endswith(".py"):
        return check_file(rest, seconds)
    with start_child() as child:
        reply = ask(child, rest, seconds)
    if not reply["uncalled"]:
        return reply["text"], reply["code"]
    if reply["text"]:
        print(reply["text"], flush=True)
    print(f"attn_exp: {NOT_VERIFIED}: {brief(printable(reply['uncalled']), 280)}", file=sys.stderr)
    return "", EXIT_CODES[NOT_VERIFIED]


def start_child() -> Child:
    return Child(CHECK_IN_CHILD, variables=ALONE)


def target_of(words: Sequence[str]) -> str:
    """Return the first word that is neither an option nor the file of one."""
    return next((word for word in split_files(words)[1] if not word.startswith("-")), "")


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


def ask(child: Child, words: Sequence[str], seconds: float) -> Reply:
    """Return what a child says of a function, or that it ended, or did not end, without an answer.

    Raises:
        FaultError: the child ended before anything of the function was imported.
        UserError: a whole file was to be listed, and the child ended without an answer.
    """
    heard: dict[str, Any] = {}

    def hear(said: dict[str, Any]) -> bool:
        heard.update(said)
        return bool(said.get("asking"))

    try:
        reply: Reply = child.ask(list(words), seconds, hear, PREPARING)
    except NoAnswerError as ended:
        if "doing" not in heard and not ended.late:
            said = f"the process in which attn_exp asks ended before it imported anything ({ended.how})"
            raise FaultError(said) from ended
        how = f"it ended without an answer ({ended.how})"
        if ended.late:
            is_asked = "asking" in heard
            limit = f"{seconds if is_asked else max(seconds, PREPARING):g} s{f' ({WORD}{seconds:g})' * is_asked}"
            how = f"no answer within {limit}"
        child.kill()
        target, doing = target_of(words), heard.get("doing", "before it was imported")
        if target.endswith(".py"):
            raise UserError(f"{target}: {how} {doing}") from ended
        return reply_without_answer(words, f"{how} {doing}", heard)
    return reply


def reply_without_answer(words: Sequence[str], reason: str, heard: Mapping[str, Any]) -> Reply:
    from attn_exp.diagnosis.command import reply_to  # noqa: PLC0415 - few checks end so
    from attn_exp.experiment.verdict import unfinished  # noqa: PLC0415

    target = target_of(words)
    settings = [word for word in words if word != target and not word.startswith("-")]
    verdict = unfinished(target.rpartition(":")[2], reason, heard.get("asked", " ".join(settings)))
    return {**reply_to(verdict, words, target), "is_over": True}


# Every attention of a file


def check_file(words: Sequence[str], seconds: float) -> tuple[str, int]:
    """Check every attention of a file, and return a table, or a list for JSON, and the exit code.

    They share one child, and each has as many seconds. After one that ends the child, or does not end in time, the rest
    get another child. A row is kept if it is right, or has the code of an attention.

    Raises:
        UserError: a file that is not there, or cannot be imported, and one without an attention.
    """
    place, child = target_of(words), start_child()
    rows, others, plain = list[tuple[str, str, str]](), list[str](), list[Any]()
    try:
        listed = ask(child, words, seconds)
        for name, attends in listed["names"].items():
            named = [f"{place}:{name}" if word == place else word for word in words]
            try:
                reply = ask(child, named, seconds)
            except FaultError:
                raise
            except UserError as error:
                reply = {"uncalled": str(error), "verdict": None}
            if reply.get("is_over"):
                child.close()
                child = start_child()
            why = reply["uncalled"]
            verdict = reply["verdict"] or {"name": name, "outcome": NOT_VERIFIED, "reason": why, "uncalled": why}
            if attends or verdict["outcome"] == RIGHT:
                plain.append(verdict)
                rows.append((name, NOT_VERIFIED if why else verdict["outcome"], describe_reply(name, reply)))
            else:
                others.append(name)
    finally:
        child.close()
    if not rows:
        raise UserError(f"{place}: no attention that can be called")
    outcomes = [outcome for _, outcome, _ in rows]
    code = next(EXIT_CODES[one] for one in (WRONG, NOT_VERIFIED, RIGHT) if one in outcomes)
    counts = ", ".join(f"{outcomes.count(one)} {one}" for one in EXIT_CODES if one in outcomes)
    width = max(len(name) for name, _, _ in rows)
    lines = [f"{Path(place).name}: {counts}   (asked: {listed['asked']})", ""]
    lines += [f"  {name:{width}}  {outcome:12}  {said}".rstrip() for name, outcome, said in rows]
    lines += ["", f"Not attention: {', '.join(others)}"] if others else []
    return json.dumps(plain) if JSON in words else "\n".join(lines), code


def describe_reply(name: str, reply: Reply) -> str:
    """Return what a line says of one name: the mistakes, what is not verified, or the words to pass."""
    verdict, why = reply["verdict"], reply["uncalled"].removeprefix(name).strip().removeprefix("could not be called")
    if reply["uncalled"]:
        return brief(f"could not be called: {why.strip()}", WIDEST_SAID)
    if verdict["outcome"] == NOT_VERIFIED:
        return brief("; ".join(verdict["not_verified"]) or verdict["reason"], WIDEST_SAID)
    names, under = ", ".join(verdict["mistakes"]), verdict["right_under"]
    if verdict["outcome"] == RIGHT:
        return f"right under {under}" if under else f"remark: {names}" if names else ""
    return names or brief(verdict["computes"], WIDEST_SAID)
