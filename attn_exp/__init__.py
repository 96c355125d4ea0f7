"""Run several variants of attention on one input, check each against a reference, and compare them."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # nothing slow is imported here, so that `python -m attn_exp` handles Ctrl-C from its first line
if TYPE_CHECKING:
    from typing import Any

    from attn_exp.api import assert_attention, check, compare, explain, load, run, sheet, sweep
    from attn_exp.errors import NotVerifiedError, UserError, WrongAttentionError
    from attn_exp.experiment.verdict import Verdict
    from attn_exp.forms._blocks.operands import keep_memory
    from attn_exp.forms._operator import Traced, attention, trace
    from attn_exp.plugins import register
    from attn_exp.rules.positions.rope import rotary_embedding
    from attn_exp.runs.execution import Result

    __version__: str

__all__ = [
    "NotVerifiedError",
    "Result",
    "Traced",
    "UserError",
    "Verdict",
    "WrongAttentionError",
    "__version__",
    "assert_attention",
    "attention",
    "check",
    "compare",
    "explain",
    "keep_memory",
    "load",
    "register",
    "rotary_embedding",
    "run",
    "sheet",
    "sweep",
    "trace",
]

HOMES = {
    "NotVerifiedError": "errors",
    "Result": "runs.execution",
    "Traced": "forms._operator",
    "UserError": "errors",
    "Verdict": "experiment.verdict",
    "WrongAttentionError": "errors",
    "assert_attention": "api",
    "attention": "forms._operator",
    "check": "api",
    "compare": "api",
    "explain": "api",
    "keep_memory": "forms._blocks.operands",
    "load": "api",
    "register": "plugins",
    "rotary_embedding": "rules.positions.rope",
    "run": "api",
    "sheet": "api",
    "sweep": "api",
    "trace": "forms._operator",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first access, or read the installed version; the command line needs neither."""
    if name == "__version__":
        metadata = import_module("importlib.metadata")
        try:
            return metadata.version("attn-exp")
        except metadata.PackageNotFoundError:
            return "0+checkout.not.installed"
    if name not in HOMES:
        raise AttributeError(f"module 'attn_exp' has no attribute {name!r}")
    return getattr(import_module(f"attn_exp.{HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
