"""`attn-exp grade ANSWERS KEY`: grade each student's answers, and summarise the class."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from textwrap import TextWrapper

import numpy as np

from attn_exp import drafts, machine, system
from attn_exp.arrays import Array
from attn_exp.diagnosis.classroom.grading import Grade, Score, grade, not_their_own, noted, scores
from attn_exp.diagnosis.classroom.paper import Paper
from attn_exp.errors import UserError, unknown
from attn_exp.experiment.recipes import STAGES
from attn_exp.report import marking, words, worksheet
from attn_exp.report.escapes import plain
from attn_exp.report.terminal import table
from attn_exp.runs import ours, records
from attn_exp.runs.classroom import answers
from attn_exp.runs.classroom.sheets import Key, composer, read_key
from attn_exp.workers import Ended, Pool

HEADS = ("student", "points", "of", "first wrong", words.MISTAKE, words.WHAT_IT_IS)
MOST_FILES = 5000
DIGITS = 19
"""A run of this many digits or more in a name is sorted as text."""
Worth = Mapping[str, float]
NO_WORTH: Worth = {}
"""Default weights of the boxes: a point for each number."""
TOGETHER = 8
"""Number of files that one process grades at a time; with no more than these, no second process is started."""


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
        raise UserError("expected attn-exp grade ANSWERS KEY [points=scores:6,weights:9]")
    files, key_folder = files_of(machine.folder(places[0]), ".csv"), machine.folder(places[1])
    keys, home = keys_of(key_folder), Path(places[1])
    target = (home if key_folder.is_dir() else home.parent).parent / "grades"
    try:
        ours.check_grades(target, records.as_csv([HEADS]))
        handed = list(whose_they_are(every_grade(files, keys, worth), keys, worth))
        for name in pages_of(handed):
            ours.check_page(target / words.MARKED / name, "marked")
        lines = [one.line for one in handed]
        overview = [(name, f"{count}", says) for name, count, says in common(handed)]
        with drafts.more_files(target) as draft:
            graded = [HEADS, *(list(map(records.cell, one.cells)) for one in handed)]
            made = drafts.as_bytes(records.as_csv(graded))
            page = worksheet.grades(HEADS, lines, overview, hashlib.sha256(made).hexdigest(), by_box(handed))
            (draft / "grades.csv").write_bytes(made)
            (draft / "class.html").write_bytes(drafts.as_bytes(page))
            folder = machine.own_folder(draft / words.MARKED)
            for name, text in pages_of(handed).items():
                (folder / name).write_bytes(drafts.as_bytes(text))
    except OSError as error:
        raise UserError(f"{target}: cannot be written to ({error.strerror})") from error
    shown = table(HEADS[:-1], [[plain(cell, 90) for cell in line[:-1]] for line in lines])
    wrapped = TextWrapper(WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    said = "\n".join(wrapped.fill(f"{plain(line[0], 90)}: {plain(line[-1], MOST_SAID)}") for line in lines)
    counted = (f"{name}, {count} student{'s' * (count != '1')}: {says}" for name, count, says in overview)
    often = "\n".join(wrapped.fill(plain(line, MOST_SAID)) for line in counted) or words.NO_MISTAKE
    return f"{shown}\n\n{said}\n\n{often}\n\n{target / 'class.html'}\n{target / words.MARKED / EVERYBODY}"


EVERYBODY = "everybody.html"
"""All marked pages in one file, for printing."""
WIDTH, MOST_SAID = 120, 2000
WORTH = re.compile(r"(?P<stage>[a-z]+):(?P<points>[0-9]{1,4}(\.[0-9]{1,2})?)")


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
        if match["stage"] not in STAGES:
            raise UserError(unknown(match["stage"], STAGES, "stage of points="))
        worth[match["stage"]] = float(match["points"])
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


def every_grade(files: Sequence[Path], keys: Mapping[str, Key], worth: Worth = NO_WORTH) -> list[Handed]:
    """Grade each file, on all cores if there are many files.

    Raises:
        UserError: a worker died.
    """
    parts = [files[start : start + TOGETHER] for start in range(0, len(files), TOGETHER)]
    cores, ended = min(system.usable_cores(), len(parts)), list[Ended]()
    if cores < 2:
        return grades_of(files, keys, worth)
    with closing(Pool(partial(grades_of, keys=keys, worth=worth), cores)) as pool:
        for part in parts:
            pool.submit(part)
        while len(ended) < len(parts):
            ended += pool.finished(None)
            if ended[-1].reason:
                raise UserError(f"{ended[-1].job[0]} and those after it: not graded, as {ended[-1].reason}")
    return [handed for one in sorted(ended, key=lambda one: parts.index(one.job)) for handed in one.answer]


def grades_of(files: Sequence[Path], keys: Mapping[str, Key], worth: Worth = NO_WORTH) -> list[Handed]:
    """Grade each file; an unreadable one becomes a row with the reason."""
    handed: list[Handed] = []
    only, composed = next(iter(keys.values())) if len(keys) == 1 else None, composer(typed=False)
    latest: Key | None = None
    made: Paper | None = None
    for path in files:
        own = keys.get(path.stem, only)
        try:
            if own is None:
                raise UserError(f"{path.name}: no key {path.stem}.json")
            made = made if own is latest and made else own.paper(composed)
            latest = own
            named = own.student if own is not only and own.student != "key" else path.stem
            filled = answers.read_filled(path, made)
            notes = noted(filled.texts, filled.turned)
            given = grade(made, filled.numbers, filled.unreadable, notes, filled.decimals)
            handed.append(with_page(Handed(named, given, file=path.stem, numbers=filled.numbers), made, worth))
        except UserError as error:
            handed.append(Handed(path.stem, None, str(error)))
    return handed


OWN_SHARE, ALIKE, ENOUGH = 0.75, 0.9, 12
"""Someone who scores below the first share may have handed in another student's numbers: the second share, of at least
the third number of cells, must then match the other's."""


