"""A sweep whose files were damaged, or lost with the power: what does not fit is computed again, and said."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from attn_exp import cli
from attn_exp.errors import UserError
from attn_exp.sweeps.parts import digest_of
from tests.sweeps.command import quickly, the_sweep

WORDS = ("-m", "seed=range(40)", "head=1,2", "variant=[matrix,multi_head]", "report=none", "sweep.chunk=10",
         "sweep.engine=serial")  # fmt: skip


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep of eighty points in eight parts."""
    folder = tmp_path_factory.mktemp("swept")
    quickly(folder, *WORDS)
    return folder


def parts(folder: Path) -> list[Path]:
    return sorted((the_sweep(folder) / "parts").iterdir())


def without_its_last_line(folder: Path) -> None:
    path = parts(folder)[1]
    path.write_bytes(path.read_bytes()[: path.read_bytes().rstrip().rindex(b"\n") + 1])


def of_another_chunk(folder: Path) -> None:
    parts(folder)[4].write_bytes(parts(folder)[5].read_bytes())


def one_bit(folder: Path) -> None:
    data = bytearray(parts(folder)[6].read_bytes())
    data[-3] ^= 1
    parts(folder)[6].write_bytes(data)


DAMAGES = [without_its_last_line, of_another_chunk, one_bit]


@pytest.mark.long
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_part_is_computed_again_and_said(damage: Callable[[Path], None], swept: Path, tmp_path: Path) -> None:
    shutil.copytree(swept / "outputs", tmp_path / "outputs")
    folder = the_sweep(tmp_path)
    expected = (folder / "results.csv").read_bytes()
    damage(tmp_path)
    said, _ = quickly(tmp_path, "status", str(folder))
    assert "70 of 80 points, 0 failed; 7 of 8 parts, 1 damaged" in said
    assert "damaged after it finished; run the same command again to continue" in said
    said, _ = quickly(tmp_path, "collect", str(folder))
    assert "damaged and left out: " in said
    assert "Partial: 70 of 80 points" in said
    assert (folder / "results.csv").read_bytes() != expected
    said, told = quickly(tmp_path, *WORDS)
    assert "attn_exp: recomputing damaged parts: " in told
    assert "80 of 80 points" in told and "70 cached" in told
    assert (folder / "results.csv").read_bytes() == expected
    assert len(parts(tmp_path)) == 8


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("git", {}, ""),
        ("columns", ["point", "status", "message", "variant", "head", "seed"], "parts cannot be read ("),
    ],
)
def test_a_manifest_that_does_not_fit_its_parts_is_said_in_a_line(
    key: str, value: object, message: str, swept: Path, tmp_path: Path
) -> None:
    shutil.copytree(swept / "outputs", tmp_path / "outputs")
    folder = the_sweep(tmp_path)
    about = json.loads((folder / "manifest.json").read_text())
    about["report"] |= {"tables": True}
    (folder / "manifest.json").write_text(json.dumps(about | {key: value}))
    for words in (["collect", str(folder)], ["compare", str(folder), str(folder)]):
        if message:
            with pytest.raises(UserError, match=re.escape(message)):
                cli.obey(words)
        else:
            assert cli.obey(words) == cli.DONE


@pytest.mark.parametrize("words", [WORDS, ("collect",), ("report",)])
def test_a_part_that_somebody_sealed_anew_is_one_line(words: tuple[str, ...], swept: Path, tmp_path: Path) -> None:
    """Its name fits what it holds, and what it holds is no part."""
    shutil.copytree(swept / "outputs", tmp_path / "outputs")
    path, there = parts(tmp_path)[0], the_sweep(tmp_path)
    chunk, data = path.name[:24], path.read_bytes().replace(b"\n", b"\nx", 2)
    name = f"{chunk}-{digest_of(chunk, data)}.csv"
    path.with_name(name).write_bytes(data)
    path.unlink()
    (there / "results.csv").unlink()
    _, said = quickly(tmp_path, *words, *([str(there)] if len(words) == 1 else []), code=2)
    assert re.search(r"its parts cannot be read \(.*has a line without a point number\)$", said.rstrip()), said
