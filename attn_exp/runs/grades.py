"""`attn-exp grade ANSWERS KEYS`: grade each student's answers, and summarise the class."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import fmean

import numpy as np
from markupsafe import Markup

from attn_exp import machine
from attn_exp.diagnosis.classroom.grading import Grade, Score, reject_copied, score_boxes
from attn_exp.diagnosis.classroom.paper import Paper
from attn_exp.errors import UserError, chosen, count_of, refuse
from attn_exp.experiment.executing import STAGES
from attn_exp.report import worksheet
from attn_exp.report.escapes import plain
from attn_exp.report.sentences import table
from attn_exp.runs import answers, records, trust
from attn_exp.runs.sheets import Key, composer, file_names, read_keys

HEADS = ("student", "points", "of", "first wrong", "mistake", "what it is")
EVERYBODY = "everybody.html"
"""All marked pages in one file, for printing."""
NOT_HANDED_IN = "not handed in"
MOST_SAID = 2000
WORTH = re.compile(r"(?P<stage>[a-z]+):(?P<points>[0-9]{1,4}(\.[0-9]{1,2})?)")
OWN_SHARE, ALIKE, ENOUGH = 0.75, 0.9, 12
"""A student with less than `OWN_SHARE` of the points is graded as having copied if `ALIKE` of the cells, of at least
`ENOUGH`, match another student's sheet."""


@dataclass(frozen=True)
class Handed:
    """A student's file: the numbers, the grade and the points of each box, or the reason why it could not be read."""

    student: str
    file: str
    trouble: str = ""
    paper: Paper | None = None
    numbers: answers.Numbers = field(default_factory=dict)
    grade: Grade | None = None
    scored: tuple[Score, ...] = ()

    @property
    def is_missing(self) -> bool:
        return self.trouble == NOT_HANDED_IN or (self.grade is not None and worksheet.is_untouched(self.grade))

    @property
    def cells(self) -> tuple[str | None, ...]:
        if self.grade is None:
            return (self.student, None, None, None, None, self.trouble)
        return (
            self.student,
            *worksheet.totals(self.scored),
            self.grade.first_wrong,
            " ".join(self.grade.mistakes),
            worksheet.verdict(self.grade),
        )

    @property
    def line(self) -> tuple[str, ...]:
        return tuple("-" if cell is None else cell for cell in self.cells)


def grade_answers(asked: Sequence[str]) -> str:
    """Grade a file or folder of answers with a file of keys; write the table, the class page and the marked pages.

    `points=scores:6,weights:9` sets the points of these boxes; any other box is worth one point per number.

    Raises:
        UserError: there are no answers or keys, or the table and pages would replace files not written by attn-exp.
    """
    places = [word for word in asked if not word.startswith("points=")]
    worth = worth_of([word.partition("=")[2] for word in asked if word.startswith("points=")])
    if len(places) != 2:
        raise UserError("expected attn-exp grade ANSWERS KEYS [points=scores:6,weights:9]")
    place, keys = machine.folder(places[0]), read_keys(machine.folder(places[1]))
    target = Path(places[1]).parent / "grades"
    with refuse(f"{target}: cannot be written to", OSError):
        trust.check_grades(target, records.as_csv([HEADS]))
        graded = grade_files(answer_files(place), keys, place.is_dir() and len(keys) > 1)
        if not any(one.grade for one in graded):
            raise UserError(f"{places[0]}: nothing to grade; {graded[0].student}: {graded[0].trouble}")
        handed = [replace(one, scored=score_boxes(one.grade, worth)) if one.grade else one for one in graded]
        often = count_mistakes(handed)
        missing = [one.student for one in handed if one.is_missing]
        write_grades(handed, often, missing, target)
    lines = [one.line for one in handed]
    parts = [
        table(HEADS[:-1], [[plain(cell, 90) for cell in line[:-1]] for line in lines]),
        "\n".join(f"{plain(line[0], 90)}: {plain(line[-1], MOST_SAID)}" for line in lines),
        *([plain(f"Not handed in: {', '.join(missing)}", MOST_SAID)] if missing else []),
        "\n".join(plain(f"{name}, {count_of(int(count), 'student')}: {says}", MOST_SAID) for name, count, says in often)
        or "No known mistakes found.",
        f"{target / 'class.html'}\n{target / 'marked' / EVERYBODY}",
    ]
    return "\n\n".join(parts)


def write_grades(
    handed: Sequence[Handed], often: Sequence[tuple[str, str, str]], missing: Sequence[str], target: Path
) -> None:
    files = file_names([one.file for one in handed])
    marked = {
        f"{file}.html": (one.student, worksheet.marked(one.paper, one.student, one.grade, one.numbers, one.scored))
        for file, one in zip(files, handed, strict=True)
        if one.paper and one.grade
    }
    pages = {file: worksheet.render_marked_page(student, [part]) for file, (student, part) in marked.items()}
    pages[EVERYBODY] = worksheet.render_marked_page("Marked sheets", [part for _, part in marked.values()])
    for name in pages:
        trust.check_page(target / "marked" / name, "marked")
    made = machine.as_bytes(records.as_csv([HEADS, *(list(map(records.cell, one.cells)) for one in handed)]))
    rows = [
        (
            Markup('<a href="marked/{}.html">{}</a>').format(file, one.student) if one.grade else one.student,
            *one.line[1:],
        )
        for file, one in zip(files, handed, strict=True)
    ]
    seal, boxes = hashlib.sha256(made).hexdigest(), list(by_box(handed))
    page = worksheet.grades(heads=HEADS, lines=rows, overview=often, boxes=boxes, seal=seal, missing=missing)
    with machine.write_folder(target, add=True) as draft:
        marks = {f"marked/{name}": text for name, text in pages.items()}
        machine.fill(draft, {"grades.csv": made, "class.html": page, **marks})


