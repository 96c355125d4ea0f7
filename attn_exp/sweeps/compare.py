"""`attn-exp compare A B`: compare two runs, or two sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from attn_exp import drafts, machine
from attn_exp.errors import UserError
from attn_exp.report.versus import Versus, versus_page, versus_text
from attn_exp.runs import folders, ours, store
from attn_exp.runs.rendering import DEPTH, said_anew
from attn_exp.sweeps import collect, manifest, two_runs, two_sweeps
from attn_exp.sweeps.answers.rows import read_rows
from attn_exp.sweeps.two_sweeps import Side

OPTION = "--exit-code"
PAGES, OUTPUTS = "comparisons", "outputs"


def compare(words: Sequence[str]) -> tuple[str, bool]:
    """Compare two folders, write the page, and return the text, and False if `--exit-code` is set and a number differs.

    Raises:
        UserError: not two folders, one of a run and one of a sweep, or one that cannot be read.
    """
    settings = [word for word in words if word.partition("=")[0] == DEPTH]
    names = [word for word in words if word != OPTION and word not in settings]
    if len(names) != 2:
        usage = f"attn-exp compare DIR DIR [{OPTION}] [{DEPTH}=reading]"
        raise UserError(f"attn-exp compare {' '.join(words)}: expected {usage}")
    changes = said_anew(settings, "attn-exp compare", (DEPTH,))
    places = [machine.folder(name) for name in names]
    versus = side_by_side(places[0], places[1])
    if changes.depth:
        versus = replace(versus, depth=changes.depth)
    written = write(versus, places)
    return f"{versus_text(versus)}\n\n{written}", not (OPTION in words and versus.moved)


def side_by_side(first: Path, second: Path) -> Versus:
    """Compare two folders, both of runs or both of sweeps.

    Raises:
        UserError: one of a run and one of a sweep, or one that cannot be read.
    """
    places = [place for place in (first, second) if not (place / "run.json").exists()]
    sweeps = [place for place in places if (place / manifest.FILE).is_file()]
    if len(sweeps) == 1:
        run = second if sweeps == [first] else first
        raise UserError(f"{sweeps[0]} is a sweep and {run} is a run; compare two of a kind")
    if sweeps:
        with collect.refuse_damaged(f"{first}, {second}", OSError):  # the message names the damaged one
            return two_sweeps.versus(side(first), side(second))
    return two_runs.versus((str(first), str(second)), store.load(first), store.load(second))


def side(folder: Path) -> Side:
    """Return a sweep as one side of a comparison."""
    about = manifest.load_manifest(folder)
    shelf = collect.shelf_of(folder, about)
    lines = shelf.lines(list(collect.find_whole(folder, about).values()))
    return Side(str(folder), about, read_rows(shelf.head, lines, about["axes"], about["metrics"]))


def write(versus: Versus, places: Sequence[Path]) -> Path:
    """Write the page next to the runs and sweeps of the first folder, and return its path.

    Raises:
        UserError: it cannot be written there.
    """
    home = places[0].parent
    outputs = home.parent if home.name in folders.KINDS else Path(OUTPUTS)
    target = outputs / PAGES / f"{'-'.join(place.absolute().name for place in places)}.html"
    try:
        ours.check_page(target, "comparison")
        with drafts.parents_made(target):
            machine.own_folder(target.parent)
            drafts.write_text(target, versus_page(versus))
    except OSError as error:
        raise UserError(f"{target}: cannot be written to ({error.strerror})") from error
    return target
