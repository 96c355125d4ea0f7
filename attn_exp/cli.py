"""The command line: what runs, what is printed, and with which exit code it ends."""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from attn_exp import patience, stopping
from attn_exp.errors import UserError, brief, fault_line, is_fault, out_of_memory, printable, unknown

if TYPE_CHECKING:
    from attn_exp.config.schema import Config
    from attn_exp.config.spelling import Repeat

DONE, FAILED, USAGE, PIPE_CLOSED = 0, 1, 2, 141
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
SHORT_SPIN = ("OPENBLAS_THREAD_TIMEOUT", "16")
"""How long OpenBLAS's threads wait for work before they sleep: 2^16 turns of the processor, not 2^28, a tenth of a
second, which each of them burns at the start of every run and after every product."""
LONGEST_MESSAGE = 280


def main() -> None:
    """Run the command line and exit: 0 done, 2 a user's mistake, 128 and its number for a signal; errors are raised."""
    try:
        if Path(sys.argv[0]).name == "__main__.py":
            sys.argv[0] = "python -m attn_exp"
        make_streams_usable()
        os.environ.setdefault(*SHORT_SPIN)
        gc.disable()  # a run is over before cycles matter; walking what was imported costs a tenth of it
        with stopping.stoppable(), patience.saying_where():
            code = obey([decode_word(word) for word in sys.argv[1:]])
        if not gc.isenabled():  # nor where it ends: before it exits, the interpreter would walk all of it once more
            gc.freeze()
    except KeyboardInterrupt as stopped:
        print(patience.STOPPED, file=sys.stderr)
        sys.exit(stopping.exit_code(stopped))
    except BrokenPipeError:  # the reader, such as head, had enough; there is nobody to tell
        print_nowhere()
        sys.exit(PIPE_CLOSED)
    except (UserError, MemoryError, RuntimeError, OSError) as error:
        complain_of(error)
    if code:
        sys.exit(code)


def make_streams_usable() -> None:
    """Let stdout and stderr take every letter, and go nowhere where they are closed."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - open to the end
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def print_nowhere() -> None:
    """Drop what waits to be printed, which the interpreter would try once more as it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


def decode_word(word: str) -> str:
    """Return a word of the command line as UTF-8, whatever the locale: Python hands on other bytes as surrogates.

    Raises:
        UserError: bytes that are not UTF-8.
    """
    try:
        return os.fsencode(word).decode()
    except UnicodeError as error:
        raise UserError(f"{printable(word)}: not UTF-8; or set PYTHONUTF8=1") from error


def obey(words: Sequence[str]) -> int:
    """Do what the words say, with the members of the files that they name, and return the exit code."""
    if not any(word.partition("=")[0] == "--with" for word in words):
        return obeyed(words)
    from attn_exp.own_code import OPTION, split_files  # noqa: PLC0415 - few name any

    files, rest = split_files(words)
    if rest[:1] == ["check"]:  # which imports no code of others into this process
        return obeyed([*rest[:1], *(word for file in files for word in (OPTION, file)), *rest[1:]])
    with members_known(files):
        return obeyed(rest)


@contextmanager
def members_known(files: Sequence[str]) -> Iterator[None]:
    """Let the members of files be known, and say what is to be said of them."""
    from attn_exp import plugins  # noqa: PLC0415 - as above
    from attn_exp.own_code import error_line  # noqa: PLC0415

    with plugins.members_known(files) as notes:
        for note in notes:
            print(f"attn_exp: {printable(note)}", file=sys.stderr)
        try:
            yield
        except (UserError, OSError):
            raise
        except Exception as error:  # a metric, a figure or a check of theirs, where the rooms expect one of ours
            said = error_line(error)
            if is_fault(error):  # or one of ours, with which those of theirs have nothing to do
                said = f"a member of them is not what it should be, or {fault_line(error)}"
            raise UserError(f"{', '.join(files)}: {said}") from error


def check_in_child(words: Sequence[str], tell: Callable[[Any], None]) -> dict[str, Any]:
    """Do what `check` is for, in the child that it started: here the function is imported and asked."""
    gc.disable()
    from attn_exp.diagnosis import command as diagnosis  # noqa: PLC0415 - no other command needs it
    from attn_exp.own_code import split_files  # noqa: PLC0415

    files, rest = split_files(words)
    if files:
        tell({"doing": f"while {', '.join(files)} was imported"})
    with members_known(files) if files else nullcontext():
        reply = diagnosis.checked(rest, tell)
    gc.freeze()
    return reply


