"""Which mistakes a run's own sizes, settings and numbers cannot show, or cannot tell apart, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from attn_exp import mistakes
from attn_exp.config.schema import Config
from attn_exp.experiment.checks._geometry import Sizes, Ways, parted, reason, sizes_of, ways
from attn_exp.experiment.checks.check import Check
from attn_exp.experiment.judging.features import features
from attn_exp.experiment.judging.suspects import UNSHOWN, case_of, follows_steps
from attn_exp.experiment.judging.worksheet import Sheet
from attn_exp.experiment.variant import Settled
from attn_exp.problem.problem import Problem

MOST_PLACES = 250_000
"""Of matrices with more places than this the catalogue takes minutes."""
SHOWS, HIDDEN, ALIKE, UNASKED, UNKNOWN = "yes", "no", "alike", "not asked for", "-"


@dataclass(frozen=True)
class Record:
    """One mistake in one variant.

    `shows` is yes; no, where it gives the right answer here; alike, where another mistake, `like`, gives the same wrong
    answer; not asked for, where the run lacks the setting; or - where the variant is not computed in steps. `reason` is
    what hides it, where one change would show it.
    """

    variant: str
    mistake: str
    shows: str
    like: str
    reason: str


def examine(config: Config, problem: Problem, variants: Sequence[Settled]) -> Iterator[Record]:
    """Make every mistake of the catalogue in every variant, and compare the answers."""
    for settled in variants:
        sheet = Sheet(settled, problem, ())
        if settled.head * len(problem.tokens) * problem.keys > MOST_PLACES:
            yield Record(settled.name, "-", UNKNOWN, "", f"more than {MOST_PLACES:,} weights")
        elif settled.mistakes or not follows_steps(sheet):
            yield Record(settled.name, "-", UNKNOWN, "", "not computed in the steps that mistakes change")
        else:
            yield from every_mistake(sheet)


def every_mistake(sheet: Sheet) -> Iterator[Record]:
    """Yield a record of each mistake that one answer could show."""
    present, variant = features([case_of(sheet)]), sheet.settled.name
    made: dict[str, Ways] = {}
    for name in mistakes.names():
        mistake = mistakes.mistake(name)
        if not mistake.changes or mistake.remark or mistake.group == "precision" or name in UNSHOWN:
            continue
        missing = [need for need in mistake.needs if need not in present]
        if missing:
            yield Record(variant, name, UNASKED, "", f"the run has no {' and no '.join(missing)}")
        else:
            made[name] = ways(sheet, mistake.changes)
    plain = ways(sheet, (lambda recipe: recipe,))[0]
    for name, done in made.items():
        fitting = [way for way in done if way.answer is not None] or done
        yield record(sheet, name, made, [way for way in fitting if parted(way, plain)], sizes_of(sheet))


def record(sheet: Sheet, name: str, made: dict[str, Ways], telling: Ways, size: Sizes) -> Record:
    """Return what is to be said of one mistake; `telling` are its ways that change the answer."""
    variant = sheet.settled.name
    if not telling:
        silent = [way for way in made[name] if way.answer is not None]
        return Record(variant, name, HIDDEN, "", reason(sheet, silent, None, size))
    fitting = {other: done for other, done in made.items() if other != name and telling[0].answer is not None}
    alike = {other: [way for way in done if not parted(way, telling[0])] for other, done in fitting.items()}
    others = {other: same for other, same in alike.items() if same}
    if not others:
        return Record(variant, name, SHOWS, "", "" if telling[0].answer is not None else "it does not fit the shapes")
    first = next(iter(others.values()))
    return Record(variant, name, ALIKE, ", ".join(others), reason(sheet, telling[:1], first[:1], size))


def sentence(records: Sequence[Record]) -> str:
    """Say how many mistakes show in each variant, and what hides most of the others; the table says the rest."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(record.variant for record in records):
        groups.setdefault(summary([record for record in records if record.variant == name]), []).append(name)
    return " ".join(f"{', '.join(names)}: {words}." for words, names in groups.items())


def summary(records: Sequence[Record]) -> str:
    """Say it of the records of one variant."""
    if records[0].shows == UNKNOWN:
        return records[0].reason
    tried = [record for record in records if record.shows != UNASKED]
    shown = sum(record.shows == SHOWS for record in tried)
    causes = Counter(record.reason for record in tried if record.shows in (HIDDEN, ALIKE) and record.reason)
    most = "".join(f"; {cause} hides {count}" for cause, count in causes.most_common(1))
    return f"{shown} of {len(tried)} mistakes would show{most}"


CHECK = Check(
    record=Record,
    columns=("variant", "mistake", "shows", "like", "reason"),
    examine=examine,
    sentence=sentence,
)
