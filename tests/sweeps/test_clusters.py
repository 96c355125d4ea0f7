"""Ray and Dask: the same table as everywhere, on a cluster given by its address, also when a node is killed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from attn_exp.config.schema import Sweep
from attn_exp.errors import UserError
from attn_exp.sweeps.expand import expand
from attn_exp.sweeps.plan import Job, make_plan
from attn_exp.sweeps.task import elsewhere
from tests.sweeps.command import environment, run, start, the_sweep, wait_until

pytestmark = pytest.mark.long

WORDS = ("-m", "embeddings=random", "embeddings.tokens=20", "embeddings.d_model=8", "seed=range(60)",
         "variant=[matrix,multi_head]", "report=none", "sweep.chunk=2")  # fmt: skip

SHORT = "from attn_exp.sweeps.engines import dask; dask.SECONDS_TO_ANSWER = 1"


def needs(library: str) -> None:
    if importlib.util.find_spec(library) is None and "ATTN_EXP_CI" not in os.environ:
        pytest.skip(f"{library} is not installed")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The table of the sweep on the serial engine."""
    folder = tmp_path_factory.mktemp("serial")
    run(folder, *WORDS, "sweep.engine=serial")
    return (the_sweep(folder) / "results.csv").read_bytes()


def some_parts(folder: Path) -> bool:
    return len(list(folder.glob("outputs/sweeps/*/parts/*.csv"))) >= 3


def test_a_killed_dask_worker_costs_nothing(tmp_path: Path, expected: bytes) -> None:
    needs("distributed")
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "distributed.cli." + what, "--scheduler-file", "scheduler.json", *options],
                    cwd=tmp_path,
                    env=environment(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
            for what, *options in (
                ("dask_scheduler", "--port", "0", "--host", "127.0.0.1", "--no-dashboard"),
                ("dask_worker", "--nthreads", "1", "--no-nanny", "--no-dashboard"),
                ("dask_worker", "--nthreads", "1", "--no-nanny", "--no-dashboard"),
            )
        ]
        for each in processes:
            stack.callback(each.kill)
        told = tmp_path / "scheduler.json"
        wait_until(lambda: told.exists() and bool(told.read_text()))
        address = json.loads(told.read_text())["address"]
        with start(tmp_path, *WORDS, "sweep.engine=dask", f"sweep.address='{address}'") as driver:
            wait_until(lambda: some_parts(tmp_path), seconds=60)
            processes[2].kill()
            assert driver.poll() is None, "the sweep was over before the worker was killed"
            _, err = driver.communicate(timeout=120)
    assert driver.returncode == 0, err
    assert (the_sweep(tmp_path) / "results.csv").read_bytes() == expected


def test_dask_on_this_machine_agrees_to_the_last_byte(tmp_path: Path, expected: bytes) -> None:
    needs("distributed")
    run(tmp_path, *WORDS, "sweep.engine=dask", "sweep.workers=2", "sweep.chunk=15")
    assert (the_sweep(tmp_path) / "results.csv").read_bytes() == expected


def test_ray_leaves_a_cluster_alone_that_nobody_named(
    tmp_path: Path, expected: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray would join the cluster that RAY_ADDRESS names, and then refuse a number of workers."""
    needs("ray")
    for name, value in (("AUTH_MODE", "disabled"), ("USAGE_STATS_ENABLED", "0"), ("ADDRESS", "127.0.0.1:9")):
        monkeypatch.setenv(f"RAY_{name}", value)
    run(tmp_path, *WORDS, "sweep.engine=ray", "sweep.workers=2", "sweep.chunk=15")
    assert (the_sweep(tmp_path) / "results.csv").read_bytes() == expected


def test_a_cluster_that_does_not_answer_is_told_in_one_line(tmp_path: Path) -> None:
    needs("distributed")
    _, err = run(tmp_path, *WORDS, "sweep.engine=dask", "sweep.address='tcp://127.0.0.1:9'", patch=SHORT, code=2)
    assert err.count("\n") == 1
    assert "sweep.address=tcp://127.0.0.1:9: no Dask scheduler answers there" in err


def test_a_worker_of_another_version_is_refused() -> None:
    space, _ = expand(["head=1,2"], [])
    plan = make_plan(space, Sweep())
    assert elsewhere(plan, Job(0, [0])).computed == 1
    with pytest.raises(UserError, match="has a different version of attn_exp or NumPy"):
        elsewhere(replace(plan, version="another"), Job(0, [0]))
