"""`attn-exp sheet`: a worksheet for every student of a class, with blanks to fill in, and a file of keys for grading.

`read_options` reads the arguments, `make_sheets` yields a `Key` and a `Paper` (the sheet with its right answers) for
each student, and `write_sheets` writes the pages, the empty `answers.csv` and `key.json`.

A key holds the settings from which a student's numbers are computed, and the questions, but no answers and no code. In
Python, `exercise` returns one sheet: a notebook shows it with cells to type into, and its `check` grades arrays too.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from attn_exp import machine
from attn_exp.arrays import Array, Arrays, Shape
from attn_exp.config.compose import compose_values
from attn_exp.config.kinds import WORDS, at_least, read_fields
from attn_exp.config.schema import read_config
from attn_exp.diagnosis.classroom.grading import Grade, score_boxes
from attn_exp.diagnosis.classroom.paper import (
    Blank,
    Paper,
    StudentNumbers,
    draw_numbers,
    find_possible_mistakes,
    make_paper,
)
from attn_exp.errors import UserError, count_of, refuse, unknown
from attn_exp.report import worksheet
from attn_exp.report.notebook import html
from attn_exp.report.sentences import table
from attn_exp.runs import answers
from attn_exp.runs.execution import parse_value
from attn_exp.runs.store import insert_arrays, split_arrays
from attn_exp.runs.trust import read_json

if TYPE_CHECKING:
    import pandas as pd

RANGE = re.compile(r"range\((-?\d{1,9}),\s*(-?\d{1,9})\)")  # several seeds, such as `range(0,30)`
MOST_STUDENTS = 2000
TO_PRINT = "sheets.html"  # all sheets in one file, for printing

# the fields of a key in a file of keys
KEY_SCHEMA = {
    "file": str, "student": str, "words": [str], "numbers": dict, "stages": [str], "digits": int, "transposed": bool
}  # fmt: skip
EVERY_BOX, SHORT, MOST_CELLS = "all", ("weights", "scores", "output"), 24
"""`stages=all` asks for every box. By default a sheet is short: the boxes of `SHORT`, in this order, that fit into
`MOST_CELLS`."""
INLINE = ["embeddings=inline", "projections=identity"]
"""Settings that replace the input if each student has their own numbers."""
MOST_DIGITS = 6
Compose = Callable[[tuple[str, ...]], Mapping[str, Any]]  # a function from arguments to settings
FILE = "answers.csv"


@dataclass(frozen=True)
class Key:
    """The definition of a student's sheet, from which its right answers are computed.

    - `file`: the name of the student's files, without a suffix.
    - `words`: the settings of a run.
    - `numbers`: the student's own input arrays, if any, by name.
    - `stages`, `digits`: which boxes to fill in, and with how many decimals.
    - `transposed`: whether the rows of a box are written as columns.
    """

    file: str
    student: str
    words: tuple[str, ...]
    numbers: Mapping[str, Any]
    stages: tuple[str, ...] = ()
    digits: int = 2
    transposed: bool = False

    def with_numbers(self, numbers: StudentNumbers, compose: Compose) -> Paper:
        return replace(self, numbers=numbers).paper(compose)

    def paper(self, compose: Compose) -> Paper:
        """Return the sheet, and recompute its right answers.

        Raises:
            UserError: no sheet can be made from the settings.
        """
        settings = compose(self.words + tuple(INLINE if self.numbers else ()))
        inputs, projections = split_arrays(self.numbers)
        config = read_config(insert_arrays(settings, inputs, projections) if self.numbers else settings)
        return make_paper(config, self.stages, self.digits, self.transposed)


@dataclass(frozen=True)
class Options:
    """The options of `attn-exp sheet`; its other arguments are settings.

    - `names`: a file with the students' names. `seed`: `7`, `1,2,3` or `range(0,30)`.
    - `digits`, `stages`, `transposed`: see `Key`.
    - `exam`: whether the page checks nothing and contains no answers.
    - `to`: the folder to write.
    """

    names: str = ""
    seed: str = ""
    digits: Annotated[int, at_least(0, most=MOST_DIGITS)] = 2
    stages: Annotated[tuple[str, ...], WORDS] = ()
    transposed: bool = False
    exam: bool = False
    to: str = "sheets"


def write_sheets(arguments: Sequence[str]) -> str:
    """Write the sheets that the arguments describe, and return the paths to hand out and the command for grading.

    Raises:
        UserError: the settings are invalid, no sheet can be made from them, or the folder exists already.
    """
    options, words = read_options(arguments)
    to, sheets = machine.folder(options.to), list(make_sheets(options, words))
    if os.path.lexists(to):
        raise UserError(f"to={to}: already exists; name another folder, or remove it")
    is_single = len(sheets) == 1
    with refuse(f"to={to}: cannot be written to", OSError), machine.write_folder(to) as draft:
        for key, sheet in sheets:
            page = worksheet.page(sheet, key.student, FILE if is_single else f"{key.file}.csv", options.exam)
            machine.fill(draft, {"sheet.html" if is_single else f"sheets/{key.file}.html": page})
        first_sheet = sheets[0][1]
        answers_file = (
            answers.format_answers(first_sheet)
            if is_single
            else answers.format_blank_table([key.student for key, _ in sheets], first_sheet)
        )
        machine.fill(draft, {
            FILE: answers_file,
            "key.html": worksheet.to_print([worksheet.render_solution(sheet, key.student) for key, sheet in sheets]),
            "key.json": json.dumps({"keys": [vars(key) for key, _ in sheets]}, indent=1, ensure_ascii=False) + "\n",
        })  # fmt: skip
        if not is_single:
            printed = worksheet.to_print([worksheet.render_printed_sheet(sheet, key.student) for key, sheet in sheets])
            machine.fill(draft, {TO_PRINT: printed})
    pages = ["sheet.html"] if is_single else ["sheets", f"{TO_PRINT}, with all sheets for printing"]
    lines = [count_of(len(sheets), "sheet"), *(f"{to / page}" for page in pages), ""]
    return "\n".join([*lines, f"to grade: attn-exp grade {to / FILE} {to / 'key.json'}"])


def make_sheets(options: Options, words: tuple[str, ...]) -> Iterator[tuple[Key, Paper]]:
    """Yield the key and the sheet of each student; random inputs differ between students."""
    compose, students = make_composer(typed=True), list_students(options)
    config = read_config(compose(words))
    stages = options.stages or choose_boxes(make_paper(config, (), options.digits))
    stages = () if stages == (EVERY_BOX,) else stages
    example = make_paper(config, stages, options.digits)
    if example.sheet.settled.head != config.head and any(word.startswith("head=") for word in words):
        raise UserError(
            f"head={config.head}: variant={example.sheet.settled.name} has "
            f"{count_of(example.sheet.settled.head, 'head')}; add variant=[multi_head]"
        )
    is_drawn = "embeddings=random" in words
    kept_words = tuple(word for word in words if not is_drawn or not word.startswith("embeddings"))
    required_mistakes = find_possible_mistakes(example) if is_drawn else frozenset()
    for file, (student, seed) in zip(file_names([name for name, _ in students]), students, strict=True):
        key = Key(file, student, kept_words, {}, stages, options.digits, options.transposed)
        if is_drawn:
            numbers, drawn_sheet = draw_numbers(
                config, seed, partial(key.with_numbers, compose=compose), required_mistakes
            )
            yield replace(key, numbers=numbers), drawn_sheet
        else:
            key = replace(key, words=(*kept_words, f"seed={seed}"))
            yield key, key.paper(compose)


def choose_boxes(paper: Paper) -> tuple[str, ...]:
    """Return the stages of a short sheet, in order; all stages if none of the usual ones is on the sheet."""
    stages = list[str]()
    sizes = {blank.stage: blank.right.size for blank in paper.blanks}
    for stage in SHORT:
        if stage in sizes and (not stages or sum(sizes[earlier] for earlier in (*stages, stage)) <= MOST_CELLS):
            stages.append(stage)
    return tuple(stage for stage in sizes if stage in stages or not stages)


def read_options(arguments: Sequence[str]) -> tuple[Options, tuple[str, ...]]:
    """Split the arguments of the command into its options and the settings of a run.

    Raises:
        UserError: an argument has no value, or an option is invalid.
    """
    names = [field.name for field in fields(Options)]
    for word in arguments:
        if "=" not in word:
            raise UserError(unknown(word, [f"{name}=..." for name in names], "option of attn-exp sheet"))
    texts = dict(word.split("=", 1) for word in arguments)
    values = {
        key: value if key in ("names", "seed", "to") else parse_value(value)
        for key, value in texts.items()
        if key in names
    }
    words = tuple(word for word in arguments if word.partition("=")[0] not in names)
    return Options(**read_fields(Options, values, "")), words


def list_students(options: Options) -> list[tuple[str, int]]:
    """Return each student's name and seed; without names, students are named after their seeds."""
    seeds = parse_seeds(options.seed) if options.seed else ()
    if not options.names:
        return [("key" if len(seeds) < 2 else f"seed-{seed}", seed) for seed in dict.fromkeys(seeds or (0,))]
    names = read_class_names(Path(options.names))
    seeds = seeds * len(names) if len(seeds) == 1 else seeds or derive_seeds(names)
    if len(seeds) != len(names):
        count = f"{count_of(len(names), 'name')} and {len(seeds)} seeds"
        raise UserError(f"names={options.names}: {count}; expected one seed for all, or one per name")
    return list(zip(rename_duplicates(names, "{} ({})"), seeds, strict=True))


