"""Members from outside the package are choices, with a line each in `--help`."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_exp import cli, registry

MINE = '''
from dataclasses import dataclass

from attn_exp.forms import matrix
from attn_exp.problem.sources.source import Source
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.mask import Mask


@dataclass(frozen=True)
class Dilated(Mask):
    """Query i sees keys in steps."""

    first: int
    step: int = 2

    def allows(self, grid):
        return (grid.query - grid.key - self.first) % self.step == 0


@dataclass(frozen=True)
class Slow:
    speed: float = 0.5


FORM = matrix.FORM
SOURCE = Source(read=lambda asked: None, settings=Slow)
'''


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["--help"], ["mask=mine Query i sees keys in steps.", "mask.mine.first required",
                      "mask.mine.step a setting of this member (2)", "variant=mine from mine.py",
                      "embeddings=mine from mine.py"]),
        (["--cfg", "job", "mask=mine", "mask.mine.first=1", "variant=mine"],
         ["mine:", "first: 1", "step: 2", "form: mine"]),
        (["--cfg", "job", "embeddings=mine"], ["mine:", "speed: 0.5"]),
    ],
)  # fmt: skip
def test_what_a_file_brings(
    words: list[str],
    lines: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE, encoding="utf-8")
    with registry.undo_registrations():
        assert cli.obey(["--with", "mine.py", *words]) == 0
    printed = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line not in printed] == []
