"""A sweep whose files were damaged, or lost with the power: what does not fit is computed again, and said."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from attn_exp import cli
from attn_exp.drafts import DRAFT
from attn_exp.errors import UserError
from attn_exp.sweeps.parts import digest_of
from tests.sweeps.command import quickly, start, the_sweep, wait_until

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


def cut_in_a_number(folder: Path) -> None:
    path = parts(folder)[0]
    path.write_bytes(path.read_bytes()[:-5])


def without_its_last_line(folder: Path) -> None:
    path = parts(folder)[1]
    path.write_bytes(path.read_bytes()[: path.read_bytes().rstrip().rindex(b"\n") + 1])


def emptied_to_its_head(folder: Path) -> None:
    path = parts(folder)[2]
    path.write_bytes(path.read_bytes().partition(b"\n")[0] + b"\n")


def emptied(folder: Path) -> None:
    parts(folder)[3].write_bytes(b"")


def of_another_chunk(folder: Path) -> None:
    parts(folder)[4].write_bytes(parts(folder)[5].read_bytes())


def under_the_name_of_another_chunk(folder: Path) -> None:
    one, other = parts(folder)[:2]
    one.replace(one.with_name(one.name[:24] + other.name[24:]))
    shutil.copy(other, one.with_name(one.name[:24] + other.name[24:]))


def in_another_order(folder: Path) -> None:
    path = parts(folder)[5]
    head, *lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([head, *reversed(lines)]))


def one_bit(folder: Path) -> None:
    data = bytearray(parts(folder)[6].read_bytes())
    data[-3] ^= 1
    parts(folder)[6].write_bytes(data)


DAMAGES = [cut_in_a_number, without_its_last_line, emptied_to_its_head, emptied, of_another_chunk,
           under_the_name_of_another_chunk, in_another_order, one_bit]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_part_is_computed_again_and_said(damage: Callable[[Path], None], swept: Path, tmp_path: Path) -> None:
    shutil.copytree(swept / "outputs", tmp_path / "outputs")
    folder = the_sweep(tmp_path)
    expected = (folder / "results.csv").read_bytes()
    damage(tmp_path)
    said, _ = quickly(tmp_path, "status", str(folder))
    assert "70 of 80 points, 0 failed; 7 of 8 parts, 1 damaged" in said
    assert "damaged since it was complete; the same command continues" in said
    said, _ = quickly(tmp_path, "collect", str(folder))
    assert "damaged and left out: " in said
    assert "Partial: 70 of 80 points" in said
    assert (folder / "results.csv").read_bytes() != expected
    said, told = quickly(tmp_path, *WORDS)
    assert "attn_exp: damaged parts, computed again: " in told
    assert "80 of 80 points" in told and "70 cached" in told
    assert (folder / "results.csv").read_bytes() == expected
    assert len(parts(tmp_path)) == 8


@pytest.mark.long
def test_a_table_that_was_damaged_is_joined_again(swept: Path, tmp_path: Path) -> None:
    shutil.copytree(swept / "outputs", tmp_path / "outputs")
    table = the_sweep(tmp_path) / "results.csv"
    expected = table.read_bytes()
    for damaged in (expected[:-20], b"", expected.replace(b"ok", b"OK", 1)):
        table.write_bytes(damaged)
        quickly(tmp_path, *WORDS)
        assert table.read_bytes() == expected


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("git", {}, ""),
        ("tally", ["agreeing", "printed"], "parts cannot be read ("),
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


JOURNAL = """
import os, stat
real = os.fsync
def fsync(descriptor):
    real(descriptor)
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    names = " ".join(sorted(os.listdir(path))) if os.path.isdir(path) else str(os.fstat(descriptor).st_size)
    with open(os.environ["JOURNAL"], "a") as journal:
        journal.write(f"{os.fstat(descriptor).st_ino} {names}\\n")
os.fsync = fsync
from attn_exp.sweeps.parts import Shelf
whole = Shelf.write
def write(shelf, *given):
    part = whole(shelf, *given)
    with open(os.environ["JOURNAL"], "a") as journal:
        journal.write(f"counted {part.path.name}\\n")
    return part
Shelf.write = write
"""
"""A file system's view: which file held how much, and which folder which names, when it was synced; and which parts the
sweep then took for safe."""


def cut_power(folder: Path, journal: Path, chance: random.Random) -> set[str]:
    """Leave of a folder what a loss of power may leave: what was synced, and any part of what was not.

    Returns the parts that lost something.
    """
    synced = {line.split(" ", 1)[0]: line.split(" ", 1)[1].strip() for line in journal.read_text().splitlines()}
    lost = set()
    for path in [*folder.rglob("*")]:
        about = path.lstat()
        if not path.is_file() or path.name == "lock":
            continue
        if path.name not in synced.get(str(path.parent.stat().st_ino), "").split() and chance.random() < 0.5:
            path.unlink()  # its name was never synced
            lost.add(path.name)
        elif str(about.st_ino) not in synced and about.st_size:
            with path.open("r+b") as file:
                file.truncate(chance.randrange(about.st_size))
            lost.add(path.name)
    return lost


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_a_loss_of_power_costs_no_row(seed: int, swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance, journal = random.Random(seed), tmp_path / "journal"
    journal.touch()
    monkeypatch.setenv("JOURNAL", str(journal))
    here = tmp_path / "here"
    here.mkdir()
    with start(here, *WORDS, patch=JOURNAL) as driver:
        wanted = chance.randrange(9)
        wait_until(lambda: driver.poll() is not None or len(list(here.glob("outputs/sweeps/*/parts/*.csv"))) >= wanted)
        driver.kill()
    if here.joinpath("outputs", "sweeps").exists():
        lines = journal.read_text().splitlines()
        counted = {line.removeprefix("counted ") for line in lines if line.startswith("counted ")}
        assert not counted & cut_power(the_sweep(here), journal, chance)
    quickly(here, *WORDS)
    assert (the_sweep(here) / "results.csv").read_bytes() == (the_sweep(swept) / "results.csv").read_bytes()
    assert not [path for path in the_sweep(here).rglob("*") if DRAFT.fullmatch(path.name)]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_parts_truncated_at_random_cost_no_row(seed: int, swept: Path, tmp_path: Path) -> None:
    chance = random.Random(seed)
    shutil.copytree(swept / "outputs", tmp_path / "outputs")
    files = [path for path in the_sweep(tmp_path).rglob("*") if path.is_file()]
    for path in chance.sample(files, chance.randrange(1, len(files))):
        with path.open("r+b") as file:
            file.truncate(chance.randrange(1 + path.stat().st_size))
    quickly(tmp_path, *WORDS)
    assert (the_sweep(tmp_path) / "results.csv").read_bytes() == (the_sweep(swept) / "results.csv").read_bytes()


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
    assert re.search(r"its parts cannot be read \(.*has a line of no point\)$", said.rstrip()), said
