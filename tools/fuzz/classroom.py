"""A class as classes are: names, files and keys of every kind, odd answers, full disks; whole sheets, or none.

Each attempt makes sheets, hands in answers that somebody has mistreated, and grades them.
"""

from __future__ import annotations

import csv
import json
import os
import random
import resource
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tools.fuzz._processes import SECONDS, done_once, kept_folder, run

FORMULA = ("=", "+", "-", "@", "\t", "\r")
NAMES = [
    "=1+1", "@SUM(A1)", "=cmd|' /C calc'!A0", "-", "+1", "Ada", "ada", "ADA", "../../up", "aux", "con", "nul.csv",
    "a/b", "a\\b", "x" * 300, "字" * 90, "Zoë", "Zoe\u0308", "'quoted", '"q"', "name", " ", ".", "..", "~",
    "\u202eevil", "\x07", "key", "-m", "1", "$(ls)", "<b>x</b>", "{{ 1 }}", "a\tb", "emoji 🎓", "a;b", "\ufeffbom",
    "lock", "student",
]  # fmt: skip
TOKENS = ["=1+1", "-", "@a", "k", "weights", "a,b", 'a"b', "'x", "字", "1", "a b", "<i>", "+2", "x" * 40, "null", ";"]
CELLS = [
    "", "0.5", "-0.25", "=1+1", "@x", "1/2", "-1/3", "0,5", "1e308", "nan", "inf", "-inf", "1/0", "x", "'0.5",
    "9" * 60, "\u221e", "١", "0x10", "1,234.5", "\u22120.5", "50%", "\x00", "''", '"', "1e-999",
]  # fmt: skip
STAGES = ["scores", "weights", "logits", "context", "output", "q", "nothing", ""]
SETTINGS = [
    "mask=causal", "mask=padding", "head=2", "scale=false", "bias=true", "digits=0", "digits=6", "digits=9",
    "turned=true", "turned=x", "variant=[multi_head]", "experiment=the_cat_sat", "embeddings.d_model=2",
    "embeddings.d_model=0", "softmax=x", "names=gone.csv", "normalizer=sparsemax", "--with", "nonsense",
    "seed=range(0,0)",
]  # fmt: skip
KEY_VALUES: list[Any] = [
    None, 0, -1, 7, "", [], {}, [1], "=1+1", 10**30, True, {"x": [[1]]}, ["mask=causal"], ["output_dir=/"], "x" * 9999,
]  # fmt: skip

Harm = Callable[[random.Random, Path], None]


@cache
def pattern() -> Path:
    """Make a class once, and return its folder."""
    home = kept_folder("class-")
    done_once(home, ["sheet", "embeddings=random", "seed=range(0,9)", "stages=[scores,weights]", "to=class"])
    return home


def on_disk(here: Path, words: list[str], disk: int | None) -> tuple[int | None, str]:
    """Run a command with files of at most so many bytes; return how it ended, and what it printed."""
    limit = (resource.RLIM_INFINITY,) * 2 if disk is None else (disk, disk)
    return run(here, words, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))


def attempt(seed: int) -> str | None:
    """Make sheets, or hand in and grade answers, and return what fell."""
    chance = random.Random(seed)
    here = Path(tempfile.mkdtemp(prefix="attempt-"))
    try:
        fell = made(chance, here) if chance.random() < 0.4 else graded(chance, here)
    finally:
        shutil.rmtree(here, ignore_errors=True)
    return fell


