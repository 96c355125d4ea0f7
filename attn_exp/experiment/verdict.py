"""What a check of a function or of numbers ends in: a verdict that shows itself as text and in a notebook."""

from __future__ import annotations

import html
from dataclasses import asdict, dataclass
from typing import Any

from attn_exp import mistakes

HELD, BROKEN, ABSENT, REMARK = "held", "broken", "not offered", "remark"
SIGNS = {HELD: "ok", BROKEN: "BROKEN", ABSENT: "-", REMARK: "note"}

CALLED, ANSWERED, CHECKED = "it can be called", "it answers", "it can be checked"
"""The first rungs of the ladder: without them nothing else is asked."""

Cells = tuple[tuple[tuple[str, ...], ...], ...]
"""A matrix for each head, as texts, so that a file of JSON holds all of it."""


@dataclass(frozen=True)
class Stage:
    """One stage of a case: the right numbers, and the function's own, or nothing where they are not known."""

    name: str
    right: Cells
    mine: Cells
    parts: bool


@dataclass(frozen=True)
class Finding:
    """One rung of the ladder: what was asked, whether it held, and what was seen."""

    rung: str
    state: str
    said: str = ""


@dataclass(frozen=True)
class Smallest:
    """The smallest input that still fails: lines to paste into Python, the same as a command, what each gives, and the
    stages of both."""

    python: str
    command: str
    mine: str
    right: str
    stages: tuple[Stage, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What became of a check.

    `passed`: nothing is broken. `mistakes`: the names of what is wrong, together where there are several; of a function
    that passed, a remark that a careful reader should know. `alike`: other names that give the very same numbers here.
    `computes`: what the function computes, in words. `findings`: every question and what came of it. `right_under`: the
    words under which it is right, where nobody typed them, such as `mask=causal`; passing them holds it to them.
    `not_asked`: what could not be asked of it, each with the reason.
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

    @property
    def uncalled(self) -> str:
        """Why it could not be called, where each way to call it was an error; else nothing."""
        return next((one.said for one in self.findings if one.rung == CALLED and one.state == BROKEN), "")

    def __str__(self) -> str:
        return "\n".join(lines(self))

    def _repr_html_(self) -> str:
        """Show the verdict in a notebook."""
        return f"<pre>{html.escape(str(self))}</pre>"

    def plain(self) -> dict[str, Any]:
        """Return the verdict as words, numbers and lists, for JSON."""
        return asdict(self)


def unfinished(name: str, said: str, asked: str, rung: str = ANSWERED) -> Verdict:
    """Return the verdict of a check that came to no end, for a reason that is said in a few words."""
    return Verdict(name, False, (), f"nothing that is known: it {said}", (Finding(rung, BROKEN, said),), asked)


def lines(verdict: Verdict) -> list[str]:
    """Return the verdict as a reader sees it."""
    state = "passed" if verdict.passed else "FAILED"
    under = f" under {verdict.right_under}" if verdict.passed and verdict.right_under else ""
    said = [f"{verdict.name}: {state}{under}   (asked: {verdict.asked})", ""]
    said += [f"It computes {verdict.computes.rstrip('.')}."]
    if verdict.right_under:
        said += [f"It is right under {verdict.right_under}: pass these words, and it is held to them."]
    for name in verdict.mistakes:
        mistake = mistakes.mistake(name)
        said += [
            "",
            f"{'remark' if verdict.passed else 'mistake'}: {name}",
            f"  {mistake.says}",
            f"  fix:  {mistake.fix}",
            f"  seen: {mistake.seen}",
        ]
    if verdict.alike:
        names = ", or ".join(" with ".join(group) for group in verdict.alike)
        said += ["", f"The same numbers come from {names}."]
    if verdict.smallest is not None:
        small = verdict.smallest
        said += ["", "The smallest input that fails:", *(f"  {line}" for line in small.python.splitlines())]
        said += [
            f"  # gives {small.mine}",
            f"  # right {small.right}",
            *([f"  {small.command}"] if small.command else []),
        ]
    if verdict.not_asked:
        said += ["", *(f"not asked: {one}" for one in verdict.not_asked)]
    width = max((len(finding.rung) for finding in verdict.findings), default=0)
    said += [
        "",
        *(
            f"{SIGNS[finding.state]:>6}  {finding.rung:{width}}  {finding.said}".rstrip()
            for finding in verdict.findings
        ),
    ]
    return said
