"""The verdict of a check of a function or of numbers, and its text for the terminal and notebooks."""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass, replace
from typing import Any

from attn_exp import mistakes
from attn_exp.errors import NOT_VERIFIED, RIGHT, WRONG
from attn_exp.mistakes.mistake import Mistake

HELD, BROKEN, ABSENT, REMARK = "held", "broken", "not offered", "remark"
SIGNS = {HELD: "ok", BROKEN: "BROKEN", ABSENT: "-", REMARK: "note", NOT_VERIFIED: "?"}

CALLED, ANSWERED, CHECKED = "it can be called", "it answers", "it can be checked"
"""The first questions of a check; if the answer to one is no, the check ends there."""

Cells = tuple[tuple[tuple[str, ...], ...], ...]
"""One matrix per head; its numbers are strings, for JSON."""


@dataclass(frozen=True)
class Stage:
    """One stage of a test case: the expected numbers, and those of the function, empty if unknown."""

    name: str
    right: Cells
    mine: Cells
    parts: bool


@dataclass(frozen=True)
class Finding:
    """One question of a check, its result, and what was observed."""

    rung: str
    state: str
    said: str = ""


@dataclass(frozen=True)
class Smallest:
    """The smallest input that still fails: lines to paste into Python, actual and expected output, and all stages."""

    python: str
    mine: str
    right: str
    stages: tuple[Stage, ...] = ()


