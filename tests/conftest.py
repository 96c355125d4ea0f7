"""How tests run: the same examples each time, however slow the machine; the long ones where they are asked for.

A first `pytest` leaves out tests marked `long`; `--all` runs them too, as `.ci/run` does, and says which of the others
take the most of a processor: those that make a first `pytest` slow, however busy the machine is.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import signal
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from attn_exp.diagnosis.asking.clock import PACE
from attn_exp.diagnosis.code import libraries
from tests.report import tab

os.environ.setdefault("OPENBLAS_NUM_THREADS", str(os.cpu_count() or 1))
os.environ.setdefault("OMP_NUM_THREADS", "1")  # PyTorch's threads wait for each other 20 times as long as they work

for name, examples in (("first", 20), ("all", 60)):
    settings.register_profile(name, derandomize=True, deadline=None, max_examples=examples, print_blob=False)
settings.load_profile("first")

SELDOM = (10_000, 20, 50)
"""After how many new objects, and rounds, cycles are looked for: libraries hold a million objects, and never let go."""
MUCH = 2.0
"""Seconds of a processor's time above which a test belongs to the long ones."""
SLOWER = 3.0
"""So many times as long as on a quick machine may a check take before it leaves anything out."""
LISTED = Path(__file__).with_name("long_cases.txt")
MANY = 30
"""Files of long tests that are named with what they take."""
MOST = 6000
"""With more cases than these, all tests were collected, and not those of some files."""
STARTED = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--all`."""
    parser.addoption("--all", action="store_true", help="run the long tests as well")


def pytest_configure(config: pytest.Config) -> None:
    """Try more examples of each property where all tests run, and hear Ctrl-C where a shell had it ignored.

    Shells have what they start in the background ignore it; tests send it to commands, which inherit that.
    """
    settings.load_profile("all" if config.getoption("--all") else "first")
    gc.set_threshold(*SELDOM)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long tests, unless all are asked for.

    They are marked, or listed in `long_cases.txt`: cases that took a third of a second or more when nothing else ran,
    beside others of their test, or of their file, that take less, and all that took over a second.
    """
    listed = set(LISTED.read_text(encoding="utf-8").splitlines())
    if config.getoption("--all"):
        complete = len(items) > MOST and "ATTN_EXP_CI" in os.environ  # elsewhere libraries may be missing
        gone = sorted(listed - {item.nodeid for item in items}) if complete else []
        if gone:
            raise pytest.UsageError(f"{LISTED.name} names {len(gone)} cases that are not there, such as {gone[0]}")
        return
    long = {item for item in items if item.get_closest_marker("long") or item.nodeid in listed}
    items[:] = [item for item in items if item not in long]
    config.hook.pytest_deselected(items=list(long))


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
    monkeypatch.setattr(PACE, "seconds", SLOWER)


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


def processor_time() -> float:
    """Return the seconds that processors have worked for this process and for those that it has started and ended.

    Browsers that tests share are left out: all that one has done counts where it ends, after a test that had no tab.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime + tab.of_children() - sum(tab.ENDED)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note when a test starts."""
    item.stash[STARTED] = processor_time()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Add to the last report of a test what it took."""
    report = yield
    if report.when == "teardown" and STARTED in item.stash:
        report.user_properties.append(("processor", processor_time() - item.stash[STARTED]))
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what a first `pytest` takes, and which of its tests take too much."""
    if not config.getoption("--all"):
        return
    ended = [report for reports in terminalreporter.stats.values() for report in reports if hasattr(report, "when")]
    listed = set(LISTED.read_text(encoding="utf-8").splitlines())
    last = [report for report in ended if report.when == "teardown"]
    every = {report.nodeid: dict(report.user_properties).get("processor", 0.0) for report in last}
    is_long = {report.nodeid for report in last if "long" in report.keywords or report.nodeid in listed}
    took = {name: seconds for name, seconds in every.items() if name not in is_long}
    of_files = Counter[str]()
    for name in is_long:
        of_files[name.partition("::")[0]] += every[name]
    most = ", ".join(f"{file} {seconds:.0f}" for file, seconds in of_files.most_common(MANY))
    whole = f"{sum(of_files.values()):.0f} s of a processor's time"
    terminalreporter.write_line(f"the long ones: {len(is_long)} tests, {whole}; most in {most}")
    terminalreporter.write_line(f"a first pytest: {len(took)} tests, {sum(took.values()):.0f} s of a processor's time")
    for name in sorted(took, key=lambda name: -took[name]):
        if took[name] > MUCH:
            terminalreporter.write_line(
                f"  {took[name]:.1f} s: {name}; over {MUCH:.0f} s, mark it long or make it cheaper"
            )
