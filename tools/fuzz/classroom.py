"""A class as classes are: names, files and keys of every kind, odd answers, full disks; whole sheets, or none.

Each attempt makes sheets, hands in answers that somebody has mistreated, and grades them.
"""

from __future__ import annotations

import csv
import json
import random
import re
import resource
import shutil
import tempfile
from functools import cache
from pathlib import Path

from tools.fuzz import outputs
from tools.fuzz._folders import files, twist
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
    "transposed=true", "transposed=x", "variant=[multi_head]", "experiment=the_cat_sat", "embeddings.d_model=2",
    "embeddings.d_model=0", "softmax=x", "names=gone.csv", "normalizer=sparsemax", "--with", "nonsense",
    "seed=range(0,0)",
]  # fmt: skip


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
    with tempfile.TemporaryDirectory(prefix="attempt-") as name:
        return made(chance, Path(name)) if chance.random() < 0.4 else graded(chance, Path(name))


def made(chance: random.Random, here: Path) -> str | None:
    """Make sheets for a class, perhaps on a disk that takes little, and return what fell."""
    if chance.random() < 0.6:
        names = [chance.choice(NAMES) for _ in range(chance.randrange(1, 8))]
        with (here / "class.csv").open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
            csv.writer(file).writerows([name, "x"] for name in names)
        students = sum(bool(name.strip(" \ufeff")) for name in names) - (names[0].strip() in ("name", "student"))
        words = ["sheet", "names=class.csv"]
    else:
        students = chance.randrange(1, 6)
        words = ["sheet", f"seed=range(0,{students})"]
    if chance.random() < 0.7:
        tokens = json.dumps(chance.sample(TOKENS, chance.randrange(2, 5)), ensure_ascii=False)
        words += [f"embeddings.tokens={tokens}", "embeddings.d_model=2", "embeddings=random"]
    words += [f"stages=[{','.join(chance.sample(STAGES, 2))}]"] * (chance.random() < 0.5)
    words += chance.sample(SETTINGS, chance.choice((0, 0, 1, 2)))
    to = chance.choice(["class", "deep/er/class", "sheets", "=1+1", "file/below", "-", "字" * 60, "there"])
    (here / "file").write_text("mine")
    (here / "there").mkdir()
    (here / "there" / "mine").write_text("mine")
    disk = chance.choice([None, None, 0, 100, 3000, 9000, 20_000])
    code, text = on_disk(here, [*words, f"to={to}"], disk)
    fell = wrong_end(here, code, text) or half_made(here / to, code, students)
    if fell is None and code == 0:
        fell = next((f"a formula in {path.name}" for path in (here / to).rglob("*.csv") if has_formula(path)), None)
    return fell and f"{' '.join(words)} to={to} (files of {disk} bytes): {fell}"


def half_made(place: Path, code: int | None, students: int) -> str | None:
    left = sorted(path.name for path in place.iterdir()) if place.is_dir() else []
    if code != 0:
        return None if left in ([], ["mine"]) else f"half a class: {left}"
    if students == 1:
        return None if left == ["answers.csv", "key.html", "key.json", "sheet.html"] else f"half a sheet: {left}"
    count = len(list(place.glob("sheets/*.html")))
    return None if "key.json" in left and count == students else f"half a class: {left}, {count} of {students} sheets"


def wrong_end(here: Path, code: int | None, text: str) -> str | None:
    lines = text.strip().splitlines()
    mine = [*here.rglob("mine*"), here / "file"]
    wrong = {
        f"hung for {SECONDS} s": code is None,
        f"exit code {code}: {(lines or ['-'])[-1]}": "Traceback" in text or code not in (0, 1, 2),
        f"not one line: {text[:300]!r}": code == 2 and (len(lines) != 1 or not text.startswith("attn_exp: error: ")),
        "a control character was printed": any(ord(letter) < 32 and letter not in "\n\t" for letter in text),
        "a draft is left": any(here.rglob(".attn-exp-draft-*")),
        "somebody's own file was changed": any(path.is_file() and path.read_text() != "mine" for path in mine),
    }
    return next((message for message, is_so in wrong.items() if is_so), None)


def has_formula(path: Path) -> bool:
    """Say whether a table has a cell that a spreadsheet would run."""
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        cells = [cell for line in csv.reader(file) for cell in line if cell.startswith(FORMULA)]
    return any(not re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?|[-+](inf|nan)", cell) for cell in cells)


def fill(chance: random.Random, place: Path) -> None:
    """Write cells into the blanks."""
    for path in filter(Path.is_file, place.glob("*.csv")):
        with path.open(newline="", encoding="utf-8", errors="replace") as file:
            lines = list(csv.reader(file))
        for line in lines:
            odd = chance.choice(CELLS) if chance.random() < 0.1 else ""
            line[1:] = [cell or odd or f"{chance.uniform(-1, 1):.2f}" for cell in line[1:]]
        with path.open("w", newline="", encoding="utf-8", errors="replace") as file:
            csv.writer(file, delimiter=chance.choice(",,;\t")).writerows(lines)


HARMS = (outputs.flip, outputs.cut, outputs.swap, outputs.special, outputs.rename, twist)
"""What is done to a file among answers or keys."""


def graded(chance: random.Random, here: Path) -> str | None:
    """Hand in answers, mistreat them, grade them, perhaps on a disk that takes little, and return what fell."""
    shutil.copytree(pattern() / "class", here / "class")
    fill(chance, here / "class")
    harms = [chance.choice(HARMS) for _ in range(chance.randrange(4))]
    for harm in harms:
        harm(chance, here / "class")
    (here / "class/mine").write_text("mine")
    disk = chance.choice([None, None, None, 0, 300, 2000, 6000])
    before = contents(here / "class")
    odd = ["class", "class/answers.csv", "gone", "class/key.json"]
    usual = chance.random() < 0.9
    code, text = on_disk(
        here, ["grade", *(["class/answers.csv", "class/key.json"] if usual else chance.sample(odd, 2))], disk
    )
    now = contents(here / "class")
    new = {path.name for path in now if path.parent.name == "grades" and path not in before}
    wrong = {
        "what was handed in was changed": any(now.get(path) != data for path, data in before.items()),
        "no grades": code == 0 and usual and not new,
        f"half of grades: {new}": bool(new) and (code != 0 or new != {"grades.csv", "class.html"}),
        "a formula": code == 0 and any(map(has_formula, here.rglob("grades.csv"))),
    }
    fell = wrong_end(here, code, text) or next((message for message, is_so in wrong.items() if is_so), None)
    return fell and f"{'+'.join(harm.__name__ for harm in harms)} (files of {disk} bytes): {fell}"


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in files(folder)}
