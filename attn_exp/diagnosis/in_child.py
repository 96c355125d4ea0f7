"""Run `attn-exp check`: import and check the user's function in a child process.

User code may call `sys.exit`, crash, hang or print, so it is never imported here. A child process gets the same
arguments, reports each step before it begins, and returns a verdict or ends without one. The functions in a whole file
are checked one by one, and a table lists the results.
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
"""Default timeout for checking one function, and the longest that a user can set, in seconds."""
PREPARING = 300.0
"""Limit in seconds for steps that the user's timeout does not cover: imports, building and compiling."""
WORD = "timeout="
JSON = "--json"
CHECK_IN_CHILD = "attn_exp.cli:check_in_child"
ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Environment of a child process: with its small arrays, several threads would take 20 times as long as one."""
WIDEST_SAID = 90

Reply = Mapping[str, Any]
"""The result for one name: the `verdict` as JSON and as `text`, and the exit `code`.

`uncalled` is the reason why the function could not be called, or empty.
"""


def checked(words: Sequence[str]) -> tuple[str, int]:
    """Check the function named by the first argument in a child process; return the output and the exit code.

    If the function cannot be called, print the draft of a factory, or JSON that contains it, to stdout, and the error
    to stderr.

    Raises:
        UserError: a function or setting does not exist, or a check cannot use a setting.
        FaultError: attn_exp itself raised an error, here or in the child.
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
    """Return the first argument that is neither an option nor the file that an option takes."""
    return next((word for word in split_files(words)[1] if not word.startswith("-")), "")


def time_of(words: Sequence[str]) -> float:
    """Return the time limit in seconds.

    Raises:
        UserError: the value is not a number of seconds in the allowed range.
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
    """Ask a child process for its reply; if it ends or times out without one, return a reply that says so.

    Raises:
        FaultError: the child ended before it imported any user code.
        UserError: the child ended or timed out while it listed the names in a file.
    """
    heard: dict[str, Any] = {}

    def hear(said: dict[str, Any]) -> bool:
        heard.update(said)
        return bool(said.get("asking"))

    try:
        reply: Reply = child.ask(list(words), seconds, hear, PREPARING)
    except NoAnswerError as ended:
        if "doing" not in heard and not ended.late:
            said = f"the process that runs the check ended before it imported anything ({ended})"
            raise FaultError(said) from ended
        how = f"it ended without an answer ({ended})"
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
    from attn_exp.diagnosis.command import reply_without_verdict  # noqa: PLC0415 - few checks end so

    target = target_of(words)
    settings = [word for word in words if word != target and not word.startswith("-")]
    reply = reply_without_verdict(words, target, reason, heard.get("asked", " ".join(settings)))
    return {**reply, "is_over": True}


# All attention functions in a file


def check_file(words: Sequence[str], seconds: float) -> tuple[str, int]:
    """Check every attention function in a file; return a table, or a list for JSON, and the exit code.

    All functions share one child process, and each has the same time limit. If one of them ends the child or times
    out, a new child checks the rest. A function gets a row if it is right, or if its code may be attention.

    Raises:
        UserError: the file does not exist, cannot be imported, or contains no attention.
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
        raise UserError(f"{place}: it contains no attention that can be called")
    outcomes = [outcome for _, outcome, _ in rows]
    code = next(EXIT_CODES[one] for one in (WRONG, NOT_VERIFIED, RIGHT) if one in outcomes)
    counts = ", ".join(f"{outcomes.count(one)} {one}" for one in EXIT_CODES if one in outcomes)
    width = max(len(name) for name, _, _ in rows)
    lines = [f"{Path(place).name}: {counts}   (asked: {listed['asked']})", ""]
    lines += [f"  {name:{width}}  {outcome:12}  {said}".rstrip() for name, outcome, said in rows]
    lines += ["", f"Not attention: {', '.join(others)}"] if others else []
    return json.dumps(plain) if JSON in words else "\n".join(lines), code


def describe_reply(name: str, reply: Reply) -> str:
    verdict = reply["verdict"]
    why = reply["uncalled"].removeprefix(name).strip().removeprefix("could not be called")
    if reply["uncalled"]:
        return brief(f"could not be called: {why.strip()}", WIDEST_SAID)
    if verdict["outcome"] == NOT_VERIFIED:
        return brief("; ".join(verdict["not_verified"]) or verdict["reason"], WIDEST_SAID)
    names, under = ", ".join(verdict["mistakes"]), verdict["right_under"]
    if verdict["outcome"] == RIGHT:
        return f"right under {under}" if under else f"remark: {names}" if names else ""
    return names or brief(verdict["computes"], WIDEST_SAID)