def obeyed(words: Sequence[str]) -> int:
    """Do what the words say, and return the exit code."""
    if words and words[0] in COMMANDS:
        return command(COMMANDS[words[0]], words)
    if words and not set(words[0]) & set("=~-+"):
        if words[0] in COMMANDS_ELSEWHERE:
            raise UserError(f"unknown command {words[0]!r}; did you mean {COMMANDS_ELSEWHERE[words[0]]}?")
        raise UserError(f"{unknown(words[0], list(COMMANDS), 'command')}; settings are written key=value")
    return say(f"attn-exp {version()}") if "--version" in words else answer(words)


def version() -> str:
    """Return the number of this version, or that it runs from a checkout, which has none."""
    from importlib import metadata  # noqa: PLC0415 - nothing else needs it

    try:
        return metadata.version("attn-exp")
    except metadata.PackageNotFoundError:
        return "from a checkout that is not installed"


def answer(words: Sequence[str]) -> int:
    """Do what settings and options ask for, and return the exit code."""
    from attn_exp.config import command_line  # noqa: PLC0415 - commands on what is on disk start without Hydra

    asked = command_line.understood(words)
    match asked:
        case command_line.Once(config, repeat):
            return execute(config, repeat)
        case command_line.ManyByHydra():
            from attn_exp.runs import execution  # noqa: PLC0415 - only these sweeps need it here

            return command_line.launch(asked, execution.check, execute)
        case command_line.Many(words, folders):
            return execute_many(words, folders)
        case command_line.Help(folders):
            from attn_exp.config import help_page  # noqa: PLC0415 - as above

            say(
                help_page.page(
                    folders, members(), [f"{command.usage}\n      {command.meaning}" for command in COMMANDS.values()]
                )
            )
        case command_line.Said(text):
            say(text)
    return DONE


def execute(config: Config, repeat: Repeat) -> int:
    """Run one configuration, print what it found, and return 1 where figures disagree that must not."""
    from attn_exp.problem.forward_pass import started  # noqa: PLC0415 - `--help` and `--cfg` need none of it

    with started(config.model.text) as under_way:
        from attn_exp.runs import execution  # noqa: PLC0415 - as above

        outcome = execution.run(config, repeat, under_way)
    say(outcome.text)
    return FAILED if config.strict and not outcome.agrees else DONE


def execute_many(words: Sequence[str], folders: Sequence[str]) -> int:
    """Run the sweep that the words describe, print its results, and return 1 where points failed."""
    gc.enable()
    os.environ.update(dict.fromkeys(BLAS_THREADS, "1"))  # workers share the processors among themselves
    from attn_exp.sweeps.sweep import sweep  # noqa: PLC0415 - after the BLAS was told; a run needs none of it

    outcome = sweep(words, folders)
    if outcome.text:
        say(outcome.text)
    return outcome.code


def members() -> Mapping[str, Sequence[str]]:
    """Return the names that some settings may have: those of files of the project."""
    from attn_exp.experiment import checks, library_conventions  # noqa: PLC0415 - `--help` alone asks
    from attn_exp.problem import generators  # noqa: PLC0415
    from attn_exp.rules import names  # noqa: PLC0415
    from attn_exp.sweeps import engines  # noqa: PLC0415

    conventions = tuple(name for name in library_conventions.CONVENTIONS if name != "none")
    chosen = {"normalizer": names("normalizer"), "convention": conventions, "check": checks.NAMES}
    return chosen | {"engine": engines.NAMES, "generator": tuple(generators.GENERATORS)}


