"""The style sheets and scripts of pages, which stand in the pages themselves, and the policy that allows them alone."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

from attn_exp.report import words

TEMPLATES = Path(__file__).with_name("templates")


def template_text(name: str) -> str:
    """Return a template, a style sheet or a script by the name of its file."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


def inline(*texts: str) -> str:
    """Return style sheets or scripts as they stand in their element, without what indents their lines."""
    return "\n".join(("", *(line.lstrip() for text in texts for line in text.splitlines()), ""))


MARKS = r"=>|===|!==|[<>=]=|&&|\|\||\?\?|[=?:,;{}()<>*]"
"""What needs no spaces around it in a script."""


def tight(script: str) -> str:
    """Return a script without remarks on lines of their own, and without spaces that only its writers need.

    Texts keep theirs, and so does a line that holds a template.
    """
    lines = (line.strip() for line in script.splitlines())
    code = (re.sub(r"(?<=[;{}\]]) // .*$", "", line) for line in lines if not re.match(r"//|/\*\*.*\*/$", line))
    return "\n".join(line if "`" in line else tight_line(line) for line in code)


def tight_line(line: str) -> str:
    """Return a line of a script without the spaces around its marks, those in texts aside."""
    parts = re.split(r'("(?:[^"\\]|\\.)*")', line)
    parts[::2] = [re.sub(rf" ?({MARKS}) ?", r"\1", part) for part in parts[::2]]
    return "".join(parts)


def tight_style(style: str) -> str:
    """Return a style sheet without remarks, and without spaces that only its writers need."""
    return re.sub(r" ?([{;]) ?|([:,]) (?!})", r"\1\2", re.sub(r" ?/\*.*?\*/", "", style)).replace(" }", "}")


def scripts(*names: str) -> str:
    """Return scripts as one, with the words that they say: `words.NAME` there is NAME in the file of words.

    `fill(words.NAME, {place: value})` puts values where braces stand.
    """
    text = inline(*map(tight, map(template_text, names)))
    said = {name: getattr(words, name) for name in sorted(set(re.findall(r"\bwords\.([A-Z][A-Z_]*)", text)))}
    return inline('"use strict";', f"const words = {json.dumps(said, ensure_ascii=False)};", FILL) + text


FILL = r"const fill = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);"


def policy(style: str, script: str = "") -> str:
    """Return the Content-Security-Policy of a page with this style sheet and script, each as it stands in its element.

    Whatever else a page might come to hold, it neither runs nor styles nor loads anything. Pictures are part of the
    page. Source: W3C, "Content Security Policy Level 3", sections 6.1, 6.7 and 8.4.
    """
    scripts = digest(script) if script else "'none'"
    return (
        f"default-src 'none'; style-src {digest(style)}; script-src {scripts}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def digest(text: str) -> str:
    """Return the name by which a policy knows an inline part."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
