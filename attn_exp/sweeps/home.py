"""The folder of a sweep: made through no link, and not left behind by a sweep that never started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attn_exp import machine
from attn_exp.errors import UserError


@contextmanager
def made(folder: Path) -> Iterator[None]:
    """Make `output_dir/sweeps/<name>/parts` and let the block work there.

    Where the block ends with a mistake of the user before it wrote anything, what was made is taken away again.

    Raises:
        OSError: a link or a file is in the way, or a folder cannot be made.
    """
    missing = [path for path in (folder / "parts", folder, *folder.parents) if not path.exists()]
    folder.parent.parent.mkdir(parents=True, exist_ok=True)
    for path in (folder.parent, folder, folder / "parts"):
        machine.own_folder(path)
        machine.sync_folder(path.parent)
    try:
        yield
    except UserError:
        with suppress(OSError):
            if folder in missing:
                (folder / "lock").unlink(missing_ok=True)
            for path in missing:
                path.rmdir()  # which fails where anything is in it
        raise