def parse_seeds(value: str) -> Shape:
    """Parse seeds: `range(0,30)`, `1,2,3` or `7`.

    Raises:
        UserError: the text has the wrong format, or there are no seeds or too many.
    """
    match = RANGE.fullmatch(value)
    if not match and not re.fullmatch(r"\d{1,9}(,\d{1,9})*", value):
        raise UserError(f"seed={value}: expected a number, several such as 1,2,3, or range(0,30)")
    seeds = range(int(match[1]), int(match[2])) if match else value.split(",")
    if not 0 < len(seeds) <= MOST_STUDENTS:
        raise UserError(f"seed={value}: {len(seeds):,} sheets; expected 1 to {MOST_STUDENTS:,}")
    return tuple(map(int, seeds))


def derive_seeds(names: Sequence[str]) -> Shape:
    """Derive a seed for each student from the name only, so that a new student changes nobody else's numbers.

    Students with the same name get different seeds, by their order.
    """
    texts = [f"{name}\n{names[: index + 1].count(name)}" for index, name in enumerate(names)]
    return tuple(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % 10**9 for text in texts)


def rename_duplicates(names: Sequence[str], pattern: str) -> list[str]:
    unique = dict[str, str]()
    for name in names:
        candidates = itertools.chain([name], (pattern.format(name, number) for number in itertools.count(2)))
        candidate = next(candidate for candidate in candidates if candidate.casefold() not in unique)
        unique[candidate.casefold()] = candidate
    return [*unique.values()]


