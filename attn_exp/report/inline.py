"""The style sheets and scripts of pages, which stand in the pages themselves, and the policy that allows them alone.

They are apart from the templates, as the index is made of them, which each run writes: one without a report waits for
no Jinja.
"""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

TEMPLATES = Path(__file__).with_name("templates")


def template_text(name: str) -> str:
    """Return a template, a style sheet or a script by the name of its file."""
    return (TEMPLATES / name).read_text(encoding="utf-8")


def inline(*texts: str) -> str:
    """Return texts as they stand in their element, without what indents their lines."""
    return "\n".join(("", *(line.lstrip() for text in texts for line in text.splitlines()), ""))


REMARK = re.compile(r"""^(//.*|/\*\*.*\*/)\n|(?<=[;{},)\]]) // [^"'`\n]*$""", re.MULTILINE)
IN_STYLES = re.compile(r"/\*.*?\*/|\s*([{};,>])\s*|(?<=:)[ ]+", re.DOTALL)


def styles(*texts: str) -> str:
    """Return style sheets as they stand in their element, without remarks, and without spaces that nothing needs."""
    return IN_STYLES.sub(lambda found: found[1] or "", "\n".join(texts))


def scripts(*names: str) -> str:
    """Return scripts as one, without remarks."""
    return inline('"use strict";') + REMARK.sub("", inline(*map(template_text, names)))


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