def say(text: str) -> int:
    """Print a text, whatever characters the terminal can show.

    Raises:
        UserError: nobody can take it, as on a full disk.
    """
    try:
        print(printable(text), flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        print_nowhere()
        raise UserError(f"what it has to say cannot be printed ({error.strerror})") from error
    return DONE


def complain_of(error: Exception) -> NoReturn:
    """Print a user's mistake, or that memory has run out, and exit as for a mistake; raise any other error again."""
    known = error if isinstance(error, UserError) else out_of_memory(error)
    if known is None:
        raise error
    complain(str(known))


def complain(message: str, code: int = USAGE) -> NoReturn:
    """Print one line on stderr and exit, as for a user's mistake if nothing else is said."""
    line = brief(printable(" ".join(message.split("\n"))), LONGEST_MESSAGE)
    print(f"attn_exp: error: {line}", file=sys.stderr)
    sys.exit(code)


class Command(NamedTuple):
    """A command beside the run: where it lives, how many words it takes, and what its help says.

    `place` is `module:function`. The function takes the words, and returns what to print; or that, and the exit code,
    for which True stands for 0 and False for 1. `usage` is the command's name and its words, `meaning` what it is for.
    """

    place: str
    least: int
    most: int
    usage: str
    meaning: str


def command(named: Command, words: Sequence[str]) -> int:
    """Obey a command, print what it says and return the exit code.

    Raises:
        UserError: words that the command does not take, or a folder without what it needs.
    """
    rest = words[1:]
    if list(rest) in (["-h"], ["--help"]):
        return say(f"attn-exp {named.usage}\n  {named.meaning}")
    if not named.least <= len(rest) <= named.most:
        raise UserError(f"attn-exp {' '.join(words)}: expected attn-exp {named.usage}")
    reply = resolve_name(f"attn_exp.{named.place}")(rest)
    text, ended = reply if isinstance(reply, tuple) else (reply, DONE)
    if text:
        say(text)
    return int(not ended) if isinstance(ended, bool) else ended


MANY = 99
CHECK = "check FILE.py[:FUNCTION] [--against OTHER] [SETTINGS] [ignore=[ARGUMENT]] [timeout=60] [-v] [--quick] [--json]"
SHEET = "sheet SETTINGS [names=class.csv] [stages=[scores,weights]] [digits=2] [turned=true] [exam=true] [to=DIR]"
EXPLAIN = "explain [SETTINGS] answer.STAGE=FILE [--json]"
REPORT, RERUN = "report DIR [report.depth=reading] [figures.only=weights]", "rerun DIR [POINT] [--own-code]"
RUNS = "runs [DIR] [head=2 mask=causal] [--json | --csv]"
NEW, COMPARE = "new [DIR/]NAME [--config-dir DIR]", "compare DIR DIR [--exit-code] [report.depth=reading]"
PLOT = "plot DIR x=SETTING y=METRIC [by=SETTING] [figures.format=pdf]"
JUDGING = "diagnosis.command"

COMMANDS = {
    "check": Command(
        "diagnosis.in_child:checked", 1, MANY, CHECK, "is this attention, and if not, which mistake is it?"
    ),
    "explain": Command(f"{JUDGING}:explained", 1, MANY, EXPLAIN, "are these numbers right, and if not, why?"),
    "new": Command("config.new:write", 1, 3, NEW, "a YAML of your own numbers, ready to edit"),
    "open": Command("runs.reader:open_newest", 0, 1, "open [DIR]", "the newest report in a browser, or its path"),
    "report": Command("sweeps.rerun:render_again", 1, 10, REPORT, "a run's report again, from its results"),
    "index": Command(
        "runs.folders:rebuild_named_index",
        0,
        1,
        "index [DIR]",
        "a page of all runs and sweeps under a folder (outputs)",
    ),
    "runs": Command("sweeps.run_list:list_runs", 0, MANY, RUNS, "the same in the terminal, or a record of each"),
    "sheet": Command(
        "runs.classroom.sheets:write_sheets", 1, MANY, SHEET, "a worksheet to fill in by hand, and its key"
    ),
    "grade": Command(
        "runs.classroom.grades:grade_answers",
        2,
        3,
        "grade ANSWERS KEY [points=scores:6,weights:9]",
        "filled-in sheets: right, a slip, or the mistake by name",
    ),
    "status": Command("sweeps.collect:show_status", 1, 1, "status DIR", "where a sweep stands, from its files"),
    "collect": Command(
        "sweeps.collect:collect", 1, 1, "collect DIR", "a sweep's table and report again, from its parts"
    ),
    "plot": Command("sweeps.plot:plot", 3, 10, PLOT, "one figure of a sweep: a metric along a setting"),
    "compare": Command(
        "sweeps.versus.command:compare", 2, 4, COMPARE, "two runs or two sweeps: what differs, and from where on"
    ),
    "rerun": Command("sweeps.rerun:rerun", 1, 3, RERUN, "a run again, or a sweep's point as a run"),
}
"""What `attn-exp NAME` does. A new command is a function in its room, and its line here."""

COMMANDS_ELSEWHERE = {"list": "runs", "ls": "runs", "show": "open", "diff": "compare", "sweep": "-m"}
"""What other programs call a command, and what is written here."""
