"""`attn-exp sheet`: a sheet for every student of a class, with blanks to fill in and a key for grading.

A key holds the settings from which a student's numbers are computed, and the questions; no answers and no code.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from attn_exp import drafts, machine, parsing
from attn_exp.config.compose import values
from attn_exp.config.schema import Config, read_config
from attn_exp.diagnosis.classroom.paper import Numbers, Paper, drawn, paper, possible
from attn_exp.errors import UserError, count_of, refuse, unknown
from attn_exp.report import worksheet
from attn_exp.runs.classroom import answers
from attn_exp.runs.stored_arrays import split_arrays, with_arrays
from attn_exp.runs.trust import read_json

OWN = ("names", "seed", "digits", "stages", "turned", "exam", "to")
"""Words of this command; all others are settings of a run."""
RANGE = re.compile(r"range\((-?\d{1,9}),\s*(-?\d{1,9})\)")
MOST_STUDENTS = 2000
TO_PRINT = "sheets.html"
DRAWN = "embeddings=random"

KEY_SHAPE = {"student": str, "words": [str], "numbers": dict, "stages": [str], "digits": int, "turned": bool}
INLINE = ["embeddings=inline", "projections=identity"]
"""Words that replace the input if each student has their own numbers."""
MOST_DIGITS = 6
Composed = Callable[[tuple[str, ...]], Mapping[str, Any]]
"""Function that composes words into settings."""


@dataclass(frozen=True)
class Key:
    """What defines a student's sheet: the words of a run, the student's own `numbers` if any, and the questions."""

    student: str
    words: tuple[str, ...]
    numbers: Mapping[str, Any]
    stages: tuple[str, ...] = ()
    digits: int = 2
    turned: bool = False

    def paper(self, composed: Composed) -> Paper:
        """Return the sheet; the right answers are recomputed.

        Raises:
            UserError: settings that make no sheet.
        """
        settings = composed(self.words + tuple(INLINE if self.numbers else ()))
        inputs, projections = split_arrays(self.numbers)
        config = read_config(with_arrays(settings, inputs, projections) if self.numbers else settings)
        return paper(config, self.stages, self.digits, self.turned)

    def as_json(self) -> str:
        return json.dumps(vars(self), indent=1, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class Asked:
    """The parsed words of the command; `students` are names, each with a seed."""

    words: tuple[str, ...]
    students: tuple[tuple[str, int], ...]
    stages: tuple[str, ...]
    digits: int
    turned: bool
    exam: bool
    to: Path


def write_sheets(asked_words: Sequence[str]) -> str:
    """Write the sheets that the words describe, and return what to hand out.

    Raises:
        UserError: the settings are invalid, or make no sheet; or the folder exists.
    """
    asked = asked_by(asked_words)
    keys = list(every_sheet(asked))
    if os.path.lexists(asked.to):
        raise UserError(f"to={asked.to}: is there already; name another folder, or remove it")
    with refuse(f"to={asked.to}: cannot be written to", OSError), drafts.new_folder(asked.to) as draft:
        for name, key, made in keys:
            write_sheet(draft, name, key, made, alone=len(keys) == 1, exam=asked.exam)
        if len(keys) > 1:
            parts = [worksheet.printed(made, key.student) for _, key, made in keys]
            (draft / TO_PRINT).write_bytes(drafts.as_bytes(worksheet.to_print(parts)))
    sheets = ["sheet.html"] if len(keys) == 1 else ["sheets", f"{TO_PRINT}, all of them to print"]
    handed = "answers.csv" if len(keys) == 1 else "answers"
    lines = [count_of(len(keys), "sheet"), *(f"{asked.to / sheet}" for sheet in sheets), ""]
    return "\n".join([*lines, f"to grade: attn-exp grade {asked.to / handed} {asked.to / 'key'}"])


def write_sheet(folder: Path, name: str, key: Key, made: Paper, alone: bool, exam: bool) -> None:
    """Write one student's sheet, blanks and key; the page of an `exam` contains no answers and checks nothing."""
    page = folder / "sheet.html" if alone else machine.own_folder(folder / "sheets") / f"{name}.html"
    blanks = folder / "answers.csv" if alone else machine.own_folder(folder / "answers") / f"{name}.csv"
    keys = machine.own_folder(folder / "key")
    page.write_bytes(drafts.as_bytes(worksheet.page(made, key.student, f"{name}.csv", exam)))
    blanks.write_bytes(drafts.as_bytes(answers.blank_or_filled(made)))
    (keys / f"{name}.html").write_bytes(drafts.as_bytes(worksheet.key(made, key.student)))
    (keys / f"{name}.json").write_bytes(drafts.as_bytes(key.as_json()))


