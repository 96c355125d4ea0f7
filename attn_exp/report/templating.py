"""Fill templates, to get pages and Markdown. Like Python modules, templates are compiled once and cached."""

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
from attn_exp.report.pages import TEMPLATES, policy, scripts, styles, template_text


def templates(autoescape: bool, more_templates: Mapping[str, str] = MappingProxyType({})) -> Environment:
    """Return Jinja's environment for our templates; in it, an undefined variable is an error.

    `more_templates` has the text of further templates, by name.
    """
    environment = Environment(
        loader=ChoiceLoader([FileSystemLoader(TEMPLATES), DictLoader(more_templates)]),
        autoescape=autoescape,
        undefined=StrictUndefined,
        lstrip_blocks=True,
        finalize=escape_controls,
        bytecode_cache=Compiled(str(CACHE_FOLDER), CACHE_NAMES),
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
    """Return a page with inline style sheets and scripts, and with a policy that allows no others.

    `css` and `js` are the names of files in `templates/`. `more_css` is the text of another style sheet, and `more` has
    the text of further templates, by name.
    """
    style, script = styles(*map(template_text, css), more_css), scripts(*js) if js else ""
    environment = templates(autoescape=True, more_templates=more)
    environment.filters |= filters
    page = environment.get_template(template)
    return page.render(values, style=Markup(style), script=Markup(script), policy=policy(style, script))


def render_markdown(
    template: str,
    values: Mapping[str, Any],
    filters: Mapping[str, Callable[..., Any]] = MappingProxyType({}),
    more: Mapping[str, str] = MappingProxyType({}),
) -> str:
    environment = templates(autoescape=False, more_templates=more)
    environment.filters |= {"md": md, "fenced": fenced, "code": code, "piped": piped, **filters}
    text = environment.get_template(template).render(values)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def escape_controls(value: Any) -> Any:
    if isinstance(value, Markup):
        return Markup(printable(str(value)))
    return printable(value) if isinstance(value, str) else value


CACHE_FOLDER, CACHE_NAMES = (
    TEMPLATES / "__pycache__",
    f"%s-{jinja2.__version__}-{Path(__file__).stat().st_mtime_ns}.jinja",
)
"""The folder of compiled templates, and the pattern for the names of its files. A name includes the version of Jinja
and the time at which this file was changed, since a compiled template depends on both."""


class Compiled(FileSystemBytecodeCache):
    """A cache of compiled templates in a folder; if it is not writable, each run compiles the templates again."""

    def load_bytecode(self, bucket: Bucket) -> None:
        """Load a cached template; if its file is unreadable or incomplete, leave the bucket empty."""
        with suppress(OSError, EOFError, UnpicklingError):
            super().load_bytecode(bucket)

    def dump_bytecode(self, bucket: Bucket) -> None:
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                Path(self.directory).mkdir(exist_ok=True)
                super().dump_bytecode(bucket)


def piped(rows: Sequence[Sequence[str]], head: Sequence[str]) -> str:
    return pipe_cells([md(cell) for cell in head], [[md(cell) for cell in row] for row in rows])


def pipe_cells(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    separator = [":--", *("--:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, separator, *rows))


def fenced(text: str) -> str:
    """Return a code block in Markdown; its fence is longer than any row of backticks inside."""
    fence = backticks(text, least=3)
    return f"{fence}\n{text}\n{fence}"


def code(text: str) -> str:
    """Return inline code in Markdown; its delimiters are longer than any row of backticks inside."""
    fence, pad = backticks(text), " " if "`" in text else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def backticks(text: str, least: int = 1) -> str:
    return "`" * max([least, *(len(ticks) + 1 for ticks in re.findall("`+", text))])