def made(chance: random.Random, here: Path) -> str | None:
    """Make sheets for a class, perhaps on a disk that takes little, and return what fell."""
    words = ["sheet"]
    students = 1
    if chance.random() < 0.6:
        names = [chance.choice(NAMES) for _ in range(chance.randrange(1, 8))]
        with (here / "class.csv").open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
            csv.writer(file).writerows([name, "x"] for name in names)
        words = [*words, "names=class.csv"]
        students = sum(bool(name.strip(" \ufeff")) for name in names) - (names[0].strip() in ("name", "student"))
    else:
        students = chance.randrange(1, 6)
        words.append(f"seed=range(0,{students})")
    if chance.random() < 0.7:
        tokens = chance.sample(TOKENS, chance.randrange(2, 5))
        words += [f"embeddings.tokens={json.dumps(tokens, ensure_ascii=False)}", "embeddings.d_model=2"]
        words.append("embeddings=random")
    words += [f"stages=[{','.join(chance.sample(STAGES, 2))}]"] * (chance.random() < 0.5)
    words += chance.sample(SETTINGS, chance.choice((0, 0, 1, 2)))
    to = chance.choice(["class", "deep/er/class", "sheets", "=1+1", "file/below", "-", "字" * 60, "there"])
    (here / "file").write_text("mine")
    (here / "there").mkdir()
    (here / "there" / "mine").write_text("mine")
    words.append(f"to={to}")
    disk = chance.choice([None, None, 0, 100, 3000, 9000, 20_000])
    told = f"{' '.join(words)} (files of {disk} bytes)"
    code, text = on_disk(here, words, disk)
    fell = judged(here, code, text)
    if fell is None:
        fell = whole(here / to, code, students)
    if fell is None and code == 2 and disk is not None and "File too large" in text:
        code, text = run(here, words)
        fell = "a second try does not do it" if code != 0 else whole(here / to, code, students)
    if fell is None and code == 0:
        kept = sorted((here / to).rglob("*.csv"))
        fell = next((f"a formula in {path.name}" for path in kept if formulas(path)), None)
    if fell is None and code == 0 and students > 1:
        code, text = run(here, ["grade", f"{to}/answers", f"{to}/key"])
        fell = judged(here, code, text) or (None if code == 0 else f"its own blanks are not graded: {text[-200:]}")
    return fell and f"{told}: {fell}"


def whole(place: Path, code: int | None, students: int) -> str | None:
    """Say what is half in a class that was made, or is left of one that was not."""
    if code != 0:
        left = sorted(path.name for path in place.iterdir()) if place.is_dir() else []
        return None if left in ([], ["mine"]) else f"half a class: {left}"
    if students == 1:
        left = sorted(path.name for path in place.iterdir())
        return None if left == ["answers.csv", "key", "sheet.html"] else f"half a sheet: {left}"
    counts = [len(list((place / kind).iterdir())) for kind in ("sheets", "answers", "key")]
    return None if counts == [students, students, 2 * students] else f"half a class: {counts} of {students}"


def judged(here: Path, code: int | None, text: str) -> str | None:
    """Say what is wrong with how a command ended."""
    lines, mine = text.strip().splitlines(), [*here.rglob("mine*"), here / "file"]
    wrong = {
        f"hung for {SECONDS} s": code is None,
        f"exit code {code}: {(lines or ['-'])[-1]}": "Traceback" in text or code not in (0, 1, 2),
        f"not one line: {text[:300]!r}": code == 2 and (len(lines) != 1 or not text.startswith("attn_exp: error: ")),
        "a control character was printed": any(ord(letter) < 32 and letter not in "\n\t" for letter in text),
        "a draft is left": any(here.rglob(".*-attn-exp-*")),
        "somebody's own file was changed": any(path.is_file() and path.read_text() != "mine" for path in mine),
    }
    return next((message for message, is_so in wrong.items() if is_so), None)


def formulas(path: Path) -> list[str]:
    """Return the cells of a table that a spreadsheet would run."""
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        cells = [cell for line in csv.reader(file) for cell in line if cell.startswith(FORMULA)]
    return [cell for cell in cells if not is_number(cell)]


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def fill(chance: random.Random, answers: Path) -> None:
    """Write cells into the blanks."""
    for path in filter(Path.is_file, sorted(answers.glob("*.csv"))):
        with path.open(newline="", encoding="utf-8", errors="replace") as file:
            lines = list(csv.reader(file))
        for line in lines:
            for place in range(1, len(line)):
                if not line[place]:
                    line[place] = chance.choice(CELLS) if chance.random() < 0.1 else f"{chance.uniform(-1, 1):.2f}"
        with path.open("w", newline="", encoding="utf-8", errors="replace") as file:
            csv.writer(file, delimiter=chance.choice(",,;\t")).writerows(lines)


