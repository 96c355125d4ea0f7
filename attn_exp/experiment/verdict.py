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
class Side:
    """One of two implementations that were held against each other: its own verdict in short, and the smallest input on
    which the two differ, as it is called with it, with what it gives."""

    name: str
    passed: bool
    computes: str
    mistakes: tuple[str, ...] = ()
    right_under: str = ""
    smallest: Smallest | None = None


@dataclass(frozen=True)
class Verdict:
    """What became of a check.

    `passed`: nothing is broken. `mistakes`: the names of what is wrong, together where there are several; of a function
    that passed, a remark that a careful reader should know. `alike`: other names that give the very same numbers here.
    `computes`: what the function computes, in words. `findings`: every question and what came of it. `right_under`: the
    words under which it is right, where nobody typed them, such as `mask=causal`; passing them holds it to them.
    `not_asked`: what could not be asked of it, each with the reason. `where`: the condition under which alone it is
    wrong. `unexplained`: its answers are wrong, and no mistake or setting gives them; `stage` is then the first stage
    that differs from attention, as far as that is known: `q` for what is made of x, `logits` for all that makes them.
    `against`: the name of another implementation, and `sides` what either is; then `passed` says that the two agree,
    `computes` where they part and why, and `findings` are those of both.
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
    where: str = ""
    unexplained: bool = False
    stage: str = ""

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
    if verdict.against:
        return lines_of_two(verdict)
    state = "passed" if verdict.passed else "FAILED"
    under = f" under {verdict.right_under}" if verdict.passed and verdict.right_under else ""
    said = [f"{verdict.name}: {state}{under}   (asked: {verdict.asked})", ""]
    said += ["It could not be called." if verdict.uncalled else what_it_is(verdict)]
    if verdict.stage:
        said += [f"The first stage that differs: {verdict.stage}."]
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
    return [*said, *ladder(verdict)]


def what_it_is(verdict: Verdict) -> str:
    """Return what a function computes as a sentence; of one that is wrong, its mistakes."""
    plain = verdict.computes.rstrip(".")
    names = " and ".join(verdict.mistakes)
    if names and not verdict.passed and plain.startswith(said := f"attention with {names}"):
        return f"Its mistake{'s are' if len(verdict.mistakes) > 1 else ' is'} {names}{plain.removeprefix(said)}."
    return f"It computes {plain}."


def lines_of_two(verdict: Verdict) -> list[str]:
    """Return the verdict on two implementations as a reader sees it."""
    head = f"{verdict.name} and {verdict.against}: {'they agree' if verdict.passed else 'THEY PART'}"
    said = [f"{head}   (asked: {verdict.asked})", "", f"{verdict.computes.rstrip('.')}.", "", "Beside the definition:"]
    for side in verdict.sides:
        state = "right" if side.passed and not side.right_under else f"right under {side.right_under}"
        said.append(f"  {side.name}: {state if side.passed or side.right_under else side.computes.rstrip('.')}.")
    for name in verdict.mistakes:
        said += [
            "",
            f"mistake: {name}",
            f"  fix:  {mistakes.mistake(name).fix}",
            f"  seen: {mistakes.mistake(name).seen}",
        ]
    small = [(side.name, side.smallest) for side in verdict.sides if side.smallest is not None]
    if small:
        said += ["", "The smallest input on which they differ:"]
    shown = set[str]()  # the second is called with what stands there already, where it takes the same
    for _, one in small:
        new = [line for line in one.python.splitlines() if line not in shown]
        said += [*(f"  {line}" for line in new), f"  # gives {one.mine}"]
        shown |= set(new)
    if small and small[0][1].right:
        said.append(f"  # the definition gives {small[0][1].right}")
    return [*said, *ladder(verdict)]


def ladder(verdict: Verdict) -> list[str]:
    """Return every question and what came of it, after an empty line."""
    width = max((len(finding.rung) for finding in verdict.findings), default=0)
    return ["", *(f"{SIGNS[one.state]:>6}  {one.rung:{width}}  {one.said}".rstrip() for one in verdict.findings)]
