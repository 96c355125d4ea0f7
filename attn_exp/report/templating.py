"""Templates, compiled once and kept, as Python keeps its modules; pages, and what Markdown is made of."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from pickle import UnpicklingError
from types import MappingProxyType
from typing import Any

import jinja2
from jinja2 import ChoiceLoader, DictLoader, Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup

from attn_exp.errors import printable
from attn_exp.report.escapes import kinds, md, minus
from attn_exp.report.inline import TEMPLATES, policy, scripts, styles, template_text


def templates(autoescape: bool, more: Mapping[str, str] = MappingProxyType({})) -> Environment:
    """Return the environment of the templates, with some more by their names; what they miss is an error."""
    environment = Environment(
        loader=ChoiceLoader([FileSystemLoader(TEMPLATES), DictLoader(more)]),
        autoescape=autoescape,
        undefined=StrictUndefined,
        lstrip_blocks=True,
        finalize=unobeyed,
        bytecode_cache=Compiled(str(KEPT[0]), KEPT[1]),
    )
    environment.filters |= {"kinds": kinds, "minus": minus}
    environment.globals |= {"depth": "", "data": None, "script": "", "title": ""}
    return environment


def render_page(
    template: str,
    values: Mapping[str, Any],
    css: Sequence[str] = (),
    js: Sequence[str] = (),
    *,
    more_css: str = "",
    filters: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
    more: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return a page with its style sheets and scripts in it, and the policy that allows them alone."""
    style, script = styles(*map(template_text, css), more_css), scripts(*js) if js else ""
    environment = templates(autoescape=True, more=more)
    environment.filters |= filters
    page = environment.get_template(template)
    return page.render(values, style=Markup(style), script=Markup(script), policy=policy(style, script))


def unobeyed(value: Any) -> Any:
    """Return what a template is about to write, with characters that a reader's device would obey as their numbers."""
    if isinstance(value, Markup):
        return Markup(printable(str(value)))
    return printable(value) if isinstance(value, str) else value


KEPT = TEMPLATES / "__pycache__", f"%s-{jinja2.__version__}-{Path(__file__).stat().st_mtime_ns}.jinja"
"""Where compiled templates are kept, as Python keeps its modules, and how their files are named: what a template
compiles to depends on Jinja and on the options in this file too."""


class Compiled(FileSystemBytecodeCache):
    """Compiled templates in a folder; compiled each time where that is forbidden."""

    def load_bytecode(self, bucket: Bucket) -> None:
        """Find a kept template; none where it cannot be read, or only in part."""
        try:
            super().load_bytecode(bucket)
        except (OSError, EOFError, UnpicklingError):
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep a compiled template for the next run."""
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                Path(self.directory).mkdir(exist_ok=True)
                super().dump_bytecode(bucket)


def tidy(text: str) -> str:
    """Return a text with one empty line where a template leaves several."""
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def piped(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, the first column to the left."""
    return pipe_cells([md(cell) for cell in head], [[md(cell) for cell in line] for line in lines])


def pipe_cells(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown already."""
    rule = [":--", *("--:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))


def fenced(text: str) -> str:
    """Return a block of code; its fence is longer than any run of backticks in it."""
    fence = "`" * max(3, 1 + longest_run(text))
    return f"{fence}\n{text}\n{fence}"


def code(text: str) -> str:
    """Return code within a line, fenced by more backticks than it holds in a row."""
    fence = "`" * (1 + longest_run(text))
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def longest_run(text: str) -> int:
    """Return how many backticks stand in a row at most."""
    return max((len(ticks) for ticks in re.findall("`+", text)), default=0)
