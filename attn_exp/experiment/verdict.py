"""The verdict of a check of a function or of numbers, and its text for the terminal and notebooks.

`decide` fills in the outcome. `format_headline` writes the verdict in one line, `format_summary` in a few, and
`format_details` with every question.
"""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass, replace
from typing import Any

from attn_exp import mistakes
from attn_exp.errors import NOT_VERIFIED, RIGHT, WRONG
from attn_exp.mistakes.mistake import Mistake

HELD, BROKEN, ABSENT, REMARK = "held", "broken", "not offered", "remark"
"""The states of a question; `NOT_VERIFIED` is another."""

SIGNS = {HELD: "ok", BROKEN: "BROKEN", ABSENT: "-", REMARK: "note", NOT_VERIFIED: "?"}
"""How a terminal shows each state."""

CALLED, ANSWERED, CHECKED = "it can be called", "it answers", "it can be checked"
"""The first questions of a check. If the answer to one of them is no, the check ends there."""

Cells = tuple[tuple[tuple[str, ...], ...], ...]
"""The matrices of a stage, one per head; numbers are strings, for JSON."""


@dataclass(frozen=True)
class Stage:
    """One stage of a test case.

    `right`: the expected numbers.
    `mine`: the numbers of the user's function; empty if they are unknown.
    `parts`: whether `right` and `mine` are known to differ.
    """

    name: str
    right: Cells
    mine: Cells
    parts: bool


@dataclass(frozen=True)
class Finding:
    """One question of a check.

    `state`: the result, a key of `SIGNS`.
    `message`: what was observed.
    """

    question: str
    state: str
    message: str = ""


@dataclass(frozen=True)
class Smallest:
    """The smallest input on which a function still fails.

    `python`: lines to paste into Python.
    `mine`, `right`: the actual and the expected output.
    """

    python: str
    mine: str
    right: str
    stages: tuple[Stage, ...] = ()


@dataclass(frozen=True)
class Side:
    """One of two implementations that were compared, with a short verdict.

    `outcome`, `computes`, `mistakes`, `right_under`: as in `Verdict`.
    `smallest`: the call and the output of this implementation, for the smallest input on which the two differ.
    """

    name: str
    outcome: str
    computes: str
    mistakes: tuple[str, ...] = ()
    right_under: str = ""
    smallest: Smallest | None = None


