"""The documentation site: `sphinx-build -W docs build/docs`. Every command and figure in it is run by `produce.py`."""

import sys
import tempfile
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from produce import Page, produced  # noqa: E402 - found by the line above

from attn_exp import registry  # noqa: E402 - as above

project = "attn_exp"
author = "the authors of attn_exp"
project_copyright = f"2026, {author}"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_produced"]
html_theme = "furo"
html_title = "attn_exp"
html_static_path = ["site"]
html_css_files = ["site.css"]
html_copy_source = False
default_role = "code"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 90


def run_page(app: Sphinx, name: str, source: list[str]) -> None:
    """Run what a page shows, in an empty folder of its own; what it registers is its own, too."""
    with tempfile.TemporaryDirectory() as folder, registry.kept():
        source[0] = produced(source[0], Page(name, Path(folder), HERE / "_produced"))


def setup(app: Sphinx) -> None:
    """Let every page be run when it is read."""
    app.connect("source-read", run_page)