def read_class_names(path: Path) -> tuple[str, ...]:
    """Return the names in the first column of a table.

    Raises:
        UserError: the file cannot be read, or contains no names or too many.
    """
    names = [" ".join(line[0].split()) for line in answers.read_lines(path) if line and line[0]]
    if names and names[0].lower() in ("name", "names", "student", "students"):
        names = names[1:]
    if not 0 < len(names) <= MOST_STUDENTS:
        raise UserError(f"names={path}: {len(names):,} names; expected 1 to {MOST_STUDENTS:,}, one per line")
    return tuple(names)


def file_names(names: Sequence[str]) -> list[str]:
    """Return a unique file name for each student, of letters and digits, with a number appended to duplicates.

    Names that differ only in case count as duplicates, since some file systems ignore case.
    """
    plain = [re.sub(r"[^\w-]+", "-", name).strip("-")[:60] or "student" for name in names]
    return rename_duplicates(plain, "{}-{}")


def make_composer(typed: bool) -> Compose:
    """Return a cached function that composes settings; only settings `typed` by the user may read the environment."""
    return cache(lambda words: compose_values(list(words), [], typed=typed))


def read_keys(path: Path) -> dict[str, Key]:
    """Read a file of keys, and return each key under the file name of its student.

    Raises:
        UserError: the file cannot be read, or is not a file of keys.
    """
    with refuse(f"{path}: not a file of sheet keys", OSError, ValueError, TypeError):
        records = read_json(path, {"keys": [KEY_SCHEMA]})["keys"]
        keys = [Key(**record | {name: tuple(record[name]) for name in ("words", "stages")}) for record in records]
    by_file = {key.file: key for key in keys}
    if not keys or len(by_file) < len(keys) or not all(0 <= key.digits <= MOST_DIGITS for key in keys):
        raise UserError(f"{path}: not a file of sheet keys, or two keys have the same file name")
    return by_file


