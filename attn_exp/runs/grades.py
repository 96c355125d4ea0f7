"""`attn-exp grade ANSWERS KEYS`: grade each student's answers, and summarise the class.

`grade_files` turns the files and keys into one `Submission` per student; `grade_answers` prints them as a table, and
`write_grades` writes `grades.csv`, `class.html` and a marked page for each student.
"""

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
from attn_exp.runs.sheets import Key, file_names, make_composer, read_keys

HEADS = ("student", "points", "of", "first wrong", "mistake", "what it is")
EVERYBODY = "everybody.html"  # all marked pages in one file, for printing
NOT_HANDED_IN = "not handed in"
MOST_SAID = 2000  # maximum length of a line about a student or a mistake
# the points of a box, such as `scores:6`
WORTH = re.compile(r"(?P<stage>[a-z]+):(?P<points>[0-9]{1,4}(\.[0-9]{1,2})?)")
OWN_SHARE, ALIKE, ENOUGH = 0.75, 0.9, 12
"""A sheet of at least `ENOUGH` numbers counts as copied if less than `OWN_SHARE` of them are right, but `ALIKE` of them
are the right numbers of another student's sheet."""


@dataclass(frozen=True)
class Submission:
    """What a student handed in.

    - `file`: the name of the student's key. If there is none, or only one key for all students, it is the name of the
      file or of the row of a table.
    - `problem`: why it could not be graded, or an empty string; the fields below are then empty.
    - `paper`: the sheet with its right answers. `numbers`: the student's numbers.
    - `grade`: which numbers are right, and the mistakes. `scored`: the points of each box.
    """

    student: str
    file: str
    problem: str = ""
    paper: Paper | None = None
    numbers: answers.Numbers = field(default_factory=dict)
    grade: Grade | None = None
    scored: tuple[Score, ...] = ()

    @property
    def is_missing(self) -> bool:
        return self.problem == NOT_HANDED_IN or (self.grade is not None and worksheet.is_untouched(self.grade))

    @property
    def cells(self) -> tuple[str | None, ...]:
        if self.grade is None:
            return (self.student, None, None, None, None, self.problem)
        return (
            self.student,
            *worksheet.total_points(self.scored),
            self.grade.first_wrong,
            " ".join(self.grade.mistakes),
            worksheet.verdict(self.grade),
        )

    @property
    def line(self) -> tuple[str, ...]:
        return tuple("-" if cell is None else cell for cell in self.cells)


def grade_answers(words: Sequence[str]) -> str:
    """Grade a file or folder of answers with a file of keys; write the table, the class page and the marked pages.

    `points=scores:6,weights:9` sets the points of these boxes; any other box is worth one point per number.

    Raises:
        UserError: there are no answers or keys, or the table and pages would replace files not written by attn-exp.
    """
    paths = [word for word in words if not word.startswith("points=")]
    points = parse_points([word.partition("=")[2] for word in words if word.startswith("points=")])
    if len(paths) != 2:
        raise UserError("expected attn-exp grade ANSWERS KEYS [points=scores:6,weights:9]")
    answers_path, keys = machine.folder(paths[0]), read_keys(machine.folder(paths[1]))
    target = Path(paths[1]).parent / "grades"
    with refuse(f"{target}: cannot be written to", OSError):
        trust.check_grades(target, records.as_csv([HEADS]))
        graded = grade_files(list_answer_files(answers_path), keys, answers_path.is_dir() and len(keys) > 1)
        if not any(submission.grade for submission in graded):
            raise UserError(f"{paths[0]}: nothing to grade; {graded[0].student}: {graded[0].problem}")
        submissions = [
            replace(submission, scored=score_boxes(submission.grade, points)) if submission.grade else submission
            for submission in graded
        ]
        mistakes = count_mistakes(submissions)
        missing = [submission.student for submission in submissions if submission.is_missing]
        write_grades(submissions, mistakes, missing, target)
    lines = [submission.line for submission in submissions]
    parts = [
        table(HEADS[:-1], [[plain(cell, 90) for cell in line[:-1]] for line in lines]),
        "\n".join(f"{plain(line[0], 90)}: {plain(line[-1], MOST_SAID)}" for line in lines),
        *([plain(f"Not handed in: {', '.join(missing)}", MOST_SAID)] if missing else []),
        "\n".join(
            plain(f"{name}, {count_of(int(count), 'student')}: {says}", MOST_SAID) for name, count, says in mistakes
        )
        or "No known mistakes found.",
        f"{target / 'class.html'}\n{target / 'marked' / EVERYBODY}",
    ]
    return "\n\n".join(parts)


