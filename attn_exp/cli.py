"""The command line: dispatch, output and exit codes.

- `main` reads `sys.argv`, and turns errors into messages and exit codes.
- `obey` loads the `--with` files.
- `dispatch` calls a subcommand (`check`, `report`, ...), or prints the version, or passes settings on.
- `run_or_sweep` starts a run or a sweep with these settings.
"""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pkgutil import resolve_name
from typing import Any, NamedTuple

import attn_exp
from attn_exp import processes
from attn_exp.errors import UserError, brief, out_of_memory, printable, unknown
from attn_exp.own_code import split_files

# exit codes: success, a disagreement or failed points, a user error, and a closed pipe (128 + SIGPIPE)
DONE, FAILED, USAGE, PIPE_CLOSED = 0, 1, 2, 141
# environment variables that limit the threads of BLAS libraries
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
SHORT_SPIN = ("OPENBLAS_THREAD_TIMEOUT", "16")
"""Let idle OpenBLAS threads spin for 2^16 processor cycles before they sleep. With the default of 2^28, an idle thread
wastes a tenth of a second at the start of every run and after every product."""
LONGEST_MESSAGE = 280  # maximum length of an error message


def main() -> None:
    """Run the command line and exit: 0 on success, 2 for a user error, 128 + n after signal n; bugs propagate."""
    try:
        signal.signal(signal.SIGTERM, processes.stop)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        os.environ.setdefault(*SHORT_SPIN)
        gc.disable()  # a run is too short to need it, and scanning all imported objects takes a tenth of its time
        code = obey(sys.argv[1:])
        gc.freeze()  # otherwise the interpreter would scan all objects once more before it exits
    except KeyboardInterrupt as stopped:
        print("attn_exp: interrupted before it was finished", file=sys.stderr)
        code = processes.exit_code(stopped)
    except BrokenPipeError:  # the reader, such as `head`, closed the pipe
        discard_output()
        code = PIPE_CLOSED
    except (UserError, MemoryError, RuntimeError, OSError) as error:
        reported = out_of_memory(error) or error
        if isinstance(reported, RuntimeError):
            raise
        if isinstance(reported, OSError) and reported.filename is None:  # stdout may be on a full disk
            discard_output()
        message = brief(printable(" ".join(str(reported).split("\n"))), LONGEST_MESSAGE)
        print(f"attn_exp: error: {message}", file=sys.stderr)
        code = USAGE
    if code:
        sys.exit(code)


def discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def obey(words: Sequence[str]) -> int:
    """Run a command line, with the members that its `--with` files define, and return the exit code."""
    files, rest = split_files(words)
    if rest[:1] == ["check"]:  # `check` imports user code only in its subprocess
        return dispatch([*rest, *(f"--with={file}" for file in files)])
    with load_members(files):
        return dispatch(rest)


def load_members(files: Sequence[str]) -> AbstractContextManager[None]:
    return import_object("plugins:load_members")(files) if files else nullcontext()


def check_in_child(words: Sequence[str], tell: Callable[[Any], None]) -> Any:
    """Run `check` in its subprocess, where the user's function is imported and called."""
    gc.disable()
    files, rest = split_files(words)
    if files:
        tell({"doing": f"while {', '.join(files)} was imported"})
    with load_members(files):
        reply = import_object("diagnosis.command:checked")(rest, tell)
    gc.freeze()
    return reply


def import_object(target: str) -> Any:
    """Import `module:name` of this package, so that a command loads only the modules it needs."""
    return resolve_name(f"attn_exp.{target}")


def dispatch(words: Sequence[str]) -> int:
    if words and words[0] in COMMANDS:
        return run_command(COMMANDS[words[0]], words)
    if words and not set(words[0]) & set("=~-+"):
        raise UserError(f"{unknown(words[0], list(COMMANDS), 'command')}; settings are written key=value")
    return print_text(f"attn-exp {attn_exp.__version__}") if "--version" in words else run_or_sweep(words)


def run_or_sweep(words: Sequence[str]) -> int:
    """Execute a run or a sweep (`-m`), or print the help (`--help`) or the settings (`--cfg`)."""
    from attn_exp.config import command_line  # noqa: PLC0415 - commands that only read stored results do not need Hydra

    match command_line.parse_command_line(words):
        case command_line.SingleRun(config, repeat):
            outcome = import_object("runs.execution:run")(config, repeat)
            print_text(outcome.text)
            return FAILED if config.strict and not outcome.agrees else DONE
        case command_line.SweepRun(words, folders):
            gc.enable()
            os.environ.update(dict.fromkeys(BLAS_THREADS, "1"))  # the workers already use all cores
            outcome = import_object("sweeps.sweep:sweep")(words, folders)
            print_text(outcome.text)
            return int(outcome.code)
        case command_line.Help(folders):
            usages = [f"{command.usage}\n      {command.meaning}" for command in COMMANDS.values()]
            print_text(import_object("config.command_line:format_help")(folders, list_member_choices(), usages))
        case command_line.Output(text):
            print_text(text)
    return DONE


