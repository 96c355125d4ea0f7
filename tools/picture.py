"""Takes the README's picture of a report: python tools/picture.py, after the page has changed (needs Chromium).

The site takes its own when it is built, of the report that its page has just computed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs/report.png"
SIZE = "1100,1250"
BROWSERS = ("chromium-headless-shell", "chromium")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
)  # fmt: skip


def photograph(page: Path, target: Path, profile: Path) -> None:
    """Photograph the top of a page, as a laptop shows it; the browser's profile goes to a folder that may be lost."""
    options = [*FLAGS, f"--user-data-dir={profile}", f"--screenshot={target}", f"--window-size={SIZE}"]
    program = next(filter(shutil.which, BROWSERS))
    subprocess.run([program, *options, page.resolve().as_uri()], check=True, timeout=120, stderr=subprocess.DEVNULL)


def main() -> None:
    """Run the README's example in an empty folder and photograph its report."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "attn_exp", "head=2", "scale=false"]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
        photograph(Path(folder) / "outputs/latest/report.html", TARGET, Path(folder) / "profile")


if __name__ == "__main__":
    main()