def write_grades(
    submissions: Sequence[Submission], mistakes: Sequence[tuple[str, str, str]], missing: Sequence[str], target: Path
) -> None:
    files = file_names([submission.file for submission in submissions])
    marked = {
        f"{file}.html": (
            submission.student,
            worksheet.render_marked_sheet(
                submission.paper, submission.student, submission.grade, submission.numbers, submission.scored
            ),
        )
        for file, submission in zip(files, submissions, strict=True)
        if submission.paper and submission.grade
    }
    pages = {
        file: worksheet.render_marked_page(student, [marked_sheet]) for file, (student, marked_sheet) in marked.items()
    }
    pages[EVERYBODY] = worksheet.render_marked_page(
        "Marked sheets", [marked_sheet for _, marked_sheet in marked.values()]
    )
    for name in pages:
        trust.check_page(target / "marked" / name, "marked")
    table_bytes = machine.as_bytes(
        records.as_csv([HEADS, *(list(map(records.format_cell, submission.cells)) for submission in submissions)])
    )
    rows = [
        (
            Markup('<a href="marked/{}.html">{}</a>').format(file, submission.student)
            if submission.grade
            else submission.student,
            *submission.line[1:],
        )
        for file, submission in zip(files, submissions, strict=True)
    ]
    seal, boxes = hashlib.sha256(table_bytes).hexdigest(), list(summarize_boxes(submissions))
    page = worksheet.grades(heads=HEADS, lines=rows, overview=mistakes, boxes=boxes, seal=seal, missing=missing)
    with machine.write_folder(target, add=True) as draft:
        marks = {f"marked/{name}": text for name, text in pages.items()}
        machine.fill(draft, {"grades.csv": table_bytes, "class.html": page, **marks})


def parse_points(values: Sequence[str]) -> dict[str, float]:
    """Parse the points of boxes, such as `scores:6,weights:9`.

    Raises:
        UserError: the text has the wrong format, or names an unknown stage.
    """
    points = {}
    for part in (part.strip() for value in values for part in value.strip("[]").split(",") if part.strip()):
        match = WORTH.fullmatch(part)
        if not match:
            raise UserError(f"points={part}: expected points=STAGE:NUMBER, such as points=scores:6,weights:9")
        points[chosen(match["stage"], STAGES, "stage of points=")] = float(match["points"])
    return points


def summarize_boxes(submissions: Sequence[Submission]) -> Iterator[Sequence[str]]:
    """Yield a row for each box: its stage, its mean and maximum points, and how many students have bad cells in it.

    Bad cells are counted in three columns: wrong, empty and unreadable.
    """
    pairs = [
        pair
        for submission in submissions
        if submission.grade and not submission.is_missing
        for pair in zip(submission.scored, submission.grade.boxes, strict=True)
    ]
    for stage in dict.fromkeys(score.stage for score, _ in pairs):
        scored, boxes = zip(*(pair for pair in pairs if pair[0].stage == stage), strict=True)
        counts = [sum(getattr(box, state) > 0 for box in boxes) for state in ("wrong", "empty", "unreadable")]
        mean, most = fmean(score.points for score in scored), max(score.most for score in scored)
        yield stage, worksheet.format_points(mean), worksheet.format_points(most), *map(str, counts)


