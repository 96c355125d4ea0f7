"""The command line: what runs, what is printed, and with which exit code it ends."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NoReturn

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from attn_exp.config import Config, UserError
from attn_exp.hydra_edge import compose_and_run
from attn_exp.hydra_errors import worded

USAGE, INTERRUPTED = 2, 130


def main() -> None:
    """Run the command line and exit: 0 done, 2 a user's mistake, 130 interrupted; other errors keep their traceback."""
    if Path(sys.argv[0]).name == "__main__.py":
        sys.argv[0] = "python -m attn_exp"
    try:
        compose_and_run(execute, sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except UserError as error:
        complain(str(error))
    except (HydraException, OmegaConfBaseException) as error:
        complain(worded(error))


def execute(config: Config, command: str) -> None:
    """Run one configuration and print what it found."""
    from attn_exp.session import run  # noqa: PLC0415 - `--help` and `--cfg` need none of it

    print(run(config, command).text)


def complain(message: str) -> NoReturn:
    """Print one line on stderr and exit as for a user's mistake."""
    print(f"attn_exp: error: {message}", file=sys.stderr)
    sys.exit(USAGE)
