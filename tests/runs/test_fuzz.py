"""What the fuzzer's fields of folders conclude rests on how a command ended and what it printed: both are seen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the fields fork")


@pytest.mark.long
def test_a_field_sees_how_a_command_ends_and_what_it_prints(tmp_path: Path) -> None:
    from tools.fuzz._folders import attempted, tried  # noqa: PLC0415 - it forks
    from tools.fuzz._processes import run  # noqa: PLC0415

    (tmp_path / "outputs").mkdir()
    code, text = run(tmp_path, ["runs"])
    assert code == 0
    assert text
    code, text = run(tmp_path, ["nonsense"])
    assert code == 2
    assert text.startswith("attn_exp: error: ")
    with pytest.raises(RuntimeError, match="the field itself fell"):
        run(tmp_path, ["runs"], lambda: os.chdir("gone"))
    with attempted() as here:
        assert tried(here, ["runs"]) is None
        (here / "foreign" / "file").write_text("theirs")
        assert tried(here, ["runs"]) == "a foreign byte was written"
