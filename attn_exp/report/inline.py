"""Style sheets and scripts, which pages contain inline, and the policy that allows nothing else.

They are kept apart from the templates because each run writes the index from them, and must not wait for Jinja.
"""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

TEMPLATES = Path(__file__).with_name("templates")


def template_text(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def inline(*texts: str) -> str:
    return "\n".join(("", *(line.lstrip() for text in texts for line in text.splitlines()), ""))


REMARK = re.compile(r"""^(//.*|/\*\*.*\*/)\n|(?<=[;{},)\]]) // [^"'`\n]*$""", re.MULTILINE)
IN_STYLES = re.compile(r"/\*.*?\*/|\s*([{};,>])\s*|(?<=:)[ ]+", re.DOTALL)


def styles(*texts: str) -> str:
    return IN_STYLES.sub(lambda found: found[1] or "", "\n".join(texts))


def scripts(*names: str) -> str:
    return inline('"use strict";') + REMARK.sub("", inline(*map(template_text, names)))


def policy(style: str, script: str = "") -> str:
    """Return the Content-Security-Policy of a page that has this style sheet and script, exactly as inlined.

    Anything else on the page neither runs nor styles nor loads. Pictures are part of the page. Source: W3C, "Content
    Security Policy Level 3", sections 6.1, 6.7 and 8.4.
    """
    scripts = csp_hash(script) if script else "'none'"
    return (
        f"default-src 'none'; style-src {csp_hash(style)}; script-src {scripts}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def csp_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
