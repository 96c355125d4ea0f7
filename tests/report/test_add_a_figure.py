"""A new figure is one new file: the page, the Markdown and the files show it, and no test is in its way."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests import ROOT

FIGURE = '''"""The largest weight of each query."""

from __future__ import annotations

from matplotlib.figure import Figure as Drawing

from attn_exp.report.figures.figure import Figure
from attn_exp.report.views import Views


def draw(views: Views, width: float) -> Drawing:
    """Show the largest weight of each query, a line for each panel."""
    drawing = Drawing(figsize=(width, 2.0))
    axes = drawing.add_subplot()
    for panel in views.panels:
        axes.plot(panel.weights.max(axis=(0, 2)), label=panel.title)
    return drawing


FIGURE = Figure(caption="The largest weight of each query, over all heads.", draw=draw, place=25)
'''


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a module in a copy of the project."""
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=120)


def test_one_file_is_a_figure_everywhere(tmp_path: Path) -> None:
    for part in ("attn_exp", "conf", "tests"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "attn_exp/report/figures/peaks.py").write_text(FIGURE, encoding="utf-8")
    done = run(tmp_path, "attn_exp", "figures.format=[svg,pdf]")
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "outputs" / "runs").iterdir()
    assert {path.name for path in (folder / "figures").glob("peaks.*")} == {"peaks.svg", "peaks.pdf"}
    caption = "The largest weight of each query, over all heads."
    text, page = ((folder / name).read_text(encoding="utf-8") for name in ("report.md", "report.html"))
    assert f"![{caption}](figures/peaks.svg)" in text
    assert f"<figcaption>{caption}</figcaption>" in page
    names = ("weights", "peaks", "distances")
    assert sorted(names, key=lambda name: text.index(f"figures/{name}.svg")) == list(names)
    options = ("-n0", "-q", "-p", "no:cacheprovider")
    again = run(
        tmp_path,
        "pytest",
        *options,
        "tests/report/test_figures.py",
        "tests/report/test_report.py",
        "tests/test_house.py",
    )
    assert again.returncode == 0, again.stdout
