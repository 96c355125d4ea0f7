"""Run the notebooks of the docs and keep what their cells show: python tools/keep_notebooks.py [NAME ...]

Readers on the web see a notebook's outputs without running it. Counts and times of the run are left out, so that a file
changes only where something that is shown has changed.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "docs" / "notebooks"


def keep(path: Path) -> None:
    """Run one notebook in a kernel of its own and write it with its outputs."""
    nbformat = importlib.import_module("nbformat")
    nbclient = importlib.import_module("nbclient")
    notebook: Any = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(ROOT)}})
    asyncio.run(client.async_execute())
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.execution_count = None
            for output in cell.outputs:
                output.pop("execution_count", None)
                if output.output_type == "execute_result":
                    output.execution_count = None
    notebook.metadata.language_info = {"name": "python"}
    path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")):
        keep(NOTEBOOKS / f"{name}.ipynb")
