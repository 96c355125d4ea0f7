"""`attn-exp grade ANSWERS KEY`: grade each student's answers, and summarise the class."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from textwrap import TextWrapper

import numpy as np

from attn_exp import drafts, machine, system
from attn_exp.arrays import Array
from attn_exp.diagnosis.classroom.grading import Grade, Score, grade, not_their_own, noted, scores
from attn_exp.diagnosis.classroom.paper import Paper
from attn_exp.errors import UserError, chosen, count_of, refuse
from attn_exp.experiment.recipes import STAGES
from attn_exp.report import marking, words, worksheet
from attn_exp.report.escapes import plain
from attn_exp.report.terminal import table
from attn_exp.runs import ours, records
from attn_exp.runs.classroom import answers
from attn_exp.runs.classroom.sheets import Key, composer, read_key
from attn_exp.workers import Pool

HEADS = ("student", "points", "of", "first wrong", words.MISTAKE, words.WHAT_IT_IS)
MOST_FILES = 5000
USAGE = "attn-exp grade ANSWERS KEY [points=scores:6,weights:9]"
EVERYBODY = "everybody.html"
"""All marked pages in one file, for printing."""
WIDTH, MOST_SAID = 120, 2000
WORTH = re.compile(r"(?P<stage>[a-z]+):(?P<points>[0-9]{1,4}(\.[0-9]{1,2})?)")
Worth = Mapping[str, float]
"""Points of the boxes; a box that is not named has a point for each number."""
TOGETHER = 8
"""Number of files that one process grades at a time; with no more than these, no second process is started."""
OWN_SHARE, ALIKE, ENOUGH = 0.75, 0.9, 12
"""Someone who scores below the first share may have handed in another student's numbers: the second share, of at least
the third number of cells, must then match the other's."""


@dataclass(frozen=True)
class Handed:
    """One student's file: the grade, or why it could not be read."""

    student: str
    grade: Grade | None
    trouble: str = ""
    file: str = ""
    numbers: answers.Numbers = field(default_factory=dict, compare=False)
    scored: tuple[Score, ...] = ()
    page: str = ""

    @property
    def cells(self) -> tuple[str | None, ...]:
        """The student's row of the table; None where nothing could be read."""
        if self.grade is None:
            return (self.student, None, None, None, None, self.trouble)
        grade = self.grade
        said = marking.verdict(grade)
        points, most = (marking.count(sum(getattr(one, side) for one in self.scored)) for side in ("points", "most"))
        return (self.student, points, most, grade.first_wrong, " ".join(grade.mistakes), said)

    @property
    def line(self) -> tuple[str, ...]:
        """The same row, with "-" for missing cells."""
        return tuple("-" if cell is None else cell for cell in self.cells)


