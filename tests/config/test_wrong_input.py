"""Every mistake of a user gets one line in their own words, exit code 2, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from attn_exp import cli
from attn_exp.config.schema import Config, Figures, Matters, Sweep
from tests import ROOT
from tests.refusal import refused

COMMAND = [sys.executable, "-m", "attn_exp"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}
VECTORS = "embeddings=inline embeddings.vectors={}"

GROUPED = " ".join(
    ["embeddings=inline projections=none embeddings.q=[[1,2,3,4]]", "embeddings.k=[[1,2]] embeddings.v=[[1,2]]"]
)

NEW = sys.version_info >= (3, 14)
TOO_LONG = "unknown setting 'aaa" if NEW else "cannot read the settings: [Errno 36] File name too long"
"""What is said of a name that no file can have: from Python 3.14 on, such a file is simply not there."""

MISTAKES = [
    ("figures.format=gif", "unknown figures.format 'gif'; choose one of png, svg, pdf"),
    ("figures.format=[]", "figures.format=[]: expected at least one of png, svg, pdf"),
    ("mask=array mask.array.values=[[true],[true,false]]", "mask.array: mask values must be rows of equal length"),
    ("figures.width=100", "figures.width=100: expected a number from 3 to 20"),
    (
        "embeddings=random embeddings.memory=[a,b] embeddings.memory.d_model=4",
        "embeddings.memory=[a,b] conflicts with embeddings.memory.d_model=4; write embeddings.memory.tokens, ",
    ),
    ("head=3", "head=3 does not divide d_model=4; choose one of 1, 2, 4"),
    ("head=0", "head=0: expected a whole number of at least 1"),
    ("head=2.5", "head=2.5: expected a whole number of at least 1"),
    ("-m seed=1,2 sweep.matters.entropy=-1", "sweep.matters.entropy=-1: expected a number of at least 0"),
    ("seed=-1", "seed=-1: expected a whole number of at least 0"),
    ("heads=2", "unknown setting 'heads'; did you mean head? choose one of "),
    ("scale=maybe", "scale=maybe: expected true, false, or the multiplier as a number"),
    ("bias=1", "bias=1: expected true or false"),
    ("embeddings=the_cat_st", "unknown embeddings 'the_cat_st'; did you mean the_cat_sat? choose one of "),
    ("variant=[looped,nope]", "unknown variant 'nope'; did you mean looped? choose one of "),
    ("variant=[]", "variant=[] leaves nothing to compare; choose at least one"),
    ("head=2,4", "head=2,4: to run several values, sweep with -m head=2,4"),
    ("--head 2", "unknown option --head; settings take no dashes: write head=..."),
    ("--head=2", "unknown option --head=2; settings take no dashes: write head=2"),
    ("head= 2", "write key=value without spaces"),
    ("mistake=weights_transpose", "did you mean weights_transposed?"),
    ("variant.looped.fom=matrix", "unknown setting 'variant.looped.fom'; did you mean variant.looped.form?"),
    ("variant.looped.form=lopped", "did you mean looped?"),
    ("embeddings.d_model=5", "embeddings.d_model=5, but the vectors have 4 numbers"),
    ("projections=none", "projections=none"),
    (VECTORS.format("[[1,2],[3]]"), "embeddings.vectors is ragged: rows of 2, 1 numbers"),
    (VECTORS.format("[]"), "expected a list of rows, such as [[1,0],[0,1]]"),
    (VECTORS.format("[[]]"), "embeddings.vectors is empty"),
    (VECTORS.format("[[1,2],[3,four]]"), "embeddings.vectors: row 1 holds 'four', which is not a number"),
    (VECTORS.format("[[1,2],[3,nan]]"), "embeddings.vectors: row 1, column 1 holds nan; expected finite numbers"),
    (
        VECTORS.format("[[1,2],[3,4]]") + " embeddings.tokens=[a,b,c]",
        "embeddings.tokens names 3 tokens, but there are 2 vectors",
    ),
    ("embeddings=inline", "embeddings has nothing to start from"),
    (
        "embeddings=words embeddings.dimension=4",
        "unknown setting 'embeddings.dimension'; did you mean embeddings.d_model?",
    ),
    ("embeddings=inline embeddings.file=nowhere.npy", "embeddings.file=nowhere.npy: cannot be read"),
    ("--config-dir nowhere", "--config-dir nowhere: no such folder"),
    ("--config-dir mine variant=broken", "broken.yaml, line 2: "),
    (
        "--config-dir mine variant=latin",
        "latin.yaml: cannot be read ('utf-8' codec can't decode byte 0xe9 in position 3",
    ),
    ("--config-dir mine embeddings=list", "embeddings/list.yaml: expected settings, such as head: 2; got [1]"),
    ("output_dir=a_file/inside", "output_dir=a_file/inside"),
    ("output_dir=", "output_dir=: expected a folder"),
    (f"output_dir={'a' * 300}", "cannot be written to (File name too long)"),
    ("=2", "cannot read '=2'"),
    ("report=false", "report=false: expected the name of a choice, one of full, none, tables"),
    ("experiment=null", "experiment=null: expected the name of a choice"),
    ("variant=[1,2]", "variant=[1,2]: expected the name of a choice"),
    ("embeddings=[udl,the_cat_sat]", "embeddings takes one choice; to run several, sweep with -m embeddings=udl,the"),
    ("seed=range(1,3)", "to run several values, sweep with -m seed=range(1,3)"),
    ("+head=2", "head already has a value; write head=... without the +"),
    ("variant.looped=null", "variant.looped=null does not fit the settings: field 'variant.looped' is not Optional"),
    ("title=für", "quote other characters, as in key='välue'"),
    ("mask=causal mask.causal.x=1", "unknown setting 'mask.causal.x'; there are no choices"),
    ("embeddings.tokens=[a,null,c]", "embeddings.tokens=[a,null,c]: expected a list of words"),
    ("embeddings.tokens=1.5", "embeddings.tokens=1.5: expected a list of names, their number, or a file of names"),
    (VECTORS.format("[[1,null]]"), "row 0 holds null, which is not a number"),
    (VECTORS.format("[[1,2],null]"), "embeddings.vectors=[[1,2],null]: expected a list of rows"),
    (VECTORS.format("[[1e200,1],[1,1e200]]"), "the input is too large"),
    ("embeddings=inline embeddings.file=a_pickle.npy", "cannot be read (not a NumPy file of plain numbers)"),
    ("--config-dir", "expected one argument"),
    ("--cfg jobs", "invalid choice: 'jobs'"),
    ("causal=true", "unknown setting 'causal'; did you mean mask=causal?"),
    ("temperature=2", "unknown setting 'temperature'; did you mean scale?"),
    ("d_model=8", "unknown setting 'd_model'; did you mean embeddings.d_model?"),
    ("vectors[0][1]=3", "cannot read 'vectors[0][1]=3'; to set one number of an array, write embeddings.vectors.0.1=3"),
    ("projections.W_q=[[1]]", "did you mean +projections.given.W_q=[[...]]?"),
    ("projections.given=layer0.npz", "expected arrays by name, such as W_q: [[1]]"),
    ("published=5", "published=5: expected a list"),
    ("statu", "unknown command 'statu'; did you mean status?"),
    ("-m seed=range(0,5,0)", "expected range(start,stop,step) with finite numbers and a step that is not 0"),
    ("scale=1" + "0" * 400, "expected true, false, or the multiplier as a number"),
    ("mask=window mask.window.left=-2", "mask.window.left=-2: expected a whole number of keys, or -1 for no limit"),
    ("+projections.given.b_q=[1,2,3,4]", "projections: b_q given, but bias=false adds none; write bias=true"),
    (GROUPED + " +projections.given.W_o=[[1]]", "projections: W_o given, but the input is already projected; leave"),
    (GROUPED + " head=2 variant=matrix", "that divides head=1 (variant.NAME.head sets head for one variant)"),
    (
        "hydra/launcher=joblib",
        "hydra/launcher=joblib: choose where sweeps run with sweep.engine, such as process or dask; --help lists all",
    ),
    ("-m hydra/sweeper=optuna head=1,2", "hydra/sweeper=optuna: choose where sweeps run with sweep.engine"),
    ("-m hydra.launcher.n_jobs=2 head=1,2", "choose where sweeps run with sweep.engine"),
    ("--text=words", "unknown option --text=words; --help lists options and settings"),
    (f"check {'a' * 300}.py:f", "aaa.py: there is no such .py file"),
    ("hydra.run.dir=here", "choose another with output_dir=FOLDER"),
    ("hydra.job.chdir=true", "a run stays in the folder where it was started"),
    ("hydra.searchpath=[file://x]", "--config-dir FOLDER"),
    ("hydra.verbose=true", "there is no logging to configure"),
    ("hydra.job.name=x", "Hydra's own settings are not supported"),
    ("+experiment=the_cat_sat", "experiment already has a choice; write experiment=... without the +"),
    ("-m published.strict=true,false seed=0", "published.strict applies to the whole sweep and takes one value"),
    ("-m " + "a" * 300 + "=1,2", TOO_LONG),
    ("--config-dir " + "x" * 2000, "xxx: no such folder"),
    ("status " + "x" * 2000, "cannot be read (File name too long)"),
    ("status \0", "its manifest.json cannot be read"),
    ("rerun " + "x" * 2000 + " 0", "cannot be read (File name too long)"),
    ("--config-name other", "--config-name: the shipped YAML is the only primary config"),
    ("--experimental-rerun a_file", "--experimental-rerun: it would run code that a file names"),
    ("a" * 300 + "=1", TOO_LONG),
    ("--resolve", "--resolve needs --cfg"),
]


def lay_out(folder: Path) -> None:
    """Make the files and folders that the mistakes speak of."""
    (folder / "a_file").write_text("")
    (folder / "a_pickle.npy").write_text("no array")
    for path, text in (("variant/broken.yaml", "bad: [\n"), ("embeddings/list.yaml", "- 1\n"), ("latest/x", "")):
        (folder / "mine" / path).parent.mkdir(parents=True)
        (folder / "mine" / path).write_text(text)
    (folder / "mine/variant/latin.yaml").write_bytes("café:\n  form: matrix\n".encode("latin-1"))


def everything(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


@pytest.mark.parametrize(("words", "message"), MISTAKES, ids=[words for words, _ in MISTAKES])
def test_one_line_and_exit_code_2(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lay_out(tmp_path)
    before = everything(tmp_path)
    line = refused(words.split(" "), monkeypatch, capsys)
    assert len(line) <= 300
    assert message in line
    assert everything(tmp_path) == before


@pytest.mark.long
@pytest.mark.parametrize(("words", "code"), [("", 0), ("embeddings.vectors.0.0=9", 1)])
def test_printed_figures_that_must_agree_decide_the_exit_code(
    words: str, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first word of the document is made another: its figures disagree, which alone is no mistake of a user's."""
    monkeypatch.chdir(tmp_path)
    for strict, expected in (("published.strict=true", code), ("", 0)):
        asked = ["experiment=the_cat_sat", "report=none", *words.split(), *strict.split()]
        assert cli.obey(asked) == expected
    assert "published results agree" in capsys.readouterr().out


