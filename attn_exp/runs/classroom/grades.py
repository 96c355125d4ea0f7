"""`attn-exp grade ANSWERS KEY`: what became of each student, and of the class."""

from __future__ import annotations

import hashlib
import multiprocessing
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from attn_exp import drafts, machine, mistakes, system
from attn_exp.diagnosis.candidates import what_a_setting_computes
from attn_exp.diagnosis.grading import Grade, grade
from attn_exp.diagnosis.paper import Paper
from attn_exp.errors import UserError
from attn_exp.report import words, worksheet
from attn_exp.report.escapes import plain
from attn_exp.report.terminal import table
from attn_exp.runs import ours, records
from attn_exp.runs.classroom import answers
from attn_exp.runs.classroom.sheets import Key, composer, read_key
from attn_exp.stopping import held

HEADS = ("student", "points", "of", "first wrong", words.MISTAKE, words.WHAT_IT_IS)
MOST_FILES = 5000
DIGITS = 19
"""A name with this many digits or more in a row is sorted as text."""
TOGETHER = 8
"""So many files are graded by one process at a time; no more than these need no second process."""


@dataclass(frozen=True)
class Handed:
    """One student's file: the grade, or why it could not be read."""

    student: str
    grade: Grade | None
    trouble: str = ""

    @property
    def cells(self) -> tuple[str | None, ...]:
        """The student's line of the table; None where nothing could be read."""
        if self.grade is None:
            return (self.student, None, None, None, None, self.trouble)
        grade = self.grade
        said = grade.said or (words.ALL_RIGHT if grade.points == grade.most else "no number is wrong; some are missing")
        return (
            self.student, f"{grade.points}", f"{grade.most}", grade.first_wrong, " ".join(grade.mistakes), said,
        )  # fmt: skip

    @property
    def line(self) -> tuple[str, ...]:
        """The same for a reader."""
        return tuple("-" if cell is None else cell for cell in self.cells)


def grade_answers(places: Sequence[str]) -> str:
    """Grade a file or a folder of answers with a key or a folder of keys; write the table and the page of the class.

    Raises:
        UserError: nothing there to grade, no key, or somebody else's files where the table and the page would be.
    """
    files, key_folder = files_of(machine.folder(places[0]), ".csv"), machine.folder(places[1])
    keys, home = keys_of(key_folder), Path(places[1])
    target = (home if key_folder.is_dir() else home.parent).parent / "grades"
    try:
        ours.check_grades(target, records.as_csv([HEADS]))
        handed = every_grade(files, keys)
        lines = [one.line for one in handed]
        overview = [(name, f"{count}", says) for name, count, says in common(handed)]
        with drafts.more_files(target) as draft:
            graded = [HEADS, *(list(map(records.cell, one.cells)) for one in handed)]
            made = drafts.as_bytes(records.as_csv(graded))
            page = worksheet.grades(HEADS, lines, overview, hashlib.sha256(made).hexdigest())
            (draft / "grades.csv").write_bytes(made)
            (draft / "class.html").write_bytes(drafts.as_bytes(page))
    except OSError as error:
        raise UserError(f"{target}: cannot be written to ({error.strerror})") from error
    shown = table(HEADS, [[plain(cell, 90) for cell in line] for line in lines])
    often = table((words.MISTAKE, words.STUDENTS_HEAD, ""), overview) if overview else words.NO_MISTAKE
    return f"{shown}\n\n{often}\n\n{target / 'class.html'}"


def every_grade(files: Sequence[Path], keys: Mapping[str, Key]) -> list[Handed]:
    """Return the grade of each file, on all processors where there are many."""
    parts = [files[start : start + TOGETHER] for start in range(0, len(files), TOGETHER)]
    cores = min(system.usable_cores(), len(parts))
    if cores > 1:
        try:
            return grades_of_workers(parts, keys, cores)
        except (BrokenProcessPool, OSError):
            pass  # a process that was ended, or none to be had: what follows needs no other
    return grades_of(files, keys)


def grades_of_workers(parts: Sequence[Sequence[Path]], keys: Mapping[str, Key], cores: int) -> list[Handed]:
    """Return the grades of files as so many processes give them, all of which have ended then, however this ends.

    Raises:
        BrokenProcessPool, OSError: a process was ended, or none is to be had.
    """
    before = set(multiprocessing.active_children())
    with ProcessPoolExecutor(cores, mp_context=system.processes(), initializer=system.serve_parent) as pool:
        try:
            with held():  # or a signal would find a worker before it knows whose it is
                graded = pool.map(partial(grades_of, keys=keys), parts)
            return [one for part in graded for one in part]
        except BaseException:
            for worker in set(multiprocessing.active_children()) - before:
                if worker.pid is not None:
                    system.end_at_once(worker.pid)
            raise


def grades_of(files: Sequence[Path], keys: Mapping[str, Key]) -> list[Handed]:
    """Return the grade of each file; one that cannot be read is a line, and the others are graded."""
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
            handed.append(Handed(named, grade(made, answers.read_answers(path, made))))
        except UserError as error:
            handed.append(Handed(path.stem, None, str(error)))
    return handed


def common(handed: Sequence[Handed]) -> Iterator[tuple[str, int, str]]:
    """Yield how many students made each mistake, or took another setting, the commonest first."""
    counts = Counter(name for one in handed if one.grade for name in one.grade.mistakes)
    for name, count in counts.most_common():
        yield name, count, mistakes.mistake(name).says if name in mistakes.names() else what_a_setting_computes(name)


def keys_of(place: Path) -> dict[str, Key]:
    """Return the keys in a folder, or the one that a file holds, by the names of their files.

    Raises:
        UserError: there is none, or one that cannot be read.
    """
    return {path.stem: read_key(path) for path in files_of(place, ".json")}


def by_number(path: Path) -> tuple[list[tuple[int, str]], str]:
    """Return what files are sorted by: seed-2 comes before seed-10."""
    parts = re.findall(r"[0-9]+|[^0-9]+", path.stem)
    return [(int(part), "") if part.isdecimal() and len(part) < DIGITS else (-1, part) for part in parts], path.name


def files_of(place: Path, suffix: str) -> list[Path]:
    """Return the files of one kind in a folder, or the one file.

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