def grade_answers(asked: Sequence[str]) -> str:
    """Grade a file or a folder of answers with a key or a folder of keys; write the table, the class page and the
    marked pages for the students.

    `points=scores:6,weights:9` sets the points of a box; a box that is not named has a point for each number.

    Raises:
        UserError: nothing to grade, no key, or files of other origin where the table and the pages would be written.
    """
    places = [word for word in asked if not word.startswith("points=")]
    worth = worth_of([word.partition("=")[2] for word in asked if word.startswith("points=")])
    if len(places) != 2:
        raise UserError(f"expected {USAGE}")
    files, key_folder = files_of(machine.folder(places[0]), ".csv"), machine.folder(places[1])
    keys, home = keys_of(key_folder), Path(places[1])
    target = (home if key_folder.is_dir() else home.parent).parent / "grades"
    with refuse(f"{target}: cannot be written to", OSError):
        ours.check_grades(target, records.as_csv([HEADS]))
        handed = whose_they_are(every_grade(files, keys, worth), keys, worth)
        write_grades(handed, target)
    lines = [[plain(cell, MOST_SAID) for cell in one.line] for one in handed]
    often = [f"{name}, {count_of(int(count), 'student')}: {says}" for name, count, says in common(handed)]
    wrapped = TextWrapper(WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    said = [f"{plain(line[0], 90)}: {line[-1]}" for line in lines]
    parts = [
        table(HEADS[:-1], [[plain(cell, 90) for cell in line[:-1]] for line in lines]),
        "\n".join(map(wrapped.fill, said)),
        "\n".join(wrapped.fill(plain(line, MOST_SAID)) for line in often) or words.NO_MISTAKE,
        f"{target / 'class.html'}\n{target / words.MARKED / EVERYBODY}",
    ]
    return "\n\n".join(parts)


def write_grades(handed: Sequence[Handed], target: Path) -> None:
    """Write the table, the class page and the marked pages, all or none."""
    pages = pages_of(handed)
    for name in pages:
        ours.check_page(target / words.MARKED / name, "marked")
    made = drafts.as_bytes(records.as_csv([HEADS, *(list(map(records.cell, one.cells)) for one in handed)]))
    page = worksheet.grades(
        HEADS, [one.line for one in handed], common(handed), hashlib.sha256(made).hexdigest(), by_box(handed)
    )
    with drafts.more_files(target) as draft:
        (draft / "grades.csv").write_bytes(made)
        (draft / "class.html").write_bytes(drafts.as_bytes(page))
        folder = machine.own_folder(draft / words.MARKED)
        for name, text in pages.items():
            (folder / name).write_bytes(drafts.as_bytes(text))


def worth_of(values: Sequence[str]) -> dict[str, float]:
    """Parse the points of boxes, such as `scores:6,weights:9`.

    Raises:
        UserError: another format, or an unknown stage.
    """
    worth: dict[str, float] = {}
    for part in (part.strip() for value in values for part in value.strip("[]").split(",") if part.strip()):
        match = WORTH.fullmatch(part)
        if not match:
            raise UserError(f"points={part}: expected points=STAGE:NUMBER, such as points=scores:6,weights:9")
        worth[chosen(match["stage"], STAGES, "stage of points=")] = float(match["points"])
    return worth


def pages_of(handed: Sequence[Handed]) -> dict[str, str]:
    """Return the marked pages by file name: one for each student, and one of all for printing."""
    graded = [one for one in handed if one.page]
    pages = {f"{one.file}.html": marking.page(one.student, [one.page]) for one in graded}
    everybody = marking.page(words.MARKED_SHEETS, [one.page for one in graded])
    return {**pages, EVERYBODY: everybody} if graded else {}


def by_box(handed: Sequence[Handed]) -> list[tuple[str, str, str, str]]:
    """Return for each box its mean points, its maximum, and the number of students with a wrong, empty or unreadable
    cell in it."""
    graded = [one for one in handed if one.grade]
    stages = dict.fromkeys(score.stage for one in graded for score in one.scored)
    lines = []
    for stage in stages:
        found = [score for one in graded for score in one.scored if score.stage == stage]
        boxes = [box for one in graded if one.grade for box in one.grade.boxes if box.stage == stage]
        wrong = sum(box.wrong + box.unreadable + box.empty > 0 for box in boxes)
        mean = sum(score.points for score in found) / len(found)
        lines.append((stage, marking.count(mean), marking.count(max(score.most for score in found)), f"{wrong}"))
    return lines


def every_grade(files: Sequence[Path], keys: Mapping[str, Key], worth: Worth) -> list[Handed]:
    """Grade each file, on all cores if there are many files.

    Raises:
        UserError: a worker died.
    """
    parts = [tuple(files[start : start + TOGETHER]) for start in range(0, len(files), TOGETHER)]
    cores, graded = min(system.usable_cores(), len(parts)), dict[tuple[Path, ...], list[Handed]]()
    if cores < 2:
        return grades_of(files, keys, worth)
    with closing(Pool(partial(grades_of, keys=keys, worth=worth), cores)) as pool:
        for part in parts:
            pool.submit(part)
        while len(graded) < len(parts):
            for ended in pool.finished(None):
                if ended.reason:
                    raise UserError(f"{ended.job[0]} and those after it: not graded, as {ended.reason}")
                graded[ended.job] = ended.answer
    return [handed for part in parts for handed in graded[part]]


def grades_of(files: Sequence[Path], keys: Mapping[str, Key], worth: Worth) -> list[Handed]:
    """Grade each file; an unreadable one becomes a row with the reason."""
    handed: list[Handed] = []
    only, composed = next(iter(keys.values())) if len(keys) == 1 else None, composer(typed=False)
    shared = only.paper(composed) if only else None  # what mistakes would give is computed once
    for path in files:
        own = keys.get(path.stem, only)
        try:
            if own is None:
                raise UserError(f"{path.name}: no key {path.stem}.json")
            made = shared or own.paper(composed)
            student = own.student if own is not only and own.student != "key" else path.stem
            filled = answers.read_filled(path, made)
            notes = noted(filled.texts, filled.turned)
            given = grade(made, filled.numbers, filled.unreadable, notes, filled.decimals)
            handed.append(with_page(Handed(student, given, file=path.stem, numbers=filled.numbers), made, worth))
        except UserError as error:
            handed.append(Handed(path.stem, None, str(error)))
    return handed


def whose_they_are(handed: Sequence[Handed], keys: Mapping[str, Key], worth: Worth) -> list[Handed]:
    """Return the files; one that matches another student's sheet, or the better-scoring answers of another student,
    says so and scores no points."""
    composed = composer(typed=False)
    paper_of = cache(lambda file: keys[file].paper(composed))
    told = list[Handed]()
    for one in handed:
        given, count = one.grade, answers.counted(one.numbers)
        if given is not None and len(keys) > 1 and count >= ENOUGH and given.points < OWN_SHARE * count:
            copied = (
                other.student for other in handed
                if other is not one and other.grade and other.grade.points > given.points
                and alike(one.numbers, other.numbers, 1e-9) >= ALIKE
            )  # fmt: skip
            exchanged = (
                key.student for file, key in keys.items()
                if file != one.file and alike(one.numbers, right_of(paper_of(file)), 0.5 * 10.0**-key.digits) >= ALIKE
            )  # fmt: skip
            if other := next(chain(copied, exchanged), ""):
                one = replace(one, grade=not_their_own(given, other))  # noqa: PLW2901 - graded anew
                one = with_page(one, paper_of(one.file), worth) if one.file in keys else one  # noqa: PLW2901
        told.append(one)
    return told


def right_of(paper: Paper) -> dict[str, Array]:
    return {blank.stage: blank.right for blank in paper.blanks}


def alike(numbers: Mapping[str, Array], others: Mapping[str, Array], half: float) -> float:
    """Return the share of the given numbers that equal the others within `half`."""
    if not numbers or any(stage not in others or others[stage].shape != numbers[stage].shape for stage in numbers):
        return 0.0
    mine, theirs = (np.concatenate([side[stage].ravel() for stage in numbers]) for side in (numbers, others))
    there = ~np.isnan(mine)
    return float(np.isclose(mine, theirs, rtol=0, atol=half * (1 + 1e-9))[there].mean()) if there.any() else 0.0


def with_page(one: Handed, paper: Paper, worth: Worth) -> Handed:
    """Add the points and the marked page to a student's file."""
    if one.grade is None:
        return one
    scored = scores(one.grade, worth)
    return replace(one, scored=scored, page=marking.marked(paper, one.student, one.grade, one.numbers, scored))


def common(handed: Sequence[Handed]) -> list[tuple[str, str, str]]:
    """Return each mistake or other setting, how many students made it, and what it is, the most frequent first."""
    grades = [one.grade for one in handed if one.grade]
    counts = Counter(name for grade in grades for name in grade.mistakes)
    remarks = [remark for grade in grades for remark in grade.remarks]
    says = {name: [remark.says for remark in remarks if remark.name == name] for name in counts}
    return [(name, f"{count}", min(says[name], key=len)) for name, count in counts.most_common()]


def keys_of(place: Path) -> dict[str, Key]:
    """Return the keys in a folder, or the one key in a file, by file name.

    Raises:
        UserError: there is none, or one that cannot be read.
    """
    return {path.stem: read_key(path) for path in files_of(place, ".json")}


def by_number(path: Path) -> list[int | str]:
    """Return the sort key of a file, so that seed-2 comes before seed-10."""
    parts = re.split(r"([0-9]+)", path.stem)
    return [int(part) if place % 2 else part for place, part in enumerate(parts)]


def files_of(place: Path, suffix: str) -> list[Path]:
    """Return the files of one kind in a folder, or the one file itself.

    Raises:
        UserError: there is none, or far too many.
    """
    if place.is_file():
        return [place]
    with refuse(f"{place}: cannot be read", OSError):
        there = [path for path in place.iterdir() if path.suffix.lower() == suffix and not path.name.startswith(".")]
    if not 0 < len(there) <= MOST_FILES:
        raise UserError(f"{place}: {len(there):,} files that end in {suffix}; expected 1 to {MOST_FILES:,}")
    return sorted(there, key=by_number)
