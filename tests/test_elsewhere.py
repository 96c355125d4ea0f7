"""The commands of a student on another system: all pass, and write the bytes that they write here."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.elsewhere import environment
from tests.sweeps.command import HELD, alive, children, quickly, the_sweep, wait_until
from tests.sweeps.command import environment as here

sys.path.insert(0, str(ROOT / "tools"))
from outcomes import RUN_NAME, differences, outcome

MINE = """
import numpy as np
def attention(q, k, v):
    scores = q @ k.T
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v
"""

COMMANDS = (
    "head=2 scale=false",
    "report outputs/latest report.depth=all",
    "variant=[matrix,mine] variant.mine.form=mine.py:attention head=1 report=none",
    "check mine.py:attention --quick --json",
    "explain experiment=the_cat_sat answer.weights=[[0.0,0.77,0.23],[0.0,0.77,0.23],[0.0,0.86,0.14]]",
    "sheet experiment=the_cat_sat names=class.csv embeddings=random to=sheets",
    "grade sheets/answers sheets/key",
    "-m head=1,2 seed=range(0,12) sweep.workers=2 sweep.name=small",
    "status outputs/sweeps/small",
    "collect outputs/sweeps/small",
    "rerun outputs/latest --own-code",
    "compare outputs/latest outputs/latest",
    "index",
    "runs",
)
"""One after the other in one folder."""

PROGRAM = """
import sys
from attn_exp.cli import main
open("started", "a").write("once ")
main()
"""
"""A program that guards nothing: who runs it again starts it all again."""

OBEY = """
import contextlib, io, json, sys
from attn_exp import cli
class Kept(io.BytesIO):
    def close(self):
        "Stay open to be read, whoever closes the stream that writes here."
if __name__ == "__main__":
    told = []
    for words in json.loads(sys.argv[1]):
        sys.argv = ["attn-exp", *words.split(" ")]
        written = [Kept(), Kept()]
        streams = [io.TextIOWrapper(one, encoding="cp1252") for one in written]
        code = 0
        with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
            try:
                cli.main()
            except SystemExit as stop:
                code = stop.code
            for stream in (sys.stdout, sys.stderr):  # the command line may have put its own in their place
                stream.flush()
        said = [one.getvalue().decode("cp1252") for one in written]
        told.append([words, code, *said])
    print(json.dumps(told))
"""


def obeyed(folder: Path, variables: dict[str, str]) -> dict[str, bytes]:
    """Obey all commands in a process, and return what they said and wrote."""
    folder.mkdir()
    (folder / "mine.py").write_text(MINE, encoding="utf-8")
    (folder / "class.csv").write_text("name\nAnna\nanna\naux\nJörg\nCon.\n", encoding="utf-8")
    (folder / "obey.py").write_text(OBEY, encoding="utf-8")
    command = [sys.executable, "obey.py", json.dumps(COMMANDS)]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    said = json.loads(done.stdout)
    assert [code for _, code, _, _ in said] == [0, 0, 0, 1, 1, *[0] * 9], said
    assert not any("Traceback" in err for _, _, _, err in said), said
    text = "".join(f"{words}\n{out}\n{err}\n" for words, _, out, err in said)
    text = re.sub(r'"seconds": [0-9.e-]+', '"seconds": TIME', text)
    told = {"code": 0, "stdout": text, "stderr": "", "paths": {str(folder): "HERE"}, "there": []}
    found = outcome(told, folder, pages=False)
    pages = {name: re.sub(RUN_NAME.pattern.encode(), b"RUN", page) for name, page in found.items() if ".html" in name}
    return found | pages


@pytest.mark.long
def test_commands_pass_and_write_the_same_bytes(tmp_path: Path) -> None:
    before = obeyed(tmp_path / "here", here())
    after = obeyed(tmp_path / "elsewhere", environment(tmp_path))
    newest = max(path.name for path in (tmp_path / "elsewhere" / "outputs" / "runs").iterdir())
    assert after.pop("outputs/latest") == f"runs/{newest}\n".encode()  # a text, not a link
    assert before.pop("outputs/latest").startswith(b"runs/RUN")
    assert not list(differences(before, after))


@pytest.mark.long
def test_a_sweep_that_is_killed_leaves_no_worker_and_goes_on(tmp_path: Path) -> None:
    words = ("-m", "embeddings=random", "embeddings.tokens=16", "embeddings.d_model=8", "seed=range(80)",
             "variant=[matrix,multi_head]", "report=none", "sweep.chunk=4", "sweep.workers=2")  # fmt: skip
    folder, other = tmp_path / "elsewhere", tmp_path / "here"
    folder.mkdir()
    other.mkdir()
    quickly(other, *words)
    variables = environment(tmp_path)
    with (tmp_path / "sitecustomize.py").open("a", encoding="utf-8") as file:
        file.write(HELD)
    (folder / "program.py").write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "program.py", *words]

    def again() -> tuple[int, str]:
        done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, encoding="cp1252", check=False)
        return done.returncode, done.stderr

    with subprocess.Popen(command, cwd=folder, env=variables, stderr=subprocess.DEVNULL) as driver:
        wait_until(lambda: len(list(folder.glob("outputs/sweeps/*/parts/*.csv"))) == 14)  # seven fours each
        code, said = again()
        assert (code, f"process {driver.pid} on " in said, said.count("\n")) == (2, True, 1), said
        workers = children(driver.pid)
        assert len(workers) >= 2
        driver.kill()
    wait_until(lambda: not any(map(alive, workers)), 10)
    (folder / "go").touch()
    code, said = again()
    assert (code, said.splitlines()[-1].endswith("0 failed, 56 cached")) == (0, True), said
    tables = [(the_sweep(place) / "results.csv").read_bytes() for place in (folder, other)]
    assert tables[0] == tables[1]
    assert sorted(path.name for path in the_sweep(folder).glob("*lock*")) == ["lock"]
    assert (folder / "started").read_text(encoding="utf-8") == "once " * 3