def whose_they_are(handed: Sequence[Handed], keys: Mapping[str, Key], worth: Worth = NO_WORTH) -> Iterator[Handed]:
    """Yield the files; one that matches another student's sheet, or the better-scoring answers of another student, says
    so and scores no points."""
    papers: dict[str, Paper] = {}
    composed = composer(typed=False)
    for one in handed:
        given = one.grade
        count = answers.counted(one.numbers)
        if given is None or len(keys) < 2 or count < ENOUGH or given.points >= OWN_SHARE * count:
            yield one
            continue
        others = [
            other.student for other in handed
            if other is not one and other.grade and other.grade.points > given.points
            and alike(one.numbers, other.numbers, 1e-9) >= ALIKE
        ]  # fmt: skip
        if not others:
            for file, key in keys.items():
                if file != one.file:
                    papers[file] = papers[file] if file in papers else key.paper(composed)
                    right = {blank.stage: blank.right for blank in papers[file].blanks}
                    if alike(one.numbers, right, 0.5 * 10.0**-key.digits) >= ALIKE:
                        others.append(key.student)
        if others:
            own = keys[one.file].paper(composed) if one.file in keys else None
            told = replace(one, grade=not_their_own(given, others[0]))
            yield told if own is None else with_page(told, own, worth)
        else:
            yield one


def alike(numbers: Mapping[str, Array], others: Mapping[str, Array], half: float) -> float:
    """Return the share of the given numbers that equal the others within `half`."""
    count = same = 0
    for stage, array in numbers.items():
        other = others.get(stage)
        if other is None or other.shape != array.shape:
            return 0.0
        there = ~np.isnan(array)
        with np.errstate(invalid="ignore"):
            near = (np.abs(array - other) <= half * (1 + 1e-9)) | (array == other)
        count, same = count + int(there.sum()), same + int((near & there).sum())
    return same / count if count else 0.0


def with_page(one: Handed, paper: Paper, worth: Worth) -> Handed:
    """Add the points and the marked page to a student's file."""
    if one.grade is None:
        return one
    scored = scores(one.grade, worth)
    return replace(one, scored=scored, page=marking.marked(paper, one.student, one.grade, one.numbers, scored))


def common(handed: Sequence[Handed]) -> Iterator[tuple[str, int, str]]:
    """Yield how many students made each mistake or used another setting, the most frequent first."""
    counts = Counter(name for one in handed if one.grade for name in one.grade.mistakes)
    for name, count in counts.most_common():
        says = (remark.says for one in handed if one.grade for remark in one.grade.remarks if remark.name == name)
        yield name, count, min(says, key=len)  # the sentence on all heads rather than on one


def keys_of(place: Path) -> dict[str, Key]:
    """Return the keys in a folder, or the one key in a file, by file name.

    Raises:
        UserError: there is none, or one that cannot be read.
    """
    return {path.stem: read_key(path) for path in files_of(place, ".json")}


def by_number(path: Path) -> tuple[list[tuple[int, str]], str]:
    """Return the sort key of a file, so that seed-2 comes before seed-10."""
    parts = re.findall(r"[0-9]+|[^0-9]+", path.stem)
    return [(int(part), "") if part.isdecimal() and len(part) < DIGITS else (-1, part) for part in parts], path.name


def files_of(place: Path, suffix: str) -> list[Path]:
    """Return the files of one kind in a folder, or the one file itself.

    Raises:
        UserError: there is none, or far too many.
    """
    if place.is_file():
        return [place]
    try:
        files = sorted(
            (path for path in place.iterdir() if path.suffix.lower() == suffix and not path.name.startswith(".")),
            key=by_number,
        )
    except OSError as error:
        raise UserError(f"{place}: cannot be read ({error.strerror})") from error
    if not 0 < len(files) <= MOST_FILES:
        raise UserError(f"{place}: {len(files):,} files that end in {suffix}; expected 1 to {MOST_FILES:,}")
    return files
