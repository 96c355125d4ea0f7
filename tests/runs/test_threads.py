"""The BLAS's own threads: asleep where a run is small, and as they were after it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from threadpoolctl import ThreadpoolController

from attn_exp.runs import execution
from tests.compose import config


@pytest.fixture
def blas() -> Iterator[ThreadpoolController]:
    controller = ThreadpoolController().select(user_api="blas")
    with controller.limit(limits=2):
        yield controller


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ([], 2),  # three tokens: products of theirs wake nobody
        (["embeddings=random", "embeddings.tokens=128"], 1),
        (["embeddings=random", "embeddings.tokens=4096"], 2),
        (["model=bert", f"model.text={'the cat sat on the mat ' * 20}"], 1),
        (["model=bert", f"model.tokens={[7] * 100}"], 1),
        (["model=bert", f"model.tokens={[7] * 600}"], 2),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_run_of_some_hundred_tokens_wakes_no_thread(blas: ThreadpoolController, words: list[str], count: int) -> None:
    with execution.blas_asleep(config(*words)):
        assert {library["num_threads"] for library in blas.info()} == {count}
    assert {library["num_threads"] for library in blas.info()} == {2}


@pytest.mark.long
@pytest.mark.parametrize(("said", "kept"), [({}, "16"), ({"OPENBLAS_THREAD_TIMEOUT": "20"}, "20")])
def test_threads_without_work_sleep_soon_unless_the_user_says_otherwise(
    said: dict[str, str], kept: str, tmp_path: Path
) -> None:
    program = "import os, sys; sys.argv[1:] = ['--version']; from attn_exp import cli; cli.main()"
    program += "; print(os.environ['OPENBLAS_THREAD_TIMEOUT'])"
    silent = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS")}
    printed = subprocess.run(
        [sys.executable, "-c", program],
        env={**silent, **said},
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert printed.split()[-1] == kept
