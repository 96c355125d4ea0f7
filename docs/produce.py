"""Runs what the pages show, and writes what it prints below it: python docs/produce.py [--check] [PAGE ...]

The pages are kept as they are read, with their output and pictures, so that a code host shows them and the site needs
to run nothing. After a change of the program: `python docs/produce.py` writes all pages, pictures and notebooks anew;
`--check` changes nothing and names the pages whose output or drawings are others by now, beyond the last printed digit
of numbers.

In a page, a block of kind `sh` holds commands, one a line, and one of kind `python` holds Python; the `text` block and
the picture directly below are what they give. A block of kind `python PATH` or `yaml PATH` is a file, written to the
page's own folder for what follows; one of kind `diff PATH` changes a file that is there: lines with `-` go, lines with
`+` come, the others show where. `![...](pictures/NAME "PATH")` is a picture that the commands above it have left, or is
taken of the page that they have left. `<!-- checkout -->` gives the page a copy of the repository to change. Between
`<!-- notebook: PATH -->` and `<!-- end -->` stand the cells of a notebook, and between `<!-- reference: forms -->` and
`<!-- end -->` what the files of a package say of their members: see `reference.py`. What fails is an error, unless the
block is of kind `sh fails`.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import io
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from attn_exp import registry  # noqa: E402 - found by the line above
from docs.reference import reference  # noqa: E402 - as above
from tools.keep_notebooks import keep  # noqa: E402 - as above
from tools.picture import BROWSERS, photograph  # noqa: E402 - as above

WIDTH = 120
"""Letters in a line of what commands print."""
DRAWN = "What the code above draws."
PIECE = re.compile(
    r"^```(?P<kind>sh|python|yaml|diff)(?: (?P<path>\S+))?\n(?P<body>.*?)^```$"
    rf"(?:\n\n```text\n.*?^```$)?(?:\n\n!\[{DRAWN}\]\([^)]*\))?"
    r"|^<!-- (?P<order>checkout|notebook: (?P<notebook>\S+)|reference: (?P<reference>[\w ]+)) -->$"
    r"(?:\n.*?^<!-- end -->$)?"
    r"|\]\((?P<picture>pictures/\S+) \"(?P<source>[^\"]+\.(?:html|svg))\"\)",
    re.MULTILINE | re.DOTALL,
)


PAGES = ("README", *sorted(path.stem for path in DOCS.glob("*.md")))


class PageError(Exception):
    """Something that a page shows does not run."""


@dataclass
class Page:
    """One page while it is produced: its name, its own empty folder, and the folder whose `pictures` it fills."""

    name: str
    folder: Path
    target: Path
    python: dict[str, Any] = field(default_factory=lambda: {"__name__": "__main__"})
    drawn: int = 0

    @property
    def home(self) -> Path:
        """Where Python finds the package: the page's own copy of the repository, if it has one."""
        return self.folder if (self.folder / "attn_exp").is_dir() else ROOT

    def add_picture(self, name: str) -> Path:
        """Return where a picture goes."""
        path = self.target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def produce(text: str, page: Page) -> str:
    """Run everything in a page from top to bottom, and return its text with the new output."""
    done, end = [], 0
    for found in PIECE.finditer(text):
        done += [text[end : found.start()], run_piece(found, page)]
        end = found.end()
    return "".join([*done, text[end:]])


def run_piece(found: re.Match[str], page: Page) -> str:
    """Return what stands in the page for one block, picture or order."""
    if found["picture"]:
        save_picture(page, found["picture"], found["source"])
        return found[0]
    if found["order"] == "checkout":
        copy_checkout(page)
        return found[0]
    if found["order"]:
        made = reference(found["reference"]) if found["reference"] else produce(read_cells(found["notebook"]), page)
        return f"<!-- {found['order']} -->\n\n{made.strip()}\n\n<!-- end -->"
    kind, path, body = found["kind"], found["path"], found["body"]
    block = f"```{kind}{f' {path}' if path else ''}\n{body}```"
    if path and path != "fails":
        write_file(page, kind, path, body)
        return found[0] if kind == "diff" else block
    if kind == "sh":
        return f"{block}{format_output(run_commands(page, body.splitlines(), fails=bool(path)))}"
    return f"{block}{run_python(page, body)}" if kind == "python" else found[0]


def format_output(text: str) -> str:
    """Return the block below a command for what it printed."""
    lines = "\n".join(map(str.rstrip, text.rstrip().splitlines()))
    return f"\n\n```text\n{lines}\n```" if lines else ""


