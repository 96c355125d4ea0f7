"""The documentation site: `sphinx-build --fail-on-warning docs build/docs`. What pages show was run by `produce.py`."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

project = "attn_exp"
author = "The attn_exp developers"
project_copyright = f"2026, {author}"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.githubpages"]
myst_heading_anchors = 2
html_theme = "furo"
html_title = "attn_exp"
html_static_path = ["site"]
html_css_files = ["site.css"]
html_copy_source = False
default_role = "code"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 90

LIVE_REPORT = """<p><a href="report.html">Open this report alone</a>: click a number, or type over one.</p>
<iframe class="live" src="report.html" title="A report that you can use"></iframe>"""


def complete_first_page(app: Sphinx, name: str, source: list[str]) -> None:
    """On the first page, put a live report in the place of its picture, and make the lists of pages the contents."""
    if name != "index":
        return
    source[0] = re.sub(r"^!\[.*report\.html.*$", LIVE_REPORT, source[0], flags=re.MULTILINE)
    for caption, pages in re.findall(r"^### (.+)\n\n((?:- .*\n)+)", source[0], re.MULTILINE):
        names = "\n".join(re.findall(r"\]\(([\w-]+)\.md\)", pages))
        source[0] += f"\n```{{toctree}}\n:caption: {caption}\n:maxdepth: 1\n:hidden:\n\n{names}\n```\n"


def compute_live_report(app: Sphinx, exception: Exception | None) -> None:
    """Put the report of a default run beside the first page."""
    if exception:
        return
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-m", "attn_exp"], cwd=folder, env=environment, check=True, capture_output=True)
        shutil.copy(next(Path(folder).glob("outputs/runs/*/report.html")), Path(app.outdir) / "report.html")


def setup(app: Sphinx) -> None:
    """Complete the first page when it is read and when the site is built."""
    app.connect("source-read", complete_first_page)
    app.connect("build-finished", compute_live_report)
