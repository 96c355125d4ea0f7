"""Commands that are ended before they are done leave nothing half and no process, and work again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.sweeps.command import quickly, run, start, wait_until

pytestmark = pytest.mark.long  # it starts processes, browsers or other libraries, or takes seconds

SHEETS = ("sheet", "seed=0,1", "stages=[scores]", "to=deep/class")
RUN = ("variant=[matrix]", "report=tables")
HELD = """
import time
def held(*given, **more):
    open("held", "a").close()
    time.sleep(60)
"""
SLOW_KEYS = f"{HELD}\nfrom attn_exp.report import worksheet\nworksheet.render_solution = held"
SLOW_PAGE = f"{HELD}\nfrom attn_exp.runs import trust\ntrust.add_seal = held"


@pytest.mark.parametrize(
    ("words", "patch", "sign"),
    [(SHEETS, SLOW_KEYS, signal.SIGTERM), (RUN, SLOW_PAGE, signal.SIGTERM), (SHEETS, SLOW_KEYS, signal.SIGINT)],
)
def test_a_signal_leaves_nothing(words: tuple[str, ...], patch: str, sign: signal.Signals, tmp_path: Path) -> None:
    with start(tmp_path, *words, patch=patch) as process:
        wait_until((tmp_path / "held").exists)
        process.send_signal(sign)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 128 + sign
    assert out == ""
    assert err.endswith("attn_exp: interrupted before it was finished\n")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "held"]
    assert not list(tmp_path.rglob(".*"))
    quickly(tmp_path, *words)


def test_what_a_kill_leaves_is_hidden_and_the_same_command_works(tmp_path: Path) -> None:
    for words, patch, place in ((SHEETS, SLOW_KEYS, "deep"), (RUN, SLOW_PAGE, "outputs/runs")):
        with start(tmp_path, *words, patch=patch) as process:
            wait_until((tmp_path / "held").exists)
            process.kill()
        (tmp_path / "held").unlink()
        assert [name[0] for name in os.listdir(tmp_path / place)] == ["."]
        quickly(tmp_path, *words)
        assert len([name for name in os.listdir(tmp_path / place) if name[0] != "."]) == 1


def test_a_disk_that_takes_no_more_leaves_no_half_of_a_class(tmp_path: Path) -> None:
    _, err = run(tmp_path, *SHEETS, limit="-f 12", code=2)
    assert err.endswith("attn_exp: error: to=deep/class: cannot be written to (File too large)\n")
    assert os.listdir(tmp_path / "deep") == []
    quickly(tmp_path, *SHEETS)
    made = ["answers.csv", "key.html", "key.json", "sheets", "sheets.html"]
    assert sorted(os.listdir(tmp_path / "deep/class")) == made
    assert len(os.listdir(tmp_path / "deep/class/sheets")) == 2
    run(tmp_path, "grade", "deep/class/answers.csv", "deep/class/key.json", limit="-f 2", code=2)
    assert sorted(os.listdir(tmp_path / "deep/class")) == made
