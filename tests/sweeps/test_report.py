"""Reports of sweeps: what they say, and that nobody's words run in them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.sweeps.command import COMMAND, environment, quickly, the_sweep


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep with its full report, in which a third of the points failed."""
    folder = tmp_path_factory.mktemp("full")
    quickly(folder, "-m", "head=1,2,3", "scale=true,false", "seed=0,1,2", "title='<script>alert(1)</script>'", code=1)
    return the_sweep(folder)


@pytest.mark.long
def test_each_command_in_the_report_runs(full: Path, tmp_path: Path) -> None:
    text = (full / "report.md").read_text()
    commands = re.findall(r"`(python -m attn_exp [^`]*)`", text)
    assert len(commands) > 10
    for each in (commands[0], commands[-2]):
        words = each.replace("python -m attn_exp", " ".join(COMMAND))
        subprocess.run(
            ["bash", "-c", words], cwd=tmp_path, env=environment(), check=True, capture_output=True, timeout=60
        )


@pytest.mark.long
def test_points_that_disagree_with_a_printed_result_are_named_and_end_as_a_run_does(tmp_path: Path) -> None:
    words = ["experiment=the_cat_sat", "mistake=none,weights_transposed", "seed=0,1", "sweep.engine=serial"]
    out, _ = quickly(tmp_path, "-m", *words, code=0)
    assert "4 points, 0 failed" in out
    assert "30 of 32 published results agree. 2 points disagree with a published result." in out
    again = "python -m attn_exp experiment=the_cat_sat mistake=weights_transposed seed=1"
    assert f"mistake=weights_transposed seed=1: 7 of 8 published results agree\n    {again}\n" in out
    page, text = ((the_sweep(tmp_path) / f"report.{form}").read_text() for form in ("html", "md"))
    assert f"<li>mistake=weights_transposed seed=1: 7 of 8 agree: <code>{again}</code></li>" in page
    assert f"mistake=weights_transposed seed=1: 7 of 8 agree: `{again}`" in text
    alone, _ = quickly(tmp_path, *again.split()[3:], "report=none", code=0)
    assert "7 of 8 published results agree." in alone


def test_a_wrong_output_stands_in_the_terminal_the_page_and_the_markdown(tmp_path: Path) -> None:
    out, _ = quickly(tmp_path, "-m", "mistake=none,no_scale", "seed=0,1", "variant=[matrix]", "sweep.engine=serial")
    for text in (out, *((the_sweep(tmp_path) / f"report.{form}").read_text() for form in ("html", "md"))):
        assert "The output is wrong in 2 of 4 rows (mistake=no_scale), by up to " in text