def test_an_error_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "run_or_sweep", broken)
    monkeypatch.setattr(sys, "argv", ["attn-exp"])
    with pytest.raises(ZeroDivisionError, match="ours"):
        cli.main()


def test_interrupt_exits_with_130(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "run_or_sweep", interrupted)
    monkeypatch.setattr(sys, "argv", ["attn-exp"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 130
    assert os.listdir(tmp_path) == []


@pytest.mark.long
def test_a_reader_that_has_enough_ends_the_command_quietly(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    told = subprocess.run(
        [*COMMAND, "--help"], check=False, cwd=tmp_path, env=ENVIRONMENT, stdout=writer, stderr=subprocess.PIPE
    )
    os.close(writer)
    assert (told.returncode, told.stderr) == (cli.PIPE_CLOSED, b"")


def test_options_may_stand_among_the_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["attn-exp", "head=4", "--cfg", "job", "seed=7"])
    cli.main()
    printed = capsys.readouterr().out
    assert "\nhead: 4\n" in printed
    assert "\nseed: 7\n" in printed


@pytest.mark.long
@pytest.mark.parametrize("kibibytes", [1, 60])
def test_a_disk_that_takes_no_more_gives_one_line_and_leaves_no_run(kibibytes: int, tmp_path: Path) -> None:
    """A limit on the size of files stops the tables, or the figures and the page."""
    limited = ["sh", "-c", f'ulimit -f {kibibytes * 2}; exec "$@"', "sh", *COMMAND]
    told = subprocess.run(limited, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert told.returncode == 2
    said = told.stderr.splitlines()[-1]  # where a run takes long, it says how far it is before
    assert said == "attn_exp: error: output_dir=outputs: cannot be written to (File too large)"
    assert os.listdir(tmp_path / "outputs") == ["runs"]
    assert os.listdir(tmp_path / "outputs" / "runs") == []


def test_help_has_a_line_for_every_setting(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["attn-exp", "--help"])
    cli.main()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.strip()]
    words = {line.split()[0].rstrip(":") for line in lines}
    commands = lines[lines.index("Other commands") + 1 : -1]
    assert [line.split()[0] for line in commands[::2]] == list(cli.COMMANDS)
    assert [line.strip() for line in commands[1::2]] == [command.meaning for command in cli.COMMANDS.values()]
    sections = {"sweep.matters": Matters, "sweep": Sweep, "figures": Figures}
    keys = {field.name for field in fields(Config)}
    keys |= {f"{name}.{field.name}" for name, section in sections.items() for field in fields(section)}
    keys -= set(sections)
    assert keys <= words


@pytest.mark.parametrize(
    "command",
    [pytest.param(["check", "mine.py"], marks=pytest.mark.long), ["sheet"], ["explain"], ["-m", "seed=0,1"]],
)
def test_settings_of_hydra_are_refused_by_every_command(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def attention(q, k, v):\n    return v\n", encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["attn-exp", *command, "hydra.verbose=true"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "hydra.verbose=true: there is no logging to configure" in capsys.readouterr().err