def worth_of(values: Sequence[str]) -> dict[str, float]:
    """Parse the points of boxes, such as `scores:6,weights:9`.

    Raises:
        UserError: the text has the wrong format, or names an unknown stage.
    """
    worth = {}
    for part in (part.strip() for value in values for part in value.strip("[]").split(",") if part.strip()):
        match = WORTH.fullmatch(part)
        if not match:
            raise UserError(f"points={part}: expected points=STAGE:NUMBER, such as points=scores:6,weights:9")
        worth[chosen(match["stage"], STAGES, "stage of points=")] = float(match["points"])
    return worth


def by_box(handed: Sequence[Handed]) -> Iterator[Sequence[str]]:
    """Yield for each box its mean points, its maximum, and how many students have wrong, empty and unreadable cells."""
    pairs = [
        pair
        for one in handed
        if one.grade and not one.is_missing
        for pair in zip(one.scored, one.grade.boxes, strict=True)
    ]
    for stage in dict.fromkeys(score.stage for score, _ in pairs):
        scored, boxes = zip(*(pair for pair in pairs if pair[0].stage == stage), strict=True)
        bad = [sum(getattr(box, state) > 0 for box in boxes) for state in ("wrong", "empty", "unreadable")]
        mean, most = fmean(score.points for score in scored), max(score.most for score in scored)
        yield stage, worksheet.count(mean), worksheet.count(most), *map(str, bad)


def grade_files(files: Sequence[Path], keys: Mapping[str, Key], whole_class: bool) -> list[Handed]:
    """Grade each student's answers; record why a file is unreadable, and give no points for another student's numbers.

    `whole_class` adds the students who handed in nothing.
    """
    composed, only = composer(typed=False), next(iter(keys)) if len(keys) == 1 else None
    paper_of = cache(lambda name: keys[name].paper(composed))
    handed = list[Handed]()
    for path in files:
        try:
            lines = answers.read_lines(path)
        except UserError as error:
            handed.append(Handed(path.stem, path.stem, str(error)))
            continue
        if answers.is_table(lines):
            rows = {row[0]: row for row in lines[1:] if any(row)}
            if len(rows) < sum(map(any, lines[1:])):
                raise UserError(f"{path}: a student has more than one row")
            known = {key.student: name for name, key in keys.items()}
            handed += [grade_lines(student, known.get(student, student), [lines[0], row], keys, paper_of)
                       for student, row in rows.items()]  # fmt: skip
            whole_class = only is None
        else:
            name = path.stem if path.stem in keys or only is None else only
            handed.append(grade_lines(path.stem, name, lines, keys, paper_of))
    there = {name for one in handed for name in (one.file, one.student)}
    handed += [
        Handed(key.student, name, NOT_HANDED_IN)
        for name, key in keys.items()
        if whole_class and not there & {name, key.student}
    ]
    return [void_copied(one, keys, paper_of) for one in handed]


def grade_lines(
    student: str, name: str, lines: answers.Lines, keys: Mapping[str, Key], paper_of: Callable[[str], Paper]
) -> Handed:
    try:
        if name not in keys:
            raise UserError("there is no key with this name")
        paper = paper_of(name)
        blocks = answers.blocks_of_row(lines[0], lines[1], paper) if answers.is_table(lines) else lines
        filled = answers.read_blocks(blocks, paper)
    except UserError as error:
        return Handed(student, student, str(error))
    known = student if len(keys) == 1 or keys[name].student == "key" else keys[name].student
    return Handed(known, student if len(keys) == 1 else name, "", paper, filled.numbers, filled.grade(paper))


def void_copied(one: Handed, keys: Mapping[str, Key], paper_of: Callable[[str], Paper]) -> Handed:
    """Give no points to a file that is mostly wrong but matches another student's sheet."""
    given, count = one.grade, sum(np.count_nonzero(~np.isnan(array)) for array in one.numbers.values())
    if given is None or count < ENOUGH or given.points >= OWN_SHARE * count:
        return one
    for name, key in keys.items():
        near = 2.5 * 10.0**-key.digits  # their own rounding in each box adds up
        same = 0
        for blank in paper_of(name).blanks if name != one.file else ():
            typed = one.numbers.get(blank.stage)
            if typed is not None and typed.shape == blank.right.shape:
                same += int(np.isclose(typed, blank.right, rtol=0, atol=near).sum())
        if same >= ALIKE * count:
            return replace(one, grade=reject_copied(given, key.student))
    return one


def count_mistakes(handed: Sequence[Handed]) -> list[tuple[str, str, str]]:
    """Return each mistake or unrequested setting, with the number of students who made it and its description.

    The most frequent one comes first.
    """
    grades = [one.grade for one in handed if one.grade]
    counts = Counter(name for grade in grades for name in grade.mistakes)
    remarks = sorted((remark for grade in grades for remark in grade.remarks), key=lambda remark: -len(remark.says))
    shortest = {remark.name: remark.says for remark in remarks}
    return [(name, f"{count}", shortest[name]) for name, count in counts.most_common()]


def answer_files(place: Path) -> list[Path]:
    """Return the CSV files in a folder; if `place` is a file, only that file.

    Raises:
        UserError: the folder cannot be read, or contains no such file.
    """
    if place.is_file():
        return [place]
    with refuse(f"{place}: cannot be read", OSError):
        there = [path for path in place.iterdir() if path.suffix.lower() == ".csv" and not path.name.startswith(".")]
    if not there:
        raise UserError(f"{place}: no files that end in .csv")
    return sorted(there)
