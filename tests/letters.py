"""Letters as wide as a reader's may be: pages are set in the font of the reader's system, whichever that is."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import matplotlib

from tests.report.tab import DRAWN, Tab

WIDTHS = {"wide": 105, "narrow": 70}
"""To what percentage of its size Matplotlib's DejaVu Sans is scaled, to be as wide as any common font, and as narrow.

DejaVu Sans and Verdana are the widest fonts that systems come with; Verdana's bold digits are the wider by 2 %. The
small letters of Helvetica Narrow, which Liberation Sans Narrow copies, are 0.71 as wide as those of DejaVu Sans, and
0.69 in bold. Matplotlib brings its font along, so nothing need be installed.
"""
FILES = {400: "DejaVuSans.ttf", 700: "DejaVuSans-Bold.ttf"}
SET = """(async () => {
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  document.fonts.clear();
  for (const [weight, text] of Object.entries(%s)) {
    const face = new FontFace("Tried", bytes(text), { weight, sizeAdjust: "%d%%" });
    document.fonts.add(await face.load());
  }
  document.body.style.fontFamily = "Tried";
  await %s;
  return [...document.fonts].map((face) => face.sizeAdjust);
})()"""


def set_in(tab: Tab, letters: str) -> None:
    """Set the open page in wide or narrow letters."""
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    files = {weight: base64.b64encode((folder / name).read_bytes()).decode() for weight, name in FILES.items()}
    percent = WIDTHS[letters]
    assert tab.ask(SET % (json.dumps(files), percent, DRAWN)) == [f"{percent}%"] * len(FILES)
