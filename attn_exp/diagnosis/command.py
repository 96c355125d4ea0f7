"""`attn-exp check` and `attn-exp explain`: the words of a command line, and the verdict as text or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from attn_exp.config.compose import composed
from attn_exp.diagnosis.check import check
from attn_exp.diagnosis.explain import explain
from attn_exp.diagnosis.request import Request, request_of
from attn_exp.errors import UserError, unknown
from attn_exp.own_code import find_function

HOW = ("layout", "takes", "device", "dtype")
"""Settings that say how the function wants its arrays; all others say what it should compute."""
FLAGS = ("--json", "--quick")
ANSWER = "answer."
"""What a word begins with that gives the numbers of a stage."""


def checked(words: Sequence[str]) -> tuple[str, bool]:
    """Check the function that the first word names, and return what to print and whether it passed.

    Raises:
        UserError: a function or a setting that is not there, or one that cannot be asked of a function.
    """
    flags = {word for word in words if word.startswith("--")}
    for flag in flags - set(FLAGS):
        raise UserError(unknown(flag, FLAGS, "option"))
    target, *rest = [word for word in words if not word.startswith("--")] or [""]
    question = understood(rest)
    own = replace(find_function(target), target=target)
    verdict = check(own, question, quick="--quick" in flags, tell=progress())
    shown = json.dumps(verdict.plain(), ensure_ascii=False, indent=1) if "--json" in flags else str(verdict)
    return shown, verdict.passed


def explained(words: Sequence[str]) -> tuple[str, bool]:
    """Explain the numbers that words such as `answer.weights=mine.csv` name; return what to print, and whether right.

    Raises:
        UserError: numbers that cannot be read or have no place in the run, or words that no run would take.
    """
    flags = {word for word in words if word.startswith("--")}
    for flag in flags - {"--json"}:
        raise UserError(unknown(flag, ("--json",), "option"))
    settings, answers = apart([word for word in words if not word.startswith("--")])
    verdict = explain(composed(settings, []), answers, " ".join(settings) or "the run of no settings")
    shown = json.dumps(verdict.plain(), ensure_ascii=False, indent=1) if "--json" in flags else str(verdict)
    return shown, verdict.passed


def apart(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the settings of a run and the answers by stage.

    Raises:
        UserError: a stage is given twice.
    """
    answers: dict[str, str] = {}
    for word in words:
        if word.startswith(ANSWER):
            stage, _, value = word.removeprefix(ANSWER).partition("=")
            if stage in answers:
                raise UserError(f"{ANSWER}{stage} is given twice")
            answers[stage] = value
    return [word for word in words if not word.startswith(ANSWER)], answers


def understood(words: Sequence[str]) -> Request:
    """Return what some words ask of a function: settings of a run, and how it wants its arrays.

    Raises:
        UserError: words that no run would take.
    """
    how = {key: value for key, _, value in (word.partition("=") for word in words) if key in HOW}
    settings = [word for word in words if word.partition("=")[0] not in HOW]
    return request_of(composed(settings, []), settings, **how)


def progress() -> Callable[[str], None]:
    """Return what hears how far a check is: it writes one line on a terminal, and wipes it at the end."""
    if not sys.stderr.isatty():
        return lambda rung: None

    def tell(rung: str) -> None:
        text = f"asking: {rung}" if rung else ""
        print(f"\r{text:60}\r", end="", file=sys.stderr, flush=True)

    return tell