def run_commands(page: Page, commands: list[str], *, fails: bool) -> str:
    """Run commands and return what they print, each under its own line where there are several."""
    environment = os.environ | {"PYTHONPATH": str(page.home), "COLUMNS": str(WIDTH)}
    printed = ""
    for command in commands:
        words = re.sub(r"(^|&& )(python -m attn_exp|attn-exp)\b", rf"\1{sys.executable} -m attn_exp", command)
        done = subprocess.run(
            ["bash", "-c", words], cwd=page.folder, env=environment, check=False, capture_output=True, text=True,
            timeout=300,
        )  # fmt: skip
        if (done.returncode != 0) != fails:
            raise PageError(f"{page.name}: {command}\nexit code {done.returncode}\n{done.stderr}")
        heading = f"$ {command}\n" if len(commands) > 1 else ""
        said = re.sub(r".*\r", "", done.stderr)  # how far it is, where it takes long
        printed += heading + wrap(done.stdout) + (said if fails else "")
    return printed


def wrap(text: str) -> str:
    """Return what a command prints with long sentences on several lines; tables and files of numbers stay."""
    lines = text.splitlines()
    kept = [line if "  " in line or line.count(",") > line.count(" ") else textwrap.fill(line, WIDTH) for line in lines]
    return "".join(f"{line}\n" for line in kept)


def run_python(page: Page, body: str) -> str:
    """Run Python in the namespace of the page, and return what it prints and the value of its last line."""
    *most, last = ast.parse(body).body
    value: Any = None
    printed = io.StringIO()
    with contextlib.chdir(page.folder), contextlib.redirect_stdout(printed):
        if isinstance(last, ast.Expr):
            exec(compile(ast.Module(most, []), page.name, "exec"), page.python)
            value = eval(compile(ast.Expression(last.value), page.name, "eval"), page.python)
        else:
            exec(compile(body, page.name, "exec"), page.python)
    if hasattr(value, "_repr_svg_"):
        page.drawn += 1
        name = f"pictures/{page.name}-{page.drawn}.svg"
        page.add_picture(name).write_text(value._repr_svg_(), encoding="utf-8")
        return f"{format_output(printed.getvalue())}\n\n![{DRAWN}]({name})"
    shown = value.to_string() if hasattr(value, "to_string") else "" if value is None else repr(value)
    return format_output(wrap(printed.getvalue() + shown))


def write_file(page: Page, kind: str, path: str, body: str) -> None:
    """Write or change a file as a page shows it."""
    target = page.folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(changed(target.read_text(encoding="utf-8"), body) if kind == "diff" else body, encoding="utf-8")


def changed(text: str, diff: str) -> str:
    """Return a text with the lines of a diff exchanged, whose place must stand in it once.

    Raises:
        PageError: the lines that the diff shows are not there, or stand there several times.
    """
    lines = diff.splitlines(keepends=True)
    old, new = ("".join(line[1:] for line in lines if line[0] in marks) for marks in (" -", " +"))
    if text.count(old) != 1:
        raise PageError(f"these lines stand {text.count(old)} times in the file that the diff changes:\n{old}")
    return text.replace(old, new)


def save_picture(page: Page, name: str, source: str) -> None:
    """Copy a picture that the commands have left, or photograph a page that they have left."""
    left = page.folder / source
    if not left.is_file():
        raise PageError(f"{page.name}: {source} is not there")
    if left.suffix != ".html":
        shutil.copy(left, page.add_picture(name))
    elif any(map(shutil.which, BROWSERS)) or os.environ.get("ATTN_EXP_CI"):
        photograph(left, page.add_picture(name), page.folder / "profile")


def copy_checkout(page: Page) -> None:
    """Give the page a copy of the repository."""
    for name in ("attn_exp", "conf"):
        shutil.copytree(ROOT / name, page.folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", page.folder)


def read_cells(path: str) -> str:
    """Return the cells of a notebook as the text of a page, with its title left to the page."""
    found = []
    for cell in json.loads((DOCS / path).read_text(encoding="utf-8"))["cells"]:
        source = unescape("".join(cell["source"]))
        found.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    return "\n\n".join(found) + "\n"


def find_page(name: str) -> Path:
    """Return the file of a page: one of `docs/`, or the README beside that folder."""
    return (ROOT if name == "README" else DOCS) / f"{name}.md"


def produce_page(name: str, target: Path) -> str:
    """Return the text of a page as it would be written today; its pictures go to `target`."""
    with tempfile.TemporaryDirectory() as folder, registry.undo_registrations():
        return produce(find_page(name).read_text(encoding="utf-8"), Page(name, Path(folder), target))


# Comparing

NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.(\d+))?(?:e([+-]\d+))?(?![\w.]*\w)")
CHANCE = re.compile(
    r"\d{8}-\d{6}-\w{6}|\d{4}-\d\d-\d\dT\S+|\d+ of \d+ parts|[\d.]+ (?:(?:s|min|ms|chunks)\b|GiB are free)"
    r"|(?<=error_ulp) +[\d.].*"
)
"""Names of runs, dates, times, free memory, parts and rounding errors, which depend on the processor."""


