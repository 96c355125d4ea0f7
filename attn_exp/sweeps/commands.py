"""The commands on a folder that may be a sweep's: `attn-exp status`, `collect`, `report` and `rerun`."""

from __future__ import annotations

from collections.abc import Sequence

from attn_exp import machine


def show_status(words: Sequence[str]) -> str:
    """Say where a sweep stands."""
    from attn_exp.sweeps import status  # noqa: PLC0415 - each command loads its own

    return status.standing(machine.folder(words[0]))


def collect(words: Sequence[str]) -> str:
    """Rebuild the table and the report of a sweep."""
    from attn_exp.sweeps import collect  # noqa: PLC0415

    return collect.again(machine.folder(words[0]))


def render_again(words: Sequence[str]) -> str:
    """Draw the report of a run or a sweep anew, with other figures or at another depth where the words say so."""
    from attn_exp.runs import reader, rendering  # noqa: PLC0415

    folder = machine.folder(words[0])
    if (folder / "manifest.json").is_file() and not (folder / "run.json").exists():
        from attn_exp.sweeps import collect  # noqa: PLC0415

        changes = rendering.said_anew(words[1:], "attn-exp report of a sweep", (rendering.DEPTH,))
        return collect.again(folder, changes.depth)
    return reader.render_again(folder, words[1:])


def rerun(words: Sequence[str]) -> str:
    """Repeat a run from its own settings, or compute one point of a sweep as a run."""
    from attn_exp.sweeps import rerun  # noqa: PLC0415

    return rerun.asked(words)