def grade_files(files: Sequence[Path], keys: Mapping[str, Key], add_missing: bool) -> list[Submission]:
    """Grade each student's answers; a file that cannot be read gets the reason, and a copied sheet gets no points.

    If there is only one key, every file is graded by it, whatever the name of the file. `add_missing` adds the students
    who handed in nothing.
    """
    compose, only_key = make_composer(typed=False), next(iter(keys)) if len(keys) == 1 else None
    find_paper = cache(lambda name: keys[name].paper(compose))
    submissions = list[Submission]()
    for path in files:
        try:
            lines = answers.read_lines(path)
        except UserError as error:
            submissions.append(Submission(path.stem, path.stem, str(error)))
            continue
        if answers.is_table(lines):
            rows = {row[0]: row for row in lines[1:] if any(row)}
            if len(rows) < sum(map(any, lines[1:])):
                raise UserError(f"{path}: a student has more than one row")
            key_name_of = {key.student: name for name, key in keys.items()}
            submissions += [
                grade_submission(student, key_name_of.get(student, student), [lines[0], row], keys, find_paper)
                for student, row in rows.items()
            ]
            add_missing = only_key is None  # students without a row in the table handed in nothing
        else:
            name = path.stem if path.stem in keys or only_key is None else only_key
            submissions.append(grade_submission(path.stem, name, lines, keys, find_paper))
    handed_in = {submission.file for submission in submissions if not submission.is_missing}
    # a student with a file may also have an empty row in a table
    submissions = [one for one in submissions if not (one.is_missing and one.file in handed_in)]
    seen = {name for submission in submissions for name in (submission.file, submission.student)}
    submissions += [
        Submission(key.student, name, NOT_HANDED_IN)
        for name, key in keys.items()
        if add_missing and not seen & {name, key.student}
    ]
    return [void_copied(submission, keys, find_paper) for submission in submissions]


def grade_submission(
    student: str, name: str, lines: answers.Lines, keys: Mapping[str, Key], find_paper: Callable[[str], Paper]
) -> Submission:
    try:
        if name not in keys:
            raise UserError("there is no key with this name")
        paper = find_paper(name)
        blocks = answers.row_to_blocks(lines[0], lines[1], paper) if answers.is_table(lines) else lines
        filled = answers.read_blocks(blocks, paper)
    except UserError as error:
        return Submission(student, student, str(error))
    shown_student = student if len(keys) == 1 or keys[name].student == "key" else keys[name].student
    return Submission(
        shown_student,
        student if len(keys) == 1 else name,
        paper=paper,
        numbers=filled.numbers,
        grade=filled.grade(paper),
    )


def void_copied(submission: Submission, keys: Mapping[str, Key], find_paper: Callable[[str], Paper]) -> Submission:
    """Return the submission, without points if it is mostly wrong but fits the sheet of another student."""
    grade, count = submission.grade, sum(np.count_nonzero(~np.isnan(array)) for array in submission.numbers.values())
    if grade is None or count < ENOUGH or grade.points >= OWN_SHARE * count:
        return submission
    for name, key in keys.items():
        tolerance = 2.5 * 10.0**-key.digits  # the student's rounding in each box adds up
        matching = 0
        for blank in find_paper(name).blanks if name != submission.file else ():
            numbers = submission.numbers.get(blank.stage)
            if numbers is not None and numbers.shape == blank.right.shape:
                matching += int(np.isclose(numbers, blank.right, rtol=0, atol=tolerance).sum())
        if matching >= ALIKE * count:
            return replace(submission, grade=reject_copied(grade, key.student))
    return submission


def count_mistakes(submissions: Sequence[Submission]) -> list[tuple[str, str, str]]:
    """Return each mistake or unrequested setting, how many students made it, and its description, by frequency."""
    grades = [submission.grade for submission in submissions if submission.grade]
    remarks = sorted((remark for grade in grades for remark in grade.remarks), key=lambda remark: -len(remark.says))
    shortest = {remark.name: remark.says for remark in remarks}
    return [
        (name, f"{count}", shortest[name])
        for name, count in Counter(name for grade in grades for name in grade.mistakes).most_common()
    ]


def list_answer_files(folder: Path) -> list[Path]:
    """Return the CSV files in a folder, or, if `folder` is a file itself, only that file.

    Raises:
        UserError: the folder cannot be read, or contains no such file.
    """
    if folder.is_file():
        return [folder]
    with refuse(f"{folder}: cannot be read", OSError):
        files = [file for file in folder.iterdir() if file.suffix.lower() == ".csv" and not file.name.startswith(".")]
    if not files:
        raise UserError(f"{folder}: no files that end in .csv")
    return sorted(files)
