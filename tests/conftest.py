"""How tests run: with the same examples each time, and quickly unless all of them are asked for.

A first `pytest` leaves out tests marked `long`, most cases of large families, and every test that needs PyTorch, JAX,
Keras or Transformers; `pytest --all` leaves out nothing, as in CI. A test that starts a process or a browser must be
marked: a first run fails where one does so unmarked. `--all` ends with the tests that make a first run slow.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from attn_exp.diagnosis.asking import libraries
from attn_exp.diagnosis.recipes import combinations
from tests.hurry import naming_little
from tests.report import tab

os.environ.setdefault("OPENBLAS_NUM_THREADS", str(os.cpu_count() or 1))
os.environ.setdefault("OMP_NUM_THREADS", "1")  # PyTorch's threads wait for each other 20 times as long as they work

for name, examples in (("first", 20), ("all", 60)):
    settings.register_profile(name, derandomize=True, deadline=None, max_examples=examples, print_blob=False)
settings.load_profile("first")

SELDOM = (10_000, 20, 50)
"""After how many new objects, and rounds, cycles are looked for: libraries hold a million objects, and never let go."""
HEAVY = ("jax", "keras", "torch", "transformers")
"""Libraries that a first run does not find, installed or not: to import one takes seconds in each process."""
CASES = 2
"""How many cases of one test a first run keeps, spread evenly over them."""
MUCH = 0.4
"""Seconds of processor time above which a test belongs to the long ones."""
SLOWER = 1.5
"""So many times as long as on a quick machine may a check take before it leaves anything out."""
OWN = ("python", "bash", "sh")
"""How tests start commands; libraries run others to look something up, such as fonts."""
STARTED = pytest.StashKey[float]()


class LightFinder(PathFinder):
    """Finds modules as Python does, but for large libraries, as if they were not installed."""

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return None if fullname in HEAVY else super().find_spec(fullname, path, target)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--all`."""
    parser.addoption("--all", action="store_true", help="run the long tests as well")
    parser.addoption(
        "--passed", type=Path, help="with --all: leave out the tests in this file; else: write those that passed"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Try more examples where all tests run, hide large libraries where not, and hear Ctrl-C in the background too.

    Shells have what they start in the background ignore it; tests send it to commands, which inherit that.
    """
    settings.load_profile("all" if config.getoption("--all") else "first")
    if not config.getoption("--all"):
        sys.meta_path[:] = [LightFinder if finder is PathFinder else finder for finder in sys.meta_path]
    gc.set_threshold(*SELDOM)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)  # after -k and -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep what a first run runs: tests that are not marked `long`, and a few cases of each."""
    kept = select_first_run(items)
    if config.getoption("--all"):
        for item in kept:
            item.user_properties.append(("first", True))
        passed = config.getoption("--passed")
        names = set(passed.read_text(encoding="utf-8").splitlines()) if passed else set[str]()
        done = {item for item in items if item.nodeid in names and not is_property(item)}
        config.hook.pytest_deselected(items=list(done))
        items[:] = [item for item in items if item not in done]
        return
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def is_property(item: pytest.Item) -> bool:
    """Return whether Hypothesis runs a test, which tries more examples with `--all`."""
    return bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))


def select_first_run(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return the tests of a first run: of each that is marked neither `long` nor `full_search` up to `CASES` cases, the
    first and the last among them."""
    families = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if not (item.get_closest_marker("long") or item.get_closest_marker("full_search")):
            families[item.nodeid.partition("[")[0]].append(item)
    return {
        family[place * (len(family) - 1) // max(CASES - 1, 1)] if len(family) > CASES else family[place]
        for family in families.values()
        for place in range(min(CASES, len(family)))
    }


@pytest.fixture(autouse=True)
def processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test of a first run that starts a process."""
    if not request.config.getoption("--all") and not request.node.get_closest_marker("long"):
        start = subprocess.Popen.__init__

        def refuse(*given: Any, **named: Any) -> None:
            pytest.fail("this test starts a process: mark it `long`, so that a first pytest stays quick")

        def refuse_own_command(process: Any, command: Any, *given: Any, **named: Any) -> None:
            first = command[0] if isinstance(command, list | tuple) else command
            if Path(str(first)).name.startswith(OWN):
                refuse()
            start(process, command, *given, **named)

        monkeypatch.setattr(subprocess.Popen, "__init__", refuse_own_command)
        monkeypatch.setattr(os, "fork", refuse)
        monkeypatch.setattr(BaseProcess, "start", refuse)
        monkeypatch.setattr(tab.Browser, "tell", refuse)


@pytest.fixture(scope="session", autouse=True)
def browser() -> Iterator[None]:
    """End the browser that tests share."""
    yield
    tab.end()


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Hydra find no handlers of others: it closes all that it finds, and absl's closes pytest's stderr with it."""
    monkeypatch.setattr(logging, "_handlerList", list[Any]())


@pytest.fixture(autouse=True)
def pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a check ask on a slow machine what it asks on a quick one."""
    monkeypatch.setattr(combinations, "MAX_SECONDS", SLOWER * combinations.MAX_SECONDS)


@pytest.fixture(autouse=True)
def short_search(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let checks try no several mistakes at once, unless a test is marked `full_search`."""
    with nullcontext() if request.node.get_closest_marker("full_search") else naming_little():
        yield


@pytest.fixture(autouse=True)
def without_others_jax(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a check of a file that says nothing of JAX know nothing of it, as in a process of its own.

    What other tests have loaded here would be tried with each function that is wrong, and takes longer than all else.
    """
    if not speaks_of_jax(request.path):
        others = tuple(name for name in libraries.LIBRARIES if name != "jax")
        monkeypatch.setattr(libraries, "LIBRARIES", others)


@cache
def speaks_of_jax(path: Path) -> bool:
    """Say whether a file of tests names JAX, or a library that computes with it."""
    text = path.read_text(encoding="utf-8").lower()
    return any(name in text for name in ("jax", "flax", "haiku", "equinox"))


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """Let cycles be collected again: the command line leaves that off, as its process ends with it."""
    yield
    if not gc.isenabled():
        gc.enable()
        gc.unfreeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note when a test starts."""
    item.stash[STARTED] = time.process_time()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Add to the last report of a test what it took."""
    report = yield
    if report.when == "teardown" and STARTED in item.stash:
        report.user_properties.append(("processor", time.process_time() - item.stash[STARTED]))
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Write what passed, where that is asked for, and after `--all` name the tests that make a first run slow."""
    if not config.getoption("--all"):
        if passed := config.getoption("--passed"):
            names = sorted(report.nodeid for report in terminalreporter.stats.get("passed", ()))
            passed.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
        return
    ended = [report for reports in terminalreporter.stats.values() for report in reports if hasattr(report, "when")]
    rows = {report.nodeid: dict(report.user_properties) for report in ended if report.when == "teardown"}
    first = {name: row.get("processor", 0.0) for name, row in rows.items() if "first" in row}
    terminalreporter.write_line(f"a first pytest: {len(first)} tests, {sum(first.values()):.0f} s of processor time")
    for name in sorted(first, key=lambda name: -first[name]):
        if first[name] > MUCH:
            terminalreporter.write_line(f"  {first[name]:.1f} s: {name}; mark it `long` or make it faster")