def merge(old: str, new: str) -> tuple[str, list[str]]:
    """Return a page with its old lines kept where the new ones say the same, and the lines that differ."""
    before, after = old.splitlines(), new.splitlines()
    merged, differ = [], []
    said, says = hide_chance(before), hide_chance(after)
    matcher = difflib.SequenceMatcher(None, list(map(strip_numbers, said)), list(map(strip_numbers, says)), False)
    for kind, start, end, first, last in matcher.get_opcodes():
        if kind == "equal":
            for place, other in zip(range(start, end), range(first, last), strict=True):
                same = is_same_line(said[place], says[other])
                merged.append(before[place] if same else after[other])
                differ += [] if same else [f"- {before[place]}", f"+ {after[other]}"]
        else:
            merged += after[first:last]
            differ += [*(f"- {line}" for line in before[start:end]), *(f"+ {line}" for line in after[first:last])]
    return "\n".join(merged) + "\n", differ


def hide_chance(lines: list[str]) -> list[str]:
    """Return lines without what differs each time or on each processor: times, names of runs, columns of ulp."""
    hidden, column = [], slice(0)
    for line in lines:
        if found := re.search(r"\S( +error_ulp)(?! +\d)", line):
            column = slice(*found.span(1))
        elif not line.strip():
            column = slice(0)
        hidden.append(CHANCE.sub("", line[: column.start] + line[column.stop :] if column.stop else line))
    return hidden


def strip_numbers(line: str) -> str:
    """Return the words of a line: columns may be wider, and numbers others."""
    return re.sub(r"[\s-]+", " ", NUMBER.sub("0", line))


def is_same_line(old: str, new: str) -> bool:
    """Return whether two lines with the same words have the same numbers, to rounding."""
    return all(map(is_same_number, NUMBER.finditer(old), NUMBER.finditer(new)))


def is_same_number(old: re.Match[str], new: re.Match[str]) -> bool:
    """Return whether two printed numbers agree to two of their last decimals; those below 1e-9 are rounding errors."""
    one, other = float(old[0]), float(new[0])
    unit = max(10.0 ** (int(each[2] or 0) - len(each[1])) if each[1] else 0.0 for each in (old, new))
    return max(abs(one), abs(other)) < 1e-9 or abs(one - other) <= 2.001 * unit


def update_page(name: str, *, check: bool) -> list[str]:
    """Write a page anew where it differs, and its pictures, or with `check` nothing; return what differs."""
    path = find_page(name)
    with tempfile.TemporaryDirectory() as folder:
        merged, differ = merge(path.read_text(encoding="utf-8"), produce_page(name, Path(folder)))
        for made in sorted(Path(folder).glob("pictures/*")):
            kept = DOCS / "pictures" / made.name
            if not kept.is_file() or not is_same_picture(kept, made):
                differ.append(f"{kept.name} is missing or shows something else")
            if not check:
                shutil.copy(made, kept)
    if not check:
        path.write_text(merged, encoding="utf-8")
    return differ


def is_same_picture(old: Path, new: Path) -> bool:
    """Return whether our own SVG says the same line by line, and whether any other picture has the same size."""
    text = new.read_text(encoding="utf-8") if new.suffix == ".svg" else ""
    if text and "matplotlib" not in text:
        return not merge(old.read_text(encoding="utf-8"), text)[1]
    return measure_picture(old) == measure_picture(new)


def measure_picture(path: Path) -> tuple[str, ...]:
    """Return the width and height of a PNG (third edition, 11.2.1) or an SVG."""
    if path.suffix == ".png":
        return tuple(map(str, struct.unpack(">II", path.read_bytes()[16:24])))
    found = re.search(r'<svg[^>]*? width="([^"]*)" height="([^"]*)"', path.read_text(encoding="utf-8"))
    return found.groups() if found else ()


def main() -> int:
    """Write the pages that are named, or all of them and the notebooks; with `--check`, only compare."""
    parser = argparse.ArgumentParser(description="Run what the pages of the docs show and write its output into them.")
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="such as masks; all pages if none is named")
    parser.add_argument("--check", action="store_true", help="change nothing; print the lines that differ")
    options = parser.parse_args()
    failed = False
    for name in options.pages or PAGES:
        try:
            lines = update_page(name, check=options.check)
        except Exception as error:  # what a page runs may raise anything; the other pages are written all the same
            failed, lines = True, [f"{type(error).__name__}: {error}"]
        failed |= options.check and bool(lines)
        print(name, *lines, sep="\n", flush=True)
    if not (options.pages or options.check):
        for notebook in sorted((DOCS / "notebooks").glob("*.ipynb")):
            keep(notebook)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
