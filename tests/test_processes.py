"""Subprocesses and workers: answers come back, a death is told, and none outlives its time or its parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from attn_exp import processes
from attn_exp.errors import FaultError, UserError
from attn_exp.processes import Child, NoAnswerError
from tests import ROOT, deeds

pytestmark = pytest.mark.long  # it starts processes, browsers or other libraries, or takes seconds

POSIX = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
ECHO, BEHAVE = (f"{deeds.__name__}:{name}" for name in ("echo", "behave"))


def test_an_answer_comes_back_and_one_child_answers_several_times() -> None:
    heard: list[str] = []
    with Child(ECHO) as child:
        first = child.ask({"text": "ö\udcff"}, 20, heard.append)
        assert first[:2] == [{"text": "ö\udcff"}, sys.argv[0]]
        assert child.ask([1.5], 20) == [[1.5], *first[1:]]
        assert first[2] == child.process.pid != os.getpid()
    assert heard == ["thinking"]
    assert child.process.returncode == 0


@pytest.mark.parametrize(
    ("argument", "how"),
    [
        ("exit", "exit code 3"),
        ("leave", "SystemExit: 0"),
        pytest.param("crash", "SIGSEGV", marks=POSIX),
        pytest.param("give up", "SIGABRT", marks=POSIX),
        ("wait", "it did not finish within 0.5 seconds"),
        ("hold on", "it did not finish within 0.5 seconds"),
        ("begin and wait", "it did not finish within 0.5 seconds"),
    ],
)
def test_how_it_ended_is_told(argument: str, how: str) -> None:
    with Child(BEHAVE) as child:
        assert child.ask("", 20) == "an answer"  # so that what it imports takes none of the time
        start = time.monotonic()
        with pytest.raises(NoAnswerError) as ended:
            before = 600.0 if "begin" in argument else 0.0  # the clock starts when it says that it begins
            child.ask(argument, 0.5 if "within" in how else 20, lambda said: said == "begun", before)
    assert str(ended.value).startswith(how)
    assert ended.value.late == ("within" in how)
    assert time.monotonic() - start < 300  # and not the 600 seconds that it sleeps
    assert child.process.poll() is not None


def test_a_refusal_is_a_refusal_here() -> None:
    with Child(BEHAVE) as child, pytest.raises(UserError, match="such words are refused"):
        child.ask("refuse", 20)


def test_an_error_of_ours_there_is_one_here_and_says_its_place() -> None:
    with Child(BEHAVE) as child:
        said = r"internal error of attn_exp: KeyError: 'no such deed', processes\.py line \d+"
        with pytest.raises(FaultError, match=said):
            child.ask("no such deed", 20)
        with pytest.raises(FaultError, match="TypeError: Object of type object is not JSON"):
            child.ask("unwritten", 20)
        assert child.ask("", 20) == "an answer"
    with Child(f"{BEHAVE}_not") as child, pytest.raises(FaultError, match="AttributeError: module"):
        child.ask("", 20)


def test_what_is_printed_there_is_no_answer_and_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with Child(BEHAVE) as child:
        assert child.ask("print", 20) == ""
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err == 'printed\nwritten\n{"answer": "forged"}\n'
    with Child(BEHAVE, quiet=True) as child:
        assert child.ask("print", 20) == ""
    assert capfd.readouterr().err == ""


PARENT = """
import json, os, signal, sys
from attn_exp.processes import Child
child = Child("tests.deeds:behave")
child.ask("", 20)
print(json.dumps(child.process.pid), flush=True)
child.ask({argument!r}, {seconds})
"""


def test_printing_there_does_not_fail_if_stderr_is_closed(tmp_path: Path) -> None:
    code = f"import os; os.close(2){PARENT.format(argument='print', seconds=20)}"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)


@POSIX
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_its_parent(number: signal.Signals, tmp_path: Path) -> None:
    code = PARENT.format(argument="wait", seconds=600)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=tmp_path, env=environment
    ) as parent:
        assert parent.stdout is not None
        child = json.loads(parent.stdout.readline())
        parent.send_signal(number)
        try:
            parent.wait(300)
        finally:
            parent.kill()
    end = time.monotonic() + 300
    while runs(child) and time.monotonic() < end:
        time.sleep(0.02)
    assert not runs(child)


def runs(process: int) -> bool:
    """Say whether a process runs."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{process}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


def doubled(number: int) -> tuple[int, int]:
    if number < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return number, 2 * number


def test_every_job_comes_back_and_a_death_costs_its_own_alone() -> None:
    ended = dict[int, Any]()
    with closing(processes.Pool(doubled, 2, lambda job, reason: (job, reason))) as pool:
        for job in (3, -1, 0, 5):
            pool.submit(job)
        while len(ended) < 4:
            ended |= pool.finished(None)
    assert ended == {3: 6, -1: "its worker was killed by SIGKILL", 0: 0, 5: 10}


OWNER = """
import json, os, time
from attn_exp.processes import Pool
def wait(name):
    open(name, "w").close()
    time.sleep(60)
if __name__ == "__main__":
    pool = Pool(wait, 2, None)
    for name in ("1", "2"):
        pool.submit(name)
    while not (os.path.exists("1") and os.path.exists("2")):
        time.sleep(0.01)
    print(json.dumps([process.pid for process in pool.processes.values()]), flush=True)
    time.sleep(60)
"""


def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(OWNER)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "parent.py"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        workers = json.loads(process.stdout.readline())
        process.kill()
        assert process.stdout.read() == ""  # it ends when no worker holds the other end
    assert len(workers) == 2
