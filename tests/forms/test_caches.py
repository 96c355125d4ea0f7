"""How large the second-level cache is, and what is made of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from attn_exp.forms._blocks import tasks

MIB = 1 << 20


def processor(folder: Path, *known: tuple[str, str, str, str]) -> Path:
    """Write what Linux tells of caches: level, type, size, and which processors share it."""
    for number, facts in enumerate(known):
        cache = folder / f"index{number}"
        cache.mkdir()
        for name, fact in zip(("level", "type", "size", "shared_cpu_list"), facts, strict=True):
            (cache / name).write_text(fact + "\n")
    return folder


FIRST = ("1", "Data", "48K", "0"), ("1", "Instruction", "32K", "0")
LAST = ("3", "Unified", "32M", "0-15")


@pytest.mark.parametrize(
    ("size", "shared", "expected"),
    [
        ("1024K", "0", MIB),
        ("2048K", "0", 2 * MIB),
        ("2M", "0,64", MIB),
        ("4096K", "0-3", MIB),
        ("1M", "0-1,4", MIB // 3),
    ],
)
def test_what_linux_tells_is_shared_among_those_that_share_it(
    size: str, shared: str, expected: int, tmp_path: Path
) -> None:
    assert tasks.from_folder(processor(tmp_path, *FIRST, ("2", "Unified", size, shared), LAST)) == expected


@pytest.mark.parametrize(
    "known", [(), FIRST, (*FIRST, LAST), (("2", "Unified", "large", "0"),), (("2", "Data", "1M", ""),)]
)
def test_nobody_tells(known: tuple[tuple[str, str, str, str], ...], tmp_path: Path) -> None:
    assert tasks.from_folder(processor(tmp_path, *known)) is None
    assert tasks.from_folder(tmp_path / "nothing") is None


@pytest.mark.skipif(sys.platform == "win32", reason="no sysctl on this system")
def test_a_number_that_the_system_does_not_know_is_0() -> None:
    assert tasks.asked("hw.no.such.number") == 0
    cache = tasks.second_level()
    assert cache is None or cache > 0


@pytest.mark.parametrize(
    ("cache", "keys"),
    [(None, 2048), (MIB // 2, 2048), (MIB, 2048), (2 * MIB, 1024), (3 * MIB, 1024), (4 * MIB, 2048), (64 * MIB, 2048)],
)
def test_a_tile_takes_half_of_a_cache_that_holds_it(cache: int | None, keys: int) -> None:
    """A tile of 1,024 keys takes 1 MiB, one of 2,048 takes 2 MiB, which is best where neither fits."""
    assert tasks.keys_per_tile(cache) == keys