def every_sheet(asked: Asked) -> Iterator[tuple[str, Key, Paper]]:
    """Yield the file name, the key and the sheet of each student; random numbers differ between students."""
    composed = composer(typed=True)
    config = read_config(composed(asked.words))
    refuse_other_heads(asked, config)
    is_drawn = DRAWN in asked.words
    words = tuple(word for word in asked.words if not is_drawn or not word.startswith("embeddings"))
    telling = possible(paper(config, asked.stages, asked.digits)) if is_drawn else frozenset()
    for file, (student, seed) in zip(file_names([name for name, _ in asked.students]), asked.students, strict=True):
        key = Key(student, words, {}, asked.stages, asked.digits, asked.turned)
        if is_drawn:
            numbers, made = drawn(config, seed, partial(paper_with, key=key, composed=composed), telling)
            yield file, replace(key, numbers=numbers), made
        else:
            key = replace(key, words=(*words, f"seed={seed}"))
            yield file, key, key.paper(composed)


def paper_with(numbers: Numbers, key: Key, composed: Composed) -> Paper:
    return replace(key, numbers=numbers).paper(composed)


def refuse_other_heads(asked: Asked, config: Config) -> None:
    """Refuse a typed number of heads that the variant of the sheet does not have."""
    for word in asked.words:
        settled = paper(config, asked.stages, asked.digits).sheet.settled if word.startswith("head=") else None
        if settled is not None and settled.head != config.head:
            heads = count_of(settled.head, "head")
            raise UserError(f"{word}: variant={settled.name} has {heads}; add variant=[multi_head]")


def asked_by(asked_words: Sequence[str]) -> Asked:
    """Parse the words of the command.

    Raises:
        UserError: an invalid word or value.
    """
    for word in asked_words:
        if "=" not in word:
            raise UserError(unknown(word, [f"{name}=..." for name in OWN], "word of attn-exp sheet"))
    own = {key: value for key, _, value in (word.partition("=") for word in asked_words) if key in OWN}
    digits, flags = own.get("digits", "2"), {name: own.get(name, "false") for name in ("turned", "exam")}
    if not re.fullmatch(f"[0-{MOST_DIGITS}]", digits):
        raise UserError(f"digits={digits}: expected 0 to {MOST_DIGITS}, the decimals that are asked")
    for name, value in flags.items():
        if value not in ("true", "false"):
            raise UserError(f"{name}={value}: expected true or false")
    return Asked(
        words=tuple(word for word in asked_words if word.partition("=")[0] not in OWN),
        students=tuple(students_of(own)),
        stages=tuple(part.strip() for part in own.get("stages", "").strip("[]").split(",") if part.strip()),
        digits=int(digits),
        turned=flags["turned"] == "true",
        exam=flags["exam"] == "true",
        to=machine.folder(own.get("to", "sheets")),
    )


