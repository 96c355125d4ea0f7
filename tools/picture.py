"""Takes pictures of reports for the pages of the docs (needs Chromium)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from PIL import Image  # comes with Matplotlib

BROWSERS = ("chromium-headless-shell", "chromium")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
    "--window-size=1100,1250",
)  # fmt: skip


def photograph(page: Path, target: Path, profile: Path) -> None:
    """Photograph the top of a page, as a laptop shows it; the browser's profile goes to a folder that may be lost."""
    profile_option = f"--user-data-dir={profile}"
    target_option = f"--screenshot={target}"
    browsers = filter(shutil.which, BROWSERS)
    program = next(browsers)
    address = page.resolve().as_uri()
    command = [program, *FLAGS, profile_option, target_option, address]
    subprocess.run(command, check=True, timeout=120, stderr=subprocess.DEVNULL)
    picture = Image.open(target).convert("RGB")
    smaller = picture.quantize(64)  # colours: a third of the bytes
    smaller.save(target, optimize=True)
