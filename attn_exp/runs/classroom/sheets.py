"""`attn-exp sheet`: a sheet for every student of a class, with blanks to fill in and a key for grading.

A key holds the settings from which a student's numbers are computed, and the questions; no answers and no code.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from attn_exp import drafts, machine, parsing
from attn_exp.config.choices import group_names
from attn_exp.config.compose import values
from attn_exp.config.schema import Config, read_config
from attn_exp.diagnosis.classroom.foretold import Numbers, drawn, possible
from attn_exp.diagnosis.classroom.paper import Paper, paper
from attn_exp.errors import UserError, reason, unknown
from attn_exp.report import worksheet
from attn_exp.runs.classroom import answers
from attn_exp.runs.stored_arrays import split_arrays, with_arrays
from attn_exp.runs.trust import DamagedError, read_json

OWN = ("names", "digits", "stages", "turned", "exam", "to")
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
        fields = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}
        return json.dumps(fields, indent=1, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class Asked:
    """The parsed words of the command."""

    words: tuple[str, ...]
    names: tuple[str, ...]
    seeds: tuple[int, ...]
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
    try:
        with drafts.new_folder(asked.to) as draft:
            for name, key, made in keys:
                write_sheet(draft, name, key, made, alone=len(keys) == 1, exam=asked.exam)
            if len(keys) > 1:
                parts = [worksheet.printed(made, key.student) for _, key, made in keys]
                (draft / TO_PRINT).write_bytes(drafts.as_bytes(worksheet.to_print(parts)))
    except FileExistsError as error:
        raise UserError(f"to={asked.to}: is there already; name another folder, or remove it") from error
    except OSError as error:
        raise UserError(f"to={asked.to}: cannot be written to ({error.strerror})") from error
    first = asked.to / ("sheet.html" if len(keys) == 1 else "sheets")
    handed = asked.to / ("answers.csv" if len(keys) == 1 else "answers")
    count = f"{len(keys)} sheets" if len(keys) > 1 else "1 sheet"
    printed = f"\n{asked.to / TO_PRINT}, all of them to print" if len(keys) > 1 else ""
    return f"{count}\n{first}{printed}\n\nto grade: attn-exp grade {handed} {asked.to / 'key'}"


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
    heads_as_asked(asked, config)
    draws = DRAWN in asked.words
    kept = tuple(word for word in asked.words if not draws or not word.startswith("embeddings"))
    telling = possible(paper(config, asked.stages, asked.digits)) if draws else frozenset()

    def key(student: str, seed: int, numbers: Numbers) -> Key:
        settings = kept if draws else (*kept, f"seed={seed}")
        return Key(student, settings, numbers, asked.stages, asked.digits, asked.turned)

    for file, student, seed in zip(file_names(asked.names), asked.names, asked.seeds, strict=True):
        if draws:
            numbers, made = drawn(config, seed, lambda numbers: key("", 0, numbers).paper(composed), telling)
            yield file, key(student, seed, numbers), made
        else:
            plain = key(student, seed, {})
            yield file, plain, plain.paper(composed)


def heads_as_asked(asked: Asked, config: Config) -> None:
    """Refuse a typed number of heads that the variant of the sheet does not have.

    Raises:
        UserError: the variant has another number of heads.
    """
    typed = next((word for word in asked.words if word.startswith("head=")), "")
    settled = paper(config, asked.stages, asked.digits).sheet.settled if typed else None
    if settled is not None and settled.head != config.head:
        heads = "1 head" if settled.head == 1 else f"{settled.head} heads"
        raise UserError(f"{typed}: variant={settled.name} has {heads}; add variant=[multi_head]")


def asked_by(asked_words: Sequence[str]) -> Asked:
    """Parse the words of the command.

    Raises:
        UserError: an invalid word or value.
    """
    own = {key: value for key, _, value in (word.partition("=") for word in asked_words) if key in OWN}
    settings = [word for word in asked_words if word.partition("=")[0] not in (*OWN, "seed")]
    for word in settings:
        if "=" not in word:
            raise UserError(unknown(word, [f"{name}=..." for name in (*OWN, "seed")], "word of attn-exp sheet"))
        if misspelt(word.partition("=")[0]):
            raise UserError(unknown(word.partition("=")[0], OWN, "word of attn-exp sheet"))
    digits = own.get("digits", "2")
    if not digits.isdecimal() or len(digits) > 9 or int(digits) > MOST_DIGITS:
        raise UserError(f"digits={digits}: expected 0 to {MOST_DIGITS}, the decimals that are asked")
    for name, says in (("turned", "tokens as columns"), ("exam", "a page that checks nothing")):
        if own.get(name, "false") not in ("true", "false"):
            raise UserError(f"{name}={own[name]}: expected true, {says}, or false")
    seeds = seeds_of(next((word.partition("=")[2] for word in asked_words if word.startswith("seed=")), ""))
    names = class_names(Path(own["names"])) if "names" in own else ()
    seeds = seeds or seeds_of_names(names) or (0,)
    if names and len(seeds) not in (1, len(names)):
        count = "1 name" if len(names) == 1 else f"{len(names)} names"
        raise UserError(
            f"names={own['names']}: {count} and {len(seeds)} seeds; expected one seed for all, or as many as names"
        )
    seeds = seeds * len(names) if names and len(seeds) == 1 and len(names) > 1 else seeds
    names = tuple(number_repeated(names, "{} ({})")) or (
        tuple(f"seed-{seed}" for seed in seeds) if len(seeds) > 1 else ("key",)
    )
    stages = tuple(part.strip() for part in own.get("stages", "").strip("[]").split(",") if part.strip())
    to = machine.folder(own.get("to", "sheets"))
    return Asked(
        tuple(settings), names, seeds, stages, int(digits), own.get("turned") == "true", own.get("exam") == "true", to
    )


def misspelt(name: str) -> bool:
    """Return whether a name is no setting of a run, and closest to an option of this command."""
    known = {field.name for field in fields(Config)} | group_names()
    near = get_close_matches(name, [*OWN, *known], 1)
    return name not in known and bool(near) and near[0] in OWN


def seeds_of(value: str) -> tuple[int, ...]:
    """Parse the seeds of `range(0,30)`, `1,2,3` or `7`.

    Raises:
        UserError: another format, or far too many.
    """
    match = RANGE.fullmatch(value)
    if match:
        seeds = range(int(match[1]), int(match[2]))
        if not 0 < len(seeds) <= MOST_STUDENTS:
            raise UserError(f"seed={value}: {len(seeds):,} sheets; expected 1 to {MOST_STUDENTS:,}")
        return tuple(seeds)
    if value and not all(re.fullmatch(r"\d{1,9}", part) for part in value.split(",")):
        raise UserError(f"seed={value}: expected a number, several such as 1,2,3, or range(0,30)")
    return tuple(map(int, value.split(","))) if value else ()


def seeds_of_names(names: Sequence[str]) -> tuple[int, ...]:
    """Return a seed for each student, derived from the name alone: a new student changes nobody else's numbers.

    Students of the same name are distinguished by their order.
    """
    earlier: Counter[str] = Counter()
    seeds = []
    for name in names:
        earlier[name] += 1
        digest = hashlib.sha256(f"{name}\n{earlier[name]}".encode()).digest()
        seeds.append(int.from_bytes(digest[:8], "big") % 10**9)
    return tuple(seeds)


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
    try:
        lines = machine.read_text(path).lstrip("\ufeff").splitlines()
        cells = [((parsing.parse_csv(re.sub("[;\t]", ",", line)) or [[]])[0] or [""])[0] for line in lines]
    except (OSError, ValueError) as error:
        raise UserError(f"names={path}: cannot be read ({reason(error)})") from error
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
    known: dict[tuple[str, ...], Mapping[str, Any]] = {}

    def composed(words: tuple[str, ...]) -> Mapping[str, Any]:
        if words not in known:
            known[words] = values(list(words), [], typed=typed)
        return known[words]

    return composed


def read_key(path: Path) -> Key:
    """Read the key in a file.

    Raises:
        UserError: it cannot be read, or is not a key.
    """
    try:
        record = read_json(path, KEY_SHAPE, most=machine.MOST_BYTES)
    except (OSError, DamagedError, ValueError) as error:
        raise UserError(f"{path}: no key of a sheet ({error})") from error
    if not 0 <= record["digits"] <= MOST_DIGITS:
        raise UserError(f"{path}: no key of a sheet (digits={record['digits']})")
    return Key(
        record["student"], tuple(record["words"]), record["numbers"], tuple(record["stages"]), record["digits"],
        record["turned"],
    )  # fmt: skip