@dataclass(frozen=True)
class Verdict:
    """The result of a check.

    - `outcome`: `right`, `wrong` or `not verified`.
    - `passed`: whether the outcome is `right`.
    - `reason`: the outcome in one sentence.
    - `computes`: a description of what the function computes.
    - `mistakes`: the name of its mistake, or of several that occur together; if it is right, a remark worth knowing.
    - `alike`: other mistakes that give identical numbers here.
    - `findings`: every question and its result.
    - `asked`: the settings that the function was checked with, as text.
    - `verified`: the questions that the function passed.
    - `not_verified`: what could not be verified, such as an argument of unknown meaning, each with the reason.
    - `not_asked`: what the function does not support, each with the reason.
    - `right_under`: settings that were not passed, but under which the function is right, such as `mask=causal`; pass
      them to check the function with them.
    - `unexplained`: whether the output is wrong and no known mistake or setting explains it.
    - `stage`: the first stage that differs from attention, if the output is unexplained and the stage is known; `q`
      stands for the projections of x, and `logits` for everything up to the logits.
    - `against`: the name of another implementation that the function was compared with; empty if there was none.
    - `sides`: the results of both implementations, if two were compared. In this case, the outcome `right` means that
      they agree, `computes` describes where they differ and why, and `findings` has the questions of both.
    """

    name: str
    passed: bool
    mistakes: tuple[str, ...]
    computes: str
    findings: tuple[Finding, ...]
    asked: str = ""
    alike: tuple[tuple[str, ...], ...] = ()
    smallest: Smallest | None = None
    seconds: float = 0.0
    right_under: str = ""
    not_asked: tuple[str, ...] = ()
    against: str = ""
    sides: tuple[Side, ...] = ()
    unexplained: bool = False
    stage: str = ""
    outcome: str = ""
    verified: tuple[str, ...] = ()
    not_verified: tuple[str, ...] = ()
    reason: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether an output contradicts the definition."""
        return self.outcome == WRONG or not (self.outcome or self.passed)

    @property
    def summary(self) -> str:
        """The verdict in a few lines: outcome, reason, fix, the smallest input that fails, and what is not verified.

        `str(verdict)` gives every question too.
        """
        return format_summary(self)

    @property
    def uncalled(self) -> str:
        """Why the function could not be called, if every attempt raised an error; empty if a call succeeded."""
        return next(
            (finding.message for finding in self.findings if finding.question == CALLED and finding.state == BROKEN), ""
        )

    def __str__(self) -> str:
        return format_details(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def plain(self) -> dict[str, Any]:
        """Return the verdict as strings, numbers and lists, for JSON."""
        return asdict(self)


def make_unfinished(name: str, reason: str, asked: str, question: str = ANSWERED) -> Verdict:
    """Return the verdict of a check that ended early because of a timeout, a dead process, or a lack of memory."""
    computes, findings = f"unknown: {reason}", (Finding(question, NOT_VERIFIED, reason),)
    return Verdict(name, False, (), computes, findings, asked, outcome=NOT_VERIFIED, reason=reason)


def decide(verdict: Verdict, not_verified: tuple[str, ...] = (), reason: str = "") -> Verdict:
    """Return the verdict with its outcome filled in.

    `not_verified` is appended to the `not_verified` of the verdict. A `reason` makes the outcome `not verified`.
    """
    unverified = tuple(dict.fromkeys((*verdict.not_verified, *not_verified)))
    is_unverified = reason or (verdict.passed and unverified)
    outcome = NOT_VERIFIED if is_unverified else RIGHT if verdict.passed else WRONG
    return replace(
        verdict,
        passed=outcome == RIGHT,
        outcome=outcome,
        verified=tuple(
            finding.question for finding in verdict.findings if finding.state == HELD and finding.question != CALLED
        ),
        not_verified=unverified,
        reason=reason or describe_outcome(verdict),
    )


def describe_outcome(verdict: Verdict) -> str:
    description, names = verdict.computes.rstrip("."), " and ".join(verdict.mistakes)
    if verdict.against:
        return f"{description}."
    if names and not verdict.passed and description.startswith(mistaken := f"attention with {names}"):
        return (
            f"Its mistake{'s are' if len(verdict.mistakes) > 1 else ' is'} {names}{description.removeprefix(mistaken)}."
        )
    return f"It computes {description}."


STAGE_NAMES = {"q": "queries, keys or values", "k": "keys", "v": "values", "masked": "masks"}


def format_headline(verdict: Verdict, name: str = "") -> str:
    """Return the outcome in one line, such as `mine.py:attention: wrong: scale_by_d`."""
    right, wrong = ("agree", "differ") if verdict.against else (RIGHT, WRONG)
    name = f"{verdict.name} and {verdict.against}" if verdict.against else name or verdict.name
    right += f" under {verdict.right_under}" if verdict.right_under else ""
    if verdict.outcome == NOT_VERIFIED:
        unverified = ", ".join(entry.partition(" (")[0] for entry in verdict.not_verified) or verdict.reason
        return f"{name}: {f'{right} as far as checked; ' if verdict.verified else ''}{NOT_VERIFIED}: {unverified}"
    if not verdict.is_wrong:
        return f"{name}: {right}"
    stage = STAGE_NAMES.get(verdict.stage, verdict.stage)
    names = ", ".join(verdict.mistakes) or (f"the {stage} (no known mistake)" if stage else "no known mistake")
    return f"{name}: {wrong}{f': {names}' if verdict.mistakes or not verdict.against else ''}"


def format_summary(verdict: Verdict, name: str = "") -> str:
    """Return the verdict in a few lines; `name` is the function's name as the user wrote it."""
    head = format_headline(verdict, name)
    lines = [head, *[verdict.reason] * (verdict.reason not in head)]
    for mistake_name, mistake in look_up_mistakes(verdict):
        lines.append(f"fix: {mistake.fix}" if verdict.is_wrong else f"remark: {mistake_name}: {mistake.says}")
    not_compared = ", ".join(
        finding.question for finding in verdict.findings if finding.state == ABSENT and verdict.against
    )
    # an entry is `NAME (REASON)`; its reason may be in the verdict's reason already
    unverified = [entry for entry in verdict.not_verified if entry.partition(" (")[2].rstrip(")") not in verdict.reason]
    lines += [*list_smallest_input(verdict), *[f"not compared: {not_compared}"] * bool(not_compared)]
    return "\n".join([*lines, *(f"{NOT_VERIFIED}: {entry}" for entry in unverified)])


def format_details(verdict: Verdict, name: str = "") -> str:
    """Return the verdict as `attn-exp check -v` prints it: the summary, the details and every question."""
    head, *lines = format_summary(verdict, name).split("\n")
    if verdict.stage:
        lines.append(f"The first stage that differs: {STAGE_NAMES.get(verdict.stage, verdict.stage)}.")
    lines += [
        f"{mistake_name}: {mistake.says} Seen in: {mistake.seen}" for mistake_name, mistake in look_up_mistakes(verdict)
    ]
    if verdict.alike:
        lines.append(f"The same numbers come from {', or '.join(' with '.join(group) for group in verdict.alike)}.")
    lines += [f"not checked: {entry}" for entry in verdict.not_asked if entry not in verdict.not_verified]
    width = max((len(finding.question) for finding in verdict.findings), default=0)
    questions = (
        f"{SIGNS[finding.state]:>6}  {finding.question:{width}}  {finding.message}".rstrip()
        for finding in verdict.findings
    )
    return "\n".join([head, f"asked: {verdict.asked}", *lines, "", *questions])


def look_up_mistakes(verdict: Verdict) -> list[tuple[str, Mistake]]:
    return [(name, mistakes.mistake(name)) for name in verdict.mistakes]


def list_smallest_input(verdict: Verdict) -> list[str]:
    candidates = [side.smallest for side in verdict.sides] if verdict.against else [verdict.smallest]
    examples, lines = [example for example in candidates if example is not None], list[str]()
    for example in examples:  # both may take the same arrays: print shared lines once
        lines += [line for line in (f"  {line}" for line in example.python.splitlines()) if line not in lines]
        lines += [f"  # gives {example.mine}"]
    word = "the definition gives" if verdict.against else "right"
    return [*lines, *(f"  # {word} {example.right}" for example in examples[:1] if example.right)]
