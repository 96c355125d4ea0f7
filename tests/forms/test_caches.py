"""How large the second-level cache is, and what is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from attn_exp.forms._blocks import tasks

MIB = 1 << 20


@pytest.mark.parametrize(
    ("size", "shared", "expected"),
    [
        ("1024K", "1", MIB),
        ("2048K", "00000000,00000001", 2 * MIB),
        ("2048K", "1,00000001", MIB),
        ("large", "1", None),
        ("1024K", "", None),
        (None, "1", None),
    ],
)
def test_a_cache_is_shared_among_those_that_share_it(
    size: str | None, shared: str, expected: int | None, tmp_path: Path
) -> None:
    (tmp_path / "shared_cpu_map").write_text(f"{shared}\n")
    if size is not None:
        (tmp_path / "size").write_text(f"{size}\n")
    assert tasks.second_level(tmp_path) == expected


@pytest.mark.parametrize(
    ("cache", "keys"),
    [(None, 2048), (MIB // 2, 2048), (MIB, 2048), (2 * MIB, 1024), (3 * MIB, 1024), (4 * MIB, 2048), (64 * MIB, 2048)],
)
def test_a_tile_takes_half_of_a_cache_that_holds_it(cache: int | None, keys: int) -> None:
    """A tile of 1,024 keys takes 1 MiB, one of 2,048 takes 2 MiB, which is best where neither fits."""
    assert tasks.keys_per_tile(cache) == keys
