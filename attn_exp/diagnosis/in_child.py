"""`attn-exp check` as its user meets it: the function is imported and asked in a child, and what ends it is a verdict.

Code of others may call `sys.exit`, crash, hang or print. Here nothing of it is imported: the same words go to a child
process, which says what it is about to do, and answers with a verdict, or ends without one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from attn_exp.child import Child, NoAnswerError, count_of_seconds
from attn_exp.errors import UserError, brief

TIMEOUT, MOST_SECONDS = 60.0, 86_400.0
"""Seconds that a check may take, and the most that can be asked for."""
WORD = "timeout="
JSON = "--json"
CHECK_IN_CHILD = "attn_exp.cli:check_in_child"


def checked(words: Sequence[str]) -> tuple[str, bool]:
    """Check the function that the first word names in a child, and return what to print and whether it passed.

    What could not be called is printed too where JSON is asked for, so that programs have something to read.

    Raises:
        UserError: a function or a setting that is not there, one that cannot be asked of a function, or a function that
            cannot be called.
    """
    seconds = time_of(words)
    heard: dict[str, Any] = {}
    rest = [word for word in words if not word.startswith(WORD)]
    with Child(CHECK_IN_CHILD) as child:
        try:
            reply: dict[str, Any] = child.ask(rest, seconds, heard.update)
        except NoAnswerError as ended:
            return without_answer(rest, ended, seconds, heard)
    if not reply["uncalled"]:
        return reply["text"], reply["passed"]
    if JSON in words:
        print(reply["text"], flush=True)
    raise UserError(f"{reply['name']} could not be called {reply['uncalled']}")


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
    """Return the verdict on a function that ended the process, or did not end; `heard` is what it was doing."""
    from attn_exp.diagnosis.command import progress, shown  # noqa: PLC0415 - few checks end so
    from attn_exp.experiment.verdict import unfinished  # noqa: PLC0415

    progress()("")
    how = f"ended without an answer ({ended.how})"
    if ended.late:
        how = f"was ended without an answer after {count_of_seconds(seconds)} ({WORD}{seconds:g})"
    doing = f" {heard['doing']}" if "doing" in heard else " before it was imported"
    target = next((word for word in words if not word.startswith("-")), "")
    name, settings = target.rpartition(":")[2], [word for word in words if word != target and not word.startswith("-")]
    asked = heard.get("asked", " ".join(settings))
    return shown(unfinished(name, f"{how}{doing}", asked), words), False
