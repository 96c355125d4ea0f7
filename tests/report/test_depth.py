"""What a reader is shown: all numbers, or those that reading needs."""

from __future__ import annotations

import re

DEEP = re.compile(r"\bulp\b|last place|multiplications|FLOPs?\b|\bbytes\b|row sum", re.IGNORECASE)

SEEN = """
    const seen = () => document.body.innerText;
    for (const details of document.querySelectorAll("details")) details.open = true;
    const button = document.getElementById("depth");
    const pressed = () => button.getAttribute("aria-pressed");
    button.closest("p").remove();
    document.body.append(button);
    const before = [seen(), pressed()];
    button.click();
    const after = [seen(), pressed()];
    button.click();
    return [before, after, [seen(), pressed()]];
"""
