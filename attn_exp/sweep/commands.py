"""`attn-exp status`, `collect`, `rerun`, `runs`: what is on disk, read back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from attn_exp.config import UserError
from attn_exp.sweep import listing, status

DONE = 0
USES = {
    "status": "status DIR           where a sweep stands, from its files",
    "collect": "collect DIR          a sweep's table and report again, from its parts",
    "rerun": "rerun DIR [POINT]    a run again, or one point of a sweep as a run",
    "runs": "runs [DIR]           runs and sweeps under a folder (outputs), newest first",
}


def run(words: Sequence[str]) -> int:
    """Obey a command and return the exit code.

    Raises:
        UserError: words that the command does not take, or a folder without what it needs.
    """
    name, *rest = words
    if rest in (["-h"], ["--help"]):
        print(f"attn-exp {USES[name]}")
        return DONE
    command, least, most = COMMANDS[name]
    if not least <= len(rest) <= most:
        raise UserError(f"attn-exp {' '.join(words)}: expected attn-exp {USES[name].split('   ')[0]}")
    return command(rest)


def show_status(words: Sequence[str]) -> int:
    print(status.told(Path(words[0])))
    return DONE


def collect_again(words: Sequence[str]) -> int:
    """Rebuild the table and the report of a sweep."""
    from attn_exp.sweep import collect  # noqa: PLC0415 - the other commands need none of it

    folder = Path(words[0])
    collect.again(folder)
    print(collect.told(folder))
    return DONE


def show_runs(words: Sequence[str]) -> int:
    print(listing.told(Path(words[0] if words else "outputs")))
    return DONE


def run_again(words: Sequence[str]) -> int:
    """Repeat a run from its own settings, or compute one point of a sweep as a run."""
    from attn_exp.sweep import rerun  # noqa: PLC0415

    print(rerun.again(Path(words[0]), words[1] if len(words) > 1 else None))
    return DONE


COMMANDS: dict[str, tuple[Callable[[Sequence[str]], int], int, int]] = {
    "status": (show_status, 1, 1),
    "collect": (collect_again, 1, 1),
    "rerun": (run_again, 1, 2),
    "runs": (show_runs, 0, 1),
}