def students_of(own: Mapping[str, str]) -> list[tuple[str, int]]:
    """Return the names and seeds of `names=` and `seed=`; without names, a student is called by the seed."""
    seeds = seeds_of(own["seed"]) if own.get("seed") else ()
    if "names" not in own:
        return [(f"seed-{seed}", seed) for seed in seeds] if len(seeds) > 1 else [("key", seeds[0] if seeds else 0)]
    names = class_names(Path(own["names"]))
    seeds = seeds * len(names) if len(seeds) == 1 else seeds or seeds_of_names(names)
    if len(seeds) != len(names):
        count = count_of(len(names), "name")
        raise UserError(
            f"names={own['names']}: {count} and {len(seeds)} seeds; expected one seed for all, or as many as names"
        )
    return list(zip(number_repeated(names, "{} ({})"), seeds, strict=True))


def seeds_of(value: str) -> tuple[int, ...]:
    """Parse the seeds of `range(0,30)`, `1,2,3` or `7`.

    Raises:
        UserError: another format, or far too many.
    """
    match = RANGE.fullmatch(value)
    if not match and not re.fullmatch(r"\d{1,9}(,\d{1,9})*", value):
        raise UserError(f"seed={value}: expected a number, several such as 1,2,3, or range(0,30)")
    seeds = range(int(match[1]), int(match[2])) if match else value.split(",")
    if not 0 < len(seeds) <= MOST_STUDENTS:
        raise UserError(f"seed={value}: {len(seeds):,} sheets; expected 1 to {MOST_STUDENTS:,}")
    return tuple(map(int, seeds))


def seeds_of_names(names: Sequence[str]) -> tuple[int, ...]:
    """Return a seed for each student, derived from the name alone: a new student changes nobody else's numbers.

    Students of the same name are distinguished by their order.
    """
    texts = [f"{name}\n{names[: place + 1].count(name)}" for place, name in enumerate(names)]
    return tuple(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % 10**9 for text in texts)


def number_repeated(names: Sequence[str], pattern: str, ignore_case: bool = False) -> list[str]:
    """Return the names, numbering repeated ones with `pattern`."""
    made, taken = list[str](), set[str]()
    for name in names:
        numbered = itertools.chain([name], (pattern.format(name, number) for number in itertools.count(2)))
        made.append(next(one for one in numbered if (one.casefold() if ignore_case else one) not in taken))
        taken.add(made[-1].casefold() if ignore_case else made[-1])
    return made


def class_names(path: Path) -> tuple[str, ...]:
    """Return the names in the first column of a table.

    Raises:
        UserError: no such file, or no name in it.
    """
    with refuse(f"names={path}: cannot be read", OSError, ValueError):
        lines = machine.read_text(path).lstrip("\ufeff").splitlines()
        cells = [((parsing.parse_csv(re.sub("[;\t]", ",", line)) or [[]])[0] or [""])[0] for line in lines]
    names = [name for name in (" ".join(cell.split()) for cell in cells) if name]
    if names and names[0].lower() in ("name", "names", "student", "students"):
        names = names[1:]
    if not 0 < len(names) <= MOST_STUDENTS:
        raise UserError(f"names={path}: {len(names):,} names; expected 1 to {MOST_STUDENTS:,}, one a line")
    return tuple(names)


def file_names(names: Sequence[str]) -> list[str]:
    """Return a file name for each student: letters and digits, with a number for duplicates.

    Names that differ only in case count as duplicates, since some file systems ignore case.
    """
    plain = [re.sub(r"[^\w-]+", "-", name).strip("-")[:60] or "student" for name in names]
    return number_repeated(plain, "{}-{}", ignore_case=True)


def composer(typed: bool) -> Composed:
    """Return a function that composes words and caches the result; words not `typed` now read no environment."""
    return cache(lambda words: values(list(words), [], typed=typed))


def read_key(path: Path) -> Key:
    """Read the key in a file.

    Raises:
        UserError: it cannot be read, or is not a key.
    """
    with refuse(f"{path}: no key of a sheet", OSError, ValueError, TypeError):
        record = read_json(path, KEY_SHAPE)
        key = Key(**record | {name: tuple(record[name]) for name in ("words", "stages")})
    if not 0 <= key.digits <= MOST_DIGITS:
        raise UserError(f"{path}: no key of a sheet (digits={key.digits})")
    return key