@dataclass(frozen=True, eq=False)
class Exercise:
    """A worksheet. A notebook shows the given numbers, and cells that check each number as it is typed.

    `check` grades numbers that Python computed; `blank` returns an empty table for them.
    """

    paper: Paper
    student: str = ""

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages to fill in, in order."""
        return tuple(blank.stage for blank in self.paper.blanks)

    def blank(self, stage: str) -> pd.DataFrame:
        """Return an empty table for a stage with named rows and columns; several heads are stacked vertically.

        Raises:
            UserError: the stage is not on the sheet.
        """
        import pandas as pd  # noqa: PLC0415 - slow to import

        blank = self.find_blank(stage)
        rows, columns = (blank.columns, blank.rows) if self.paper.transposed else (blank.rows, blank.columns)
        heads = len(blank.right)
        names = pd.MultiIndex.from_product([range(1, heads + 1), rows], names=["head", None]) if heads > 1 else rows
        return pd.DataFrame(np.full((heads * len(rows), len(columns)), np.nan), index=names, columns=list(columns))

    def check(self, given: str | Path | Mapping[str, Any] | None = None, **numbers: Any) -> Checked:
        """Check numbers by stage, as in `check(scores=s, weights=w)`, or a file that the page saved.

        The numbers of a stage are `[r c]`, or `[h r c]`, or have their heads stacked vertically, as in `blank`. NaN
        counts as empty.

        Raises:
            UserError: a stage is not on the sheet, its shape is wrong, or the file cannot be read.
        """
        if isinstance(given, str | Path):
            filled = answers.read_blocks(answers.read_lines(Path(given)), self.paper)
        elif given is None or isinstance(given, Mapping):
            arrays = {**(given or {}), **numbers}
            filled = answers.Filled({stage: self.to_array(str(stage), values) for stage, values in arrays.items()}, {})
        else:
            raise UserError(f"check: expected the name of a file, or numbers by stage, such as {self.stages[0]}=[...]")
        return Checked(self.paper, self.student, filled.numbers, filled.grade(self.paper))

    def to_array(self, stage: str, values: Any) -> Array:
        right = self.find_blank(stage).right
        expected = right.swapaxes(1, 2) if self.paper.transposed else right
        heads, rows, columns = expected.shape
        per_head = f" for each of {heads} heads" if heads > 1 else ""
        with refuse(f"{stage}: expected {rows} rows of {columns} numbers{per_head}", TypeError, ValueError):
            array = np.asarray(values, float)
            if array.shape not in (expected.shape, (heads * rows, columns)):
                raise ValueError(f"got shape {array.shape}")
        array = array.reshape(expected.shape)
        return array.swapaxes(1, 2) if self.paper.transposed else array

    def find_blank(self, stage: str) -> Blank:
        blank = next((blank for blank in self.paper.blanks if blank.stage == stage), None)
        if blank is None:
            raise UserError(unknown(stage, self.stages, "stage of this sheet"))
        return blank

    def __repr__(self) -> str:
        return f"worksheet to fill in: {', '.join(self.stages)}, to {self.paper.digits} decimals"

    def _repr_html_(self) -> str:
        return html("framed", worksheet.page(self.paper, self.student, FILE), "worksheet", height_of(self.paper))


@dataclass(frozen=True, eq=False)
class Checked:
    """The result of a check: which numbers are right, the first wrong stage, and the mistake or slip behind it."""

    paper: Paper
    student: str
    numbers: Arrays
    grade: Grade

    @property
    def passed(self) -> bool:
        """Whether every given number is right."""
        return not self.grade.first_wrong and not any(box.follows for box in self.grade.boxes)

    @property
    def mistakes(self) -> tuple[str, ...]:
        return self.grade.mistakes

    @property
    def message(self) -> str:
        """A sentence that describes the mistake or slip, or says that all numbers are right."""
        return worksheet.verdict(self.grade)

    def __repr__(self) -> str:
        lines = [[box.stage, *map(str, (box.right, box.follows, box.wrong, box.empty))] for box in self.grade.boxes]
        return f"{table(('stage', 'right', 'follows', 'wrong', 'empty'), lines)}\n\n{self.verdict}"

    @property
    def verdict(self) -> str:
        """The names of the mistakes, if there are any, and the sentence `message`."""
        return f"{' and '.join(self.mistakes)}: {self.message}" if self.mistakes else self.message

    def _repr_html_(self) -> str:
        marked = worksheet.render_marked_sheet(
            self.paper, self.student, self.grade, self.numbers, score_boxes(self.grade, {})
        )
        page = worksheet.render_marked_page("Marked sheets", [marked])
        return html("framed", page, "marked worksheet", height_of(self.paper))


def height_of(paper: Paper) -> int:
    return 360 + 40 * sum(len(blank.right) * (len(blank.rows) + 4) for blank in paper.blanks)


def exercise(arguments: Sequence[str]) -> Exercise:
    """Return the worksheet that the arguments of `attn-exp sheet` describe, without writing files.

    Raises:
        UserError: the settings are invalid, or do not describe exactly one sheet.
    """
    options, settings = read_options(arguments)
    if options.names or options.to != Options.to:
        raise UserError("names= and to= apply only to `attn-exp sheet`, which writes files")
    if (count := len(list_students(options))) > 1:
        raise UserError(f"expected one sheet, but {count} seeds give {count}; choose one, such as seed=0")
    key, paper = next(make_sheets(options, settings))
    return Exercise(paper, key.student)
