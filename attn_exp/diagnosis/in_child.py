"""Run `attn-exp check`: import and check the user's function in a child process.

In: the arguments of the command line. Out: the text to print and the exit code.

User code may call `sys.exit`, crash, hang or print, so it is never imported here. A child process gets the same
arguments, reports each step before it begins, and returns a verdict or ends without one. The functions in a whole file
are checked one by one, and a table lists the results.
"""

from __future__ import annotations

import json
import math
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attn_exp.errors import EXIT_CODES, NOT_VERIFIED, RIGHT, WRONG, FaultError, UserError, brief, printable
from attn_exp.own_code import join_against, split_files
from attn_exp.processes import Child, NoAnswerError

TIMEOUT, MOST_SECONDS = 60.0, 86_400.0
"""Default timeout for checking one function, and the longest that a user can set, in seconds."""
PREPARING = 300.0
"""Seconds allowed for imports, building and compiling; the user's timeout replaces it if that is longer."""
QUIET_SECONDS = 8.0
"""A check that takes longer says so on stderr."""
TIMEOUT_SETTING = "timeout="
JSON = "--json"

SINGLE_THREADED = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Environment of a child process: on its small arrays, several threads take 20 times as long as one."""
WIDEST_CELL = 90
"""Maximum width of the last column of the table for a whole file."""

Reply = Mapping[str, Any]
"""The result for one name: the `verdict` as JSON and as `text`, and the exit `code`.

`uncalled` is the reason why the function could not be called, or empty.
"""


def checked(words: Sequence[str]) -> tuple[str, int]:
    """Check the function named by the first argument in a child process; return the output and the exit code.

    If the function cannot be called, print the draft of a factory, which the user completes, to stdout (as JSON if
    requested), and the error to stderr.

    Raises:
        UserError: a function or setting does not exist, or a check cannot use a setting.
        FaultError: attn_exp itself raised an error, here or in the child.
    """
    seconds = read_timeout(words)
    words = join_against(["--verbose" if word == "-v" else word for word in words])
    rest = [word for word in words if not word.startswith(TIMEOUT_SETTING)]
    if find_target(rest).endswith(".py"):
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
    return Child("attn_exp.cli:check_in_child", variables=SINGLE_THREADED)


def find_target(words: Sequence[str]) -> str:
    """Return the first argument that is neither an option nor the file that an option takes."""
    return next((word for word in split_files(words)[1] if not word.startswith("-")), "")


def read_timeout(words: Sequence[str]) -> float:
    """Return the time limit in seconds.

    Raises:
        UserError: the value is not a number of seconds in the allowed range.
    """
    values = [word.removeprefix(TIMEOUT_SETTING) for word in words if word.startswith(TIMEOUT_SETTING)]
    value = values[-1] if values else str(TIMEOUT)
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= MOST_SECONDS:
        raise UserError(f"timeout is {brief(repr(value))}; expected seconds, above 0 and at most {MOST_SECONDS:,.0f}")
    return seconds


def ask(child: Child, words: Sequence[str], seconds: float) -> Reply:
    """Ask a child process for its reply; if it ends or times out without one, return a reply that says so.

    Raises:
        FaultError: the child ended before it imported any user code.
        UserError: the child ended or timed out while it listed the names in a file.
    """
    # what the child reports: `doing`, its current step; `asked`, the settings; `asking`, sent with every call of the
    # function, which is True for the first calls and then restarts the timeout
    progress: dict[str, Any] = {}

    def hear(message: dict[str, Any]) -> bool:
        progress.update(message)
        return bool(message.get("asking"))

    text = f"attn_exp: still checking {find_target(words)}; the limit is {seconds:g} s ({TIMEOUT_SETTING}{seconds:g})"
    notice = threading.Timer(QUIET_SECONDS, print, (text,), {"file": sys.stderr, "flush": True})
    notice.start()
    try:
        reply: Reply = child.ask(list(words), seconds, hear, PREPARING)
    except NoAnswerError as ended:
        if "doing" not in progress and not ended.late:
            raise FaultError(f"the process that runs the check ended before it imported anything ({ended})") from ended
        child.kill()
        how = describe_end(ended, seconds, "asking" in progress)
        target = find_target(words)
        reason = f"{how} {progress.get('doing', 'before it was imported')}"
        if target.endswith(".py"):
            raise UserError(f"{target}: {reason}") from ended
        return reply_without_answer(words, reason, progress)
    finally:
        notice.cancel()
    return reply


def describe_end(ended: NoAnswerError, seconds: float, was_called: bool) -> str:
    """Say how a child process ended.

    The limit is the user's timeout; before the first call of the function, it is at least `PREPARING`.
    """
    limit = f"{seconds:g} s ({TIMEOUT_SETTING}{seconds:g})" if was_called else f"{max(seconds, PREPARING):g} s"
    return f"no answer within {limit}" if ended.late else f"it ended without an answer ({ended})"


def reply_without_answer(words: Sequence[str], reason: str, progress: Mapping[str, Any]) -> Reply:
    from attn_exp.diagnosis.command import reply_without_verdict  # noqa: PLC0415 - few checks need it

    target = find_target(words)
    settings = [word for word in words if word != target and not word.startswith("-")]
    asked = progress.get("asked", " ".join(settings))
    return {**reply_without_verdict(words, target, reason, asked), "is_over": True}


# All attention functions in a file


Row = tuple[str, str, str]
"""A row of the table: the function's name, its outcome, and a note such as the names of its mistakes."""


