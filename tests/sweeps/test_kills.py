"""Whatever is killed, and whenever: the same command ends with every point exactly once and the same table."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from attn_exp.machine import DRAFT
from tests.sweeps.command import alive, children, kill, results, run, start, the_sweep, wait_until

pytestmark = pytest.mark.long

KILLS = 5
POINTS = 500
"""So many that the driver is killed long before the last of them."""
WORDS = ("-m", "embeddings=random", "embeddings.tokens=16", "embeddings.d_model=8", f"seed=range({POINTS})",
         "variant=[matrix,multi_head]", "report=tables", "sweep.chunk=4", "sweep.workers=2")  # fmt: skip


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The table of the sweep that nothing interrupts."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    run(folder, *WORDS, "sweep.engine=serial")
    return (the_sweep(folder) / "results.csv").read_bytes()


def parts(folder: Path) -> list[Path]:
    return list(folder.glob("outputs/sweeps/*/parts/*.csv"))


def test_a_driver_killed_at_random_moments(tmp_path: Path, expected: bytes) -> None:
    moments = random.Random(0)
    for _ in range(KILLS):
        wanted = len(parts(tmp_path)) + moments.randrange(12)
        with start(tmp_path, *WORDS) as driver:
            wait_until(lambda least=wanted: len(parts(tmp_path)) >= least)  # type: ignore[misc] # a default binds it now
            time.sleep(moments.uniform(0, 0.05))
            assert driver.poll() is None, "it ended before it was killed"
            workers = children(driver.pid) if driver.poll() is None else []
            driver.kill()
        wait_until(lambda left=workers: not any(map(alive, left)))  # type: ignore[misc] # a default binds it now
    run(tmp_path, *WORDS)
    assert (the_sweep(tmp_path) / "results.csv").read_bytes() == expected
    assert not [path for path in the_sweep(tmp_path).rglob("*") if DRAFT.fullmatch(path.name)]


def test_workers_killed_at_random_moments(tmp_path: Path, expected: bytes) -> None:
    moments, killed = random.Random(0), 0
    with start(tmp_path, *WORDS) as driver:
        wait_until(lambda: bool(parts(tmp_path)))
        while killed < KILLS and driver.poll() is None:
            time.sleep(moments.uniform(0.0, 0.1))
            workers = children(driver.pid) if driver.poll() is None else []
            if workers:
                kill(moments.choice(workers))
                killed += 1
        driver.communicate(timeout=300)
    assert killed == KILLS
    assert driver.returncode in (0, 1)  # 1: one of them was killed twice over the same single point
    assert sorted({int(line["point"]) for line in results(tmp_path)}) == list(range(POINTS))
    run(tmp_path, *WORDS)
    assert (the_sweep(tmp_path) / "results.csv").read_bytes() == expected
