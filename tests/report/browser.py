"""A headless Chromium that opens a page, runs a script in it, and says what it found."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
MISSING = "no Chromium on this machine; .ci/run installs Debian's"


class Visit(NamedTuple):
    """What a visit found: the script's answer, and what the browser wrote to its console."""

    answer: Any
    console: list[str]


def need_chromium() -> None:
    """Skip where there is no Chromium, except in CI, where that is a failure."""
    if CHROMIUM is None:
        if os.environ.get("ATTN_EXP_CI"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)


def visit(page: str, script: str, folder: Path, *options: str) -> Visit:
    """Open a page, run the body of an asynchronous function after its own scripts, and return what that returns."""
    need_chromium()
    probe = (
        '<pre id="probe"></pre><script>(async () => { try { return JSON.stringify(await (async () => {'
        f"{script}\n"
        "})()); } catch (error) { return JSON.stringify('failed: ' + error.stack); } })()"
        ".then((told) => { document.getElementById('probe').textContent = told; });</script></body>"
    )
    (folder / "page.html").write_text(page.replace("</body>", probe), encoding="utf-8")
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
        f"--user-data-dir={folder}/user", "--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1100,900",
        "--virtual-time-budget=8000", *options, "--dump-dom", f"file://{folder}/page.html",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=90)
    told = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout, re.DOTALL)
    assert told, done.stdout[-2000:]
    return Visit(json.loads(html.unescape(told[1])), [line for line in done.stderr.splitlines() if "CONSOLE" in line])