def check_file(words: Sequence[str], seconds: float) -> tuple[str, int]:
    """Check every attention function in a file; return a table, or a list for JSON, and the exit code.

    All functions share one child process, and each has the same time limit. If one of them ends the child or times
    out, a new child checks the rest. A function gets a row if it is right, or if its code may be attention.

    Raises:
        UserError: the file does not exist, cannot be imported, or contains no attention.
    """
    file, child = find_target(words), start_child()
    rows, others, verdicts = list[Row](), list[str](), list[Any]()
    try:
        listed = ask(child, words, seconds)
        for name, may_be_attention in listed["names"].items():
            reply = ask_about(child, [f"{file}:{name}" if word == file else word for word in words], seconds)
            if reply.get("is_over"):
                child.close()
                child = start_child()
            why = reply["uncalled"]
            verdict = reply["verdict"] or {"name": name, "outcome": NOT_VERIFIED, "reason": why, "uncalled": why}
            if may_be_attention or verdict["outcome"] == RIGHT:
                verdicts.append(verdict)
                rows.append((name, NOT_VERIFIED if why else verdict["outcome"], describe_reply(name, reply)))
            else:
                others.append(name)
    finally:
        child.close()
    if not rows:
        raise UserError(f"{file}: it contains no attention that can be called")
    outcomes = [outcome for _, outcome, _ in rows]
    code = next(EXIT_CODES[outcome] for outcome in (WRONG, NOT_VERIFIED, RIGHT) if outcome in outcomes)
    return json.dumps(verdicts) if JSON in words else format_table(file, listed["asked"], rows, others), code


def ask_about(child: Child, words: Sequence[str], seconds: float) -> Reply:
    """Ask the child about one function of a file; a UserError becomes the reason why it could not be called."""
    try:
        return ask(child, words, seconds)
    except FaultError:
        raise
    except UserError as error:
        return {"uncalled": str(error), "verdict": None}


def format_table(file: str, asked: str, rows: Sequence[Row], others: Sequence[str]) -> str:
    outcomes = [outcome for _, outcome, _ in rows]
    counts = ", ".join(f"{outcomes.count(outcome)} {outcome}" for outcome in EXIT_CODES if outcome in outcomes)
    width = max(len(name) for name, _, _ in rows)
    lines = [f"{Path(file).name}: {counts}   (requested: {asked})", ""]
    lines += [f"  {name:{width}}  {outcome:12}  {note}".rstrip() for name, outcome, note in rows]
    lines += ["", f"Not attention: {', '.join(others)}"] if others else []
    return "\n".join(lines)


def describe_reply(name: str, reply: Reply) -> str:
    """Return the last column of the table: an error, what was not verified, or the names of mistakes."""
    if reply["uncalled"]:
        why = reply["uncalled"].removeprefix(name).strip().removeprefix("could not be called")
        return brief(f"could not be called: {why.strip()}", WIDEST_CELL)
    verdict = reply["verdict"]
    if verdict["outcome"] == NOT_VERIFIED:
        return brief("; ".join(verdict["not_verified"]) or verdict["reason"], WIDEST_CELL)
    mistakes, setting = ", ".join(verdict["mistakes"]), verdict["right_under"]
    if verdict["outcome"] != RIGHT:
        return mistakes or brief(verdict["computes"], WIDEST_CELL)
    remark = f"remark: {mistakes}" if mistakes else ""
    return f"right under {setting}" if setting else remark
