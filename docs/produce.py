"""Runs what the pages show: the commands, the Python and the figures are those of this build.

In a page, a block of kind `console` holds lines `$ command`, and one of kind `python` holds Python; what they print is
put below. A block of kind `yaml:path` or `python:path` is a file, written to the page's own folder for what follows;
one of kind `diff:path` changes a file that is there: lines with `-` go, lines with `+` come, the others show where. A
picture under `outputs/` is the one that the commands above it have left; a `report.png` is taken now, of the report
beside it. `<!-- checkout -->` gives the page a copy of the repository to change, `<!-- notebook: path -->` stands
for the cells of a notebook, and `<!-- reference: forms -->` for what the files of a package say of their members: see
`reference.py`. What fails ends the build, unless the block is of kind `console fails`.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any

from docs.reference import reference
from tools.picture import BROWSERS, TARGET, photograph

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 100
"""Letters in a line of what commands print."""
PIECE = re.compile(
    r"^```(?P<kind>console|python|yaml|diff)(?P<fails> fails)?(?::(?P<path>\S+))?\n(?P<body>.*?)^```$"
    r"|^<!-- (?P<order>checkout|notebook: (?P<notebook>\S+)|reference: (?P<reference>[\w ]+)) -->$"
    r"|\]\((?P<file>outputs/[^)]+)\)",
    re.MULTILINE | re.DOTALL,
)


class PageError(Exception):
    """Something that a page shows does not run."""


@dataclass
class Page:
    """One page while it is produced: its name, its own empty folder, and where its pictures go."""

    name: str
    folder: Path
    pictures: Path
    python: dict[str, Any] = field(default_factory=dict)
    drawn: int = 0

    @property
    def home(self) -> Path:
        """Where Python finds the package: the page's own copy of the repository, if it has one."""
        return self.folder if (self.folder / "attn_exp").is_dir() else ROOT


def produced(text: str, page: Page) -> str:
    """Return the text of a page with everything in it run, from top to bottom."""
    done, end = [], 0
    for found in PIECE.finditer(text):
        done += [text[end : found.start()], piece(found, page)]
        end = found.end()
    return "".join([*done, text[end:]])


def piece(found: re.Match[str], page: Page) -> str:
    """Return what stands in the page for one block, picture or order."""
    if found["file"]:
        return f"]({kept(page, found['file'])})"
    if found["order"]:
        return ordered(found, page)
    if found["path"]:
        return file(page, found["kind"], found["path"], found["body"])
    if found["kind"] == "console":
        return f"```console\n{''.join(session(page, found['body'], found['fails'] is not None))}```"
    return python(page, found["body"]) if found["kind"] == "python" else found[0]


def ordered(found: re.Match[str], page: Page) -> str:
    """Return what stands in the page for an order."""
    if found["notebook"]:
        return produced(cells(ROOT / "docs" / found["notebook"]), page)
    return reference(found["reference"]) if found["reference"] else checkout(page)


def session(page: Page, body: str, fails: bool) -> Iterator[str]:
    """Yield each command and what it prints."""
    for command in body.splitlines():
        words = re.sub(r"(^|&& )(python -m attn_exp|attn-exp)\b", rf"\1{sys.executable} -m attn_exp", command[2:])
        environment = os.environ | {"PYTHONPATH": str(page.home), "COLUMNS": str(WIDTH)}
        done = subprocess.run(
            ["bash", "-c", words], cwd=page.folder, env=environment, check=False, capture_output=True, text=True,
            timeout=300,
        )  # fmt: skip
        if not command.startswith("$ ") or (done.returncode != 0) != fails:
            raise PageError(f"{page.name}: {command}\nexit code {done.returncode}\n{done.stderr}")
        progress = re.sub(r".*\r", "", done.stderr) if fails else ""
        yield f"{command}\n{wrapped(done.stdout)}{progress}"


def wrapped(text: str) -> str:
    """Return what a command prints with long sentences on several lines; tables, which have columns, stay."""
    lines = text.splitlines(keepends=True)
    return "".join(line if "  " in line else f"{textwrap.fill(line, WIDTH)}\n" for line in lines)


def python(page: Page, body: str) -> str:
    """Run Python in the namespace of the page, and show what it prints and the value of its last line."""
    *most, last = ast.parse(body).body
    printed, value = io.StringIO(), None
    with contextlib.chdir(page.folder), contextlib.redirect_stdout(printed):
        if isinstance(last, ast.Expr):
            exec(compile(ast.Module(most, []), page.name, "exec"), page.python)
            value = eval(compile(ast.Expression(last.value), page.name, "eval"), page.python)
        else:
            exec(compile(body, page.name, "exec"), page.python)
    text = f"```text\n{printed.getvalue()}```\n\n" if printed.getvalue() else ""
    return f"```python\n{body}```\n\n{text}{display(page, value)}"


def display(page: Page, value: Any) -> str:
    """Show a value as a notebook would: a figure, HTML, or text."""
    if value is None:
        return ""
    if hasattr(value, "_repr_svg_"):
        path = picture(page, ".svg")
        path.write_text(value._repr_svg_(), encoding="utf-8")
        return f"![What the code above draws.](/{path.relative_to(ROOT / 'docs')})"
    if hasattr(value, "_repr_html_"):
        return f'```{{raw}} html\n<div class="shown">{value._repr_html_()}</div>\n```'
    return f"```text\n{value!r}\n```"


def file(page: Page, kind: str, path: str, body: str) -> str:
    """Write or change a file as a page shows it, and return the block that shows that under the file's name."""
    target = page.folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(changed(target.read_text(encoding="utf-8"), body) if kind == "diff" else body, encoding="utf-8")
    return f"```{{code-block}} {kind}\n:caption: {path}\n{body}```"


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


def kept(page: Page, path: str) -> str:
    """Keep a file that the commands have left, and return its address in the site."""
    source = page.folder / path
    if source.name == "report.png":
        source = photographed(source.with_suffix(".html"), page)
    if not source.is_file():
        raise PageError(f"{page.name}: {path} is not there")
    target = picture(page, source.suffix)
    shutil.copy(source, target)
    return f"/{target.relative_to(ROOT / 'docs')}"


def photographed(report: Path, page: Page) -> Path:
    """Take a picture of a report, and return it; without a browser, outside CI, the README's stands in."""
    if not any(map(shutil.which, BROWSERS)) and not os.environ.get("ATTN_EXP_CI"):
        return TARGET
    if not report.is_file():
        raise PageError(f"{page.name}: {report.name} is not there")
    photograph(report, page.folder / "report.png", page.folder / "profile")
    return page.folder / "report.png"


def picture(page: Page, suffix: str) -> Path:
    """Return where the page's next picture goes."""
    page.drawn += 1
    page.pictures.mkdir(parents=True, exist_ok=True)
    return page.pictures / f"{page.name}-{page.drawn}{suffix}"


def checkout(page: Page) -> str:
    """Give the page a copy of the repository."""
    for name in ("attn_exp", "conf"):
        shutil.copytree(ROOT / name, page.folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", page.folder)
    return ""


def cells(path: Path) -> str:
    """Return the cells of a notebook as the text of a page."""
    found = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = unescape("".join(cell["source"]))
        found.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    return "\n\n".join(found) + "\n"
