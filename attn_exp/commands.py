"""The commands on what is on disk: `attn-exp index`, `runs`, `status` and their like. None loads Hydra to start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from attn_exp.errors import UserError

DONE = 0
FIGURE_WORDS = "[figures.format=pdf] [figures.width=5]"


@dataclass(frozen=True)
class Command:
    """What a command does with the words after its name, how many it takes, and how it is used."""

    obey: Callable[[Sequence[str]], str]
    least: int
    most: int
    use: str


def run(words: Sequence[str]) -> int:
    """Obey a command, print what it says and return the exit code.

    Raises:
        UserError: words that the command does not take, or a folder without what it needs.
    """
    name, *rest = words
    command = COMMANDS[name]
    if rest in (["-h"], ["--help"]):
        print(f"attn-exp {command.use}")
        return DONE
    if not command.least <= len(rest) <= command.most:
        raise UserError(f"attn-exp {' '.join(words)}: expected attn-exp {command.use.split('   ')[0]}")
    said = command.obey(rest)
    if said:
        print(said)
    return DONE


def index(words: Sequence[str]) -> str:
    """Rebuild the page of all runs and sweeps."""
    from attn_exp.runs.index import rebuild  # noqa: PLC0415 - each command loads its own

    return str(rebuild(folder(words)))


def open_newest(words: Sequence[str]) -> str:
    """Open the newest report."""
    from attn_exp.runs import reader  # noqa: PLC0415

    return reader.show(folder(words))


def render_again(words: Sequence[str]) -> str:
    """Draw the report of a run anew, with figures of other settings if told so."""
    from attn_exp.runs import reader  # noqa: PLC0415

    return reader.render_again(Path(words[0]), words[1:])


def show_status(words: Sequence[str]) -> str:
    from attn_exp.sweep import status  # noqa: PLC0415

    return status.told(Path(words[0]))


def collect_again(words: Sequence[str]) -> str:
    """Rebuild the table and the report of a sweep."""
    from attn_exp.sweep import collect  # noqa: PLC0415

    return collect.again(Path(words[0]))


def show_runs(words: Sequence[str]) -> str:
    from attn_exp.sweep import listing  # noqa: PLC0415

    return listing.told(folder(words))


def run_again(words: Sequence[str]) -> str:
    """Repeat a run from its own settings, or compute one point of a sweep as a run."""
    from attn_exp.sweep import rerun  # noqa: PLC0415

    return rerun.again(Path(words[0]), words[1] if len(words) > 1 else None)


def folder(words: Sequence[str]) -> Path:
    """Return the output folder that the words name, or the usual one."""
    return Path(words[0] if words else "outputs")


COMMANDS = {
    "index": Command(index, 0, 1, "index [DIR]          a page of all runs and sweeps under a folder (outputs)"),
    "open": Command(open_newest, 0, 1, "open [DIR]           the newest report in a browser, or its path"),
    "report": Command(render_again, 1, 3, f"report DIR {FIGURE_WORDS}   a run's report again, from its results alone"),
    "runs": Command(show_runs, 0, 1, "runs [DIR]           the same in the terminal, newest first"),
    "status": Command(show_status, 1, 1, "status DIR           where a sweep stands, from its files"),
    "collect": Command(collect_again, 1, 1, "collect DIR          a sweep's table and report again, from its parts"),
    "rerun": Command(run_again, 1, 2, "rerun DIR [POINT]    a run again, or one point of a sweep as a run"),
}
