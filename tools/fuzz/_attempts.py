"""What an attempt of a fuzzer does: the command line in a folder of its own, and what must hold however it ends."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from attn_exp import cli
from attn_exp.errors import EXIT_CODES

LONGEST = 300
UNSHOWN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def obeyed(words: Sequence[str]) -> tuple[int, str, str]:
    """Run the command line in this process and return its exit code and what it printed; an error's is -1."""
    argv, out, err = sys.argv, io.StringIO(), io.StringIO()
    sys.argv = ["attn-exp", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("error")
            cli.main()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        code = -1
        err.write(traceback.format_exc())
    finally:
        sys.argv = argv
    return code, out.getvalue(), err.getvalue()


def fallen(words: Sequence[str], folder: Path, outside: Path) -> str | None:
    """Run words in a folder, and say what does not hold: one line for a mistake, and nothing left behind.

    `outside` is a folder beside it, into which nothing may be written.
    """
    before, there = entries(folder), os.getcwd()
    os.chdir(folder)
    try:
        code, out, err = obeyed(words)
    finally:
        os.chdir(there)
    if code == -1:
        return f"{words!r}: {err[-600:]}"
    if entries(outside):
        return f"{words!r}: wrote {entries(outside)} outside"
    if code == cli.USAGE:
        line = err.rstrip("\n")
        if "\n" in line or not line.startswith("attn_exp: error: ") or len(line) > LONGEST or UNSHOWN.search(line):
            return f"{words!r}: said {line[-600:]!r}"
        if entries(folder) != before or out:
            return f"{words!r}: left {sorted(set(entries(folder)) - set(before))[:5]} behind, printed {out[:100]!r}"
    elif code not in EXIT_CODES.values():
        return f"{words!r}: exit code {code}"
    return None


def entries(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@contextlib.contextmanager
def folders() -> Iterator[tuple[Path, Path]]:
    """Give a folder to run in and one beside it that must stay empty."""
    with tempfile.TemporaryDirectory() as home:
        inside, outside = Path(home, "inside"), Path(home, "outside")
        inside.mkdir()
        outside.mkdir()
        yield inside, outside