@dataclass(frozen=True)
class Side:
    """One of two implementations that were compared, with a short verdict.

    `smallest` has its call and output for the smallest input on which the two differ.
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

    `outcome` is `right`, `wrong` or `not verified`, and `passed` is true only for `right`. `reason` is the outcome in
    one sentence. `verified` names the questions that the function passed; `not_verified` lists everything that could
    not be verified, such as an argument of unknown meaning, each with the reason. `mistakes` names the mistake, or
    several that occur together; if the function is right, a remark worth knowing. `alike`: other mistakes
    that give identical numbers here. `computes`: a description of what the function computes. `findings`: every
    question and its result. `right_under`: settings that were not passed but under which the function is right, such as
    `mask=causal`; pass these to check it with them. `not_asked`: everything that the function does not support, each
    with the reason. `unexplained`: the
    output is wrong, and no known mistake or setting explains it; `stage` is then the first stage that differs from
    attention, as far as known: `q` for the projections of x, `logits` for everything up to the logits.

    `against`: the name of another implementation, and `sides` the results of both; then `right` means that they agree,
    `computes` describes where they differ and why, and `findings` are those of both.
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
        """The verdict in a few lines: outcome, reason, fix, the smallest failing input, what is not verified.

        `str(verdict)` lists every question too.
        """
        return summary_of(self)

    @property
    def uncalled(self) -> str:
        """The reason why the function could not be called, if every attempt raised an error; else empty."""
        return next((one.said for one in self.findings if one.rung == CALLED and one.state == BROKEN), "")

    def __str__(self) -> str:
        return text_of(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def plain(self) -> dict[str, Any]:
        """Return the verdict as strings, numbers and lists, for JSON."""
        return asdict(self)


def unfinished(name: str, reason: str, asked: str, rung: str = ANSWERED) -> Verdict:
    """Return the verdict of a check that ended early because of a timeout, a dead process, or a lack of memory."""
    computes, findings = f"unknown: {reason}", (Finding(rung, NOT_VERIFIED, reason),)
    return Verdict(name, False, (), computes, findings, asked, outcome=NOT_VERIFIED, reason=reason)


def decide(verdict: Verdict, not_verified: tuple[str, ...] = (), reason: str = "") -> Verdict:
    """Return the verdict with its outcome filled in.

    `not_verified` is appended to the list of the verdict; a `reason` makes the outcome `not verified`.
    """
    left = tuple(dict.fromkeys((*verdict.not_verified, *not_verified)))
    is_open = reason or (verdict.passed and left)
    outcome = NOT_VERIFIED if is_open else RIGHT if verdict.passed else WRONG
    return replace(
        verdict, passed=outcome == RIGHT, outcome=outcome, not_verified=left, reason=reason or what_it_is(verdict),
        verified=tuple(one.rung for one in verdict.findings if one.state == HELD and one.rung != CALLED),
    )  # fmt: skip


def what_it_is(verdict: Verdict) -> str:
    plain, names = verdict.computes.rstrip("."), " and ".join(verdict.mistakes)
    if verdict.against:
        return f"{plain}."
    if names and not verdict.passed and plain.startswith(said := f"attention with {names}"):
        return f"Its mistake{'s are' if len(verdict.mistakes) > 1 else ' is'} {names}{plain.removeprefix(said)}."
    return f"It computes {plain}."


STAGES = {"q": "queries, keys or values", "k": "keys", "v": "values", "masked": "masks"}
"""Names of stages in a headline."""


def headline(verdict: Verdict, name: str = "") -> str:
    """Return the outcome in one line, such as `mine.py:attention: wrong: scale_by_d`."""
    right, wrong = ("agree", "differ") if verdict.against else (RIGHT, WRONG)
    name = f"{verdict.name} and {verdict.against}" if verdict.against else name or verdict.name
    right += f" under {verdict.right_under}" if verdict.right_under else ""
    if verdict.outcome == NOT_VERIFIED:
        left = ", ".join(one.partition(" (")[0] for one in verdict.not_verified) or verdict.reason
        return f"{name}: {f'{right} as far as checked; ' if verdict.verified else ''}{NOT_VERIFIED}: {left}"
    if not verdict.is_wrong:
        return f"{name}: {right}"
    stage = STAGES.get(verdict.stage, verdict.stage)
    names = ", ".join(verdict.mistakes) or (f"the {stage} (no known mistake)" if stage else "no known mistake")
    return f"{name}: {wrong}{f': {names}' if verdict.mistakes or not verdict.against else ''}"


def summary_of(verdict: Verdict, name: str = "") -> str:
    """Return the verdict in a few lines; `name` is how the user named the function."""
    first = headline(verdict, name)
    said = [first, *[verdict.reason] * (verdict.reason not in first)]
    for known, mistake in look_up_mistakes(verdict):
        said.append(f"fix: {mistake.fix}" if verdict.is_wrong else f"remark: {known}: {mistake.says}")
    alone = ", ".join(one.rung for one in verdict.findings if one.state == ABSENT and verdict.against)
    left = [one for one in verdict.not_verified if one.partition(" (")[2].rstrip(")") not in verdict.reason]
    said += [*smallest_lines(verdict), *[f"not compared: {alone}"] * bool(alone)]
    return "\n".join([*said, *(f"{NOT_VERIFIED}: {one}" for one in left)])


def text_of(verdict: Verdict, name: str = "") -> str:
    """Return the verdict with every question, as `attn-exp check -v` prints it: the summary and the details."""
    first, *said = summary_of(verdict, name).split("\n")
    if verdict.stage:
        said.append(f"The first stage that differs: {STAGES.get(verdict.stage, verdict.stage)}.")
    said += [f"{known}: {mistake.says} Seen in: {mistake.seen}" for known, mistake in look_up_mistakes(verdict)]
    if verdict.alike:
        said.append(f"The same numbers come from {', or '.join(' with '.join(group) for group in verdict.alike)}.")
    said += [f"not checked: {one}" for one in verdict.not_asked if one not in verdict.not_verified]
    width = max((len(one.rung) for one in verdict.findings), default=0)
    ladder = (f"{SIGNS[one.state]:>6}  {one.rung:{width}}  {one.said}".rstrip() for one in verdict.findings)
    return "\n".join([first, f"asked: {verdict.asked}", *said, "", *ladder])


def look_up_mistakes(verdict: Verdict) -> list[tuple[str, Mistake]]:
    return [(name, mistakes.mistake(name)) for name in verdict.mistakes]


def smallest_lines(verdict: Verdict) -> list[str]:
    every = [side.smallest for side in verdict.sides] if verdict.against else [verdict.smallest]
    small, said = [one for one in every if one is not None], list[str]()
    for one in small:  # both may take the same arrays: print shared lines once
        said += [line for line in (f"  {line}" for line in one.python.splitlines()) if line not in said]
        said += [f"  # gives {one.mine}"]
    word = "the definition gives" if verdict.against else "right"
    return [*said, *(f"  # {word} {one.right}" for one in small[:1] if one.right)]
