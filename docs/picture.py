"""Takes the README's picture of a report: python docs/picture.py (needs Chromium)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SIZE = "1100,1250"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
)  # fmt: skip


def main() -> None:
    """Run the README's example in an empty folder and photograph the top of its report."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "attn_exp", "head=2", "scale=false"]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
        page = (Path(folder) / "outputs/latest/report.html").resolve().as_uri()
        taken = f"--screenshot={ROOT / 'docs/report.png'}"
        profile = f"--user-data-dir={folder}/profile"
        subprocess.run(["chromium", *FLAGS, profile, taken, f"--window-size={SIZE}", page], check=True)


if __name__ == "__main__":
    main()