def rename(chance: random.Random, answers: Path) -> None:
    path = chance.choice(sorted(answers.iterdir()))
    name = chance.choice(NAMES).replace("/", "-")[:80]
    if name not in (".", ".."):
        path.rename(path.with_name(name + chance.choice([".csv", ".csv", ".CSV", ".txt", ""])))


def spoil(chance: random.Random, answers: Path) -> None:
    """Put odd bytes in place of a file."""
    path = chance.choice(sorted(answers.iterdir()))
    odd = [b"", b"\x00" * 500, b"\xff\xfe\x00", b'"' * 9999, b"," * 199_999, b"\n" * 100_000, b"scores\n"]
    path.write_bytes(chance.choice([*odd, os.urandom(3000)]))


def special(chance: random.Random, answers: Path) -> None:
    """Put something that is no file in a file's place."""
    path = chance.choice(sorted(answers.iterdir()))
    if path.is_dir() and not path.is_symlink():
        return
    path.unlink()
    match chance.randrange(4):
        case 0:
            os.mkfifo(path)
        case 1:
            path.mkdir()
        case kind:
            path.symlink_to(("/dev/zero", "gone")[kind - 2])


def twist(chance: random.Random, answers: Path) -> None:
    """Put a value of a wrong kind into a key."""
    path = chance.choice(sorted((answers.parent / "key").glob("*.json")))
    try:
        key = json.loads(path.read_text())
        key[chance.choice([*key, "more"])] = chance.choice(KEY_VALUES)
    except (ValueError, TypeError):
        return
    path.write_text(json.dumps(key))


def break_key(chance: random.Random, answers: Path) -> None:
    path = chance.choice(sorted((answers.parent / "key").glob("*.json")))
    cut = path.read_bytes()[: chance.randrange(200)]
    path.write_bytes(chance.choice([b"", b"[]", b"[" * 99_999, b"\xff", b"{}", cut]))


def take(chance: random.Random, answers: Path) -> None:
    """Put somebody else's file where grades would be."""
    folder = answers.parent / "grades"
    if chance.random() < 0.3:
        (answers.parent / "elsewhere").mkdir(exist_ok=True)
        folder.symlink_to("elsewhere")
    else:
        folder.mkdir(exist_ok=True)
        (folder / chance.choice(["grades.csv", "class.html", "mine.txt"])).write_text("mine")


HARMS: list[Harm] = [fill, fill, fill, rename, spoil, special, twist, break_key, take]


def graded(chance: random.Random, here: Path) -> str | None:
    """Hand in answers, mistreat them, grade them, perhaps on a disk that takes little, and return what fell."""
    shutil.copytree(pattern() / "class", here / "class")
    answers = here / "class/answers"
    harms = [fill, *(chance.choice(HARMS) for _ in range(chance.randrange(4)))]
    for harm in harms:
        try:
            harm(chance, answers)
        except (OSError, csv.Error):
            continue  # what another harm has left there
    (here / "class/mine").write_text("mine")
    disk = chance.choice([None, None, None, 0, 300, 2000, 6000])
    told = f"{'+'.join(harm.__name__ for harm in harms)} (files of {disk} bytes)"
    before = files(here / "class")
    odd = ["class", "class/answers/seed-0.csv", "gone", "class/key/seed-0.json"]
    usual = chance.random() < 0.9
    words = ["grade", *(["class/answers", "class/key"] if usual else chance.sample(odd, 2))]
    code, text = on_disk(here, words, disk)
    fell, now = judged(here, code, text), files(here / "class")
    made_now = {path.name for path in now if path.parent.name == "grades" and path not in before}
    wrong = {
        "what was handed in was changed": any(now.get(path) != data for path, data in before.items()),
        "no grades": code == 0 and usual and not made_now,
        f"half of grades: {made_now}": bool(made_now) and (code != 0 or made_now != {"grades.csv", "class.html"}),
        "a formula": code == 0 and any(map(formulas, here.rglob("grades.csv"))),
    }
    fell = fell or next((message for message, is_so in wrong.items() if is_so), None)
    return fell and f"{told}: {fell}"


def files(folder: Path) -> dict[Path, bytes]:
    """Return what the files of a folder hold."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.is_symlink()}
