"""The command line: what runs, what is printed, and with which exit code it ends."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import NoReturn

from attn_exp.commands import COMMANDS, run
from attn_exp.config.schema import Config
from attn_exp.errors import UserError

USAGE, INTERRUPTED, PIPE_CLOSED = 2, 130, 141
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def main() -> None:
    """Run the command line and exit: 0 done, 2 a user's mistake, 130 interrupted; other errors keep their traceback."""
    if Path(sys.argv[0]).name == "__main__.py":
        sys.argv[0] = "python -m attn_exp"
    gc.disable()  # a run is over before cycles matter; walking what was imported costs a tenth of it
    words = sys.argv[1:]
    try:
        if words and words[0] in COMMANDS:
            sys.exit(run(words))
        compose(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader, such as head, had enough; there is nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(PIPE_CLOSED)
    except UserError as error:
        complain(str(error))


def compose(words: list[str]) -> None:
    """Let Hydra compose what the words describe, and run it: once, or as a sweep."""
    from attn_exp.config.compose import compose_and_run  # noqa: PLC0415 - commands that read what is on disk start faster
    from attn_exp.config.hydra_errors import in_users_words  # noqa: PLC0415

    with in_users_words():
        compose_and_run(execute, execute_many, words)


def execute(config: Config, command: str) -> None:
    """Run one configuration and print what it found."""
    from attn_exp.runs import execution  # noqa: PLC0415 - `--help` and `--cfg` need none of it

    print(execution.run(config, command).text)
    gc.freeze()  # nor where it ends: before it exits, the interpreter would walk all of it once more


def execute_many(words: list[str], folders: list[str]) -> None:
    """Run the sweep that the words describe, print its results, and exit with 1 where points failed."""
    gc.enable()
    os.environ.update(dict.fromkeys(BLAS_THREADS, "1"))  # workers share the processors among themselves
    from attn_exp.sweep.sweep import sweep  # noqa: PLC0415 - after the BLAS was told; a run needs none of it

    code = sweep(words, folders)
    if code:
        sys.exit(code)


def complain(message: str) -> NoReturn:
    """Print one line on stderr and exit as for a user's mistake."""
    print(f"attn_exp: error: {message}", file=sys.stderr)
    sys.exit(USAGE)