def list_member_choices() -> Mapping[str, Sequence[str]]:
    """Return the choices of each setting whose options are implemented in Python, such as `normalizer`."""
    return {
        "normalizer": import_object("rules:names")("normalizer"),
        "convention": [name for name in import_object("experiment.library_conventions:CONVENTIONS") if name != "none"],
        "check": import_object("experiment.checks:NAMES"),
        "engine": import_object("sweeps.engines:NAMES"),
        "generator": tuple(import_object("problem.generators:GENERATORS")),
    }


def print_text(text: str) -> int:
    """Print a string with its control characters escaped, or nothing if it is empty; return 0."""
    print(printable(text), end="\n" if text else "", flush=True)
    return DONE


class Command(NamedTuple):
    """A subcommand of `attn-exp`.

    - `target`: the `module:function` to call. It returns the text to print, or a pair of that text and the exit code,
      where True stands for 0 and False for 1.
    - `least`, `most`: how many arguments the command takes.
    - `usage`, `meaning`: what `--help` prints: the command's name and arguments, and what it does.
    """

    target: str
    least: int
    most: int
    usage: str
    meaning: str


def run_command(command: Command, words: Sequence[str]) -> int:
    """Run a subcommand, print its output and return the exit code.

    Raises:
        UserError: the command was given too few or too many arguments, or it failed.
    """
    rest = words[1:]
    if list(rest) in (["-h"], ["--help"]):
        return print_text(f"attn-exp {command.usage}\n  {command.meaning}")
    if not command.least <= len(rest) <= command.most:
        raise UserError(f"attn-exp {' '.join(words)}: expected attn-exp {command.usage}")
    reply = import_object(command.target)(rest)
    text, code = reply if isinstance(reply, tuple) else (reply, DONE)
    print_text(text)
    return int(not code) if isinstance(code, bool) else code


MANY = 99  # maximum number of arguments of a command that takes any number of settings or folders
COMMANDS = {
    "check": Command(
        "diagnosis.in_child:checked", 1, MANY,
        "check FILE.py[:FUNCTION] [--against OTHER] [SETTINGS] [ignore=[ARGUMENT]] [timeout=60] [-v] [--quick] "
        "[--json]",
        "is this attention, and if not, which mistake is it?",
    ),
    "explain": Command(
        "diagnosis.command:explained", 1, MANY, "explain [SETTINGS] answer.STAGE=FILE [--json]",
        "are these numbers right, and if not, why?",
    ),
    "new": Command(
        "config.new:write", 1, 3, "new [DIR/]NAME [--config-dir DIR]", "create a YAML file for your own numbers"
    ),
    "open": Command(
        "runs.folders:open_newest", 0, 1, "open [DIR]", "open the newest report in a browser, or print its path"
    ),
    "report": Command(
        "sweeps.stored:render_again", 1, 10, "report DIR [report.depth=reading] [figures.only=weights]",
        "redraw a run's report from its results",
    ),
    "index": Command(
        "runs.folders:rebuild_named_index", 0, 1, "index [DIR]",
        "rebuild the page of all runs and sweeps under a folder (outputs)",
    ),
    "runs": Command(
        "sweeps.stored:list_runs", 0, MANY, "runs [DIR] [head=2 mask=causal] [--json | --csv]",
        "list runs and sweeps in the terminal, or as JSON or CSV",
    ),
    "sheet": Command(
        "runs.sheets:write_sheets", 1, MANY,
        "sheet SETTINGS [names=class.csv] [stages=[scores,weights]] [digits=2] [transposed=true] [exam=true] [to=DIR]",
        "write a worksheet to fill in by hand, and its key",
    ),
    "grade": Command(
        "runs.grades:grade_answers", 2, 3, "grade ANSWERS KEYS [points=scores:6,weights:9]",
        "grade filled-in sheets: right, a slip, or the mistake by name",
    ),
    "status": Command("sweeps.swept:show_status", 1, 1, "status DIR", "show the status of a sweep from its files"),
    "collect": Command(
        "sweeps.swept:collect", 1, 1, "collect DIR", "rebuild a sweep's table and report from its parts"
    ),
    "plot": Command(
        "sweeps.swept:plot", 3, 10, "plot DIR x=SETTING y=METRIC [by=SETTING] [figures.format=pdf]",
        "plot a metric of a sweep against a setting",
    ),
    "compare": Command(
        "sweeps.compare:compare", 2, 4, "compare DIR DIR [--exit-code] [report.depth=reading]",
        "compare two runs or two sweeps: what differs, and from which stage",
    ),
    "rerun": Command(
        "sweeps.stored:rerun", 1, 3, "rerun DIR [POINT] [--own-code]", "repeat a run, or run one point of a sweep"
    ),
}  # fmt: skip
"""The subcommands of `attn-exp`. To add one, write a function in its package and an entry here."""
