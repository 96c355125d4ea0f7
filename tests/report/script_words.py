"""Reads a script for words of its own."""

from __future__ import annotations

import re

SENTENCE = re.compile(r"[A-Za-z]{2,}[,;:]? (?!t[hdr]\b)[A-Za-z]{2,}\b")
SPOKEN = ("aria-label", "alt", "title", "placeholder", "summary")
QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*"|' + r"'(?:[^'\\\n]|\\.)*'")


def code_of(script: str) -> str:
    """Return a script without its remarks, and without patterns, whose quotes open no string."""
    code = re.sub(r"/\*.*?\*/", "", script, flags=re.DOTALL)
    code = re.sub(r"^\s*//.*$|(?<=[;{},)]) // .*$", "", code, flags=re.MULTILINE)
    return re.sub(r"(?<=[(=,:?!&| ])/(?![ /])(?:[^/\\\n\[]|\\.|\[[^\]\n]*\])+/[gimsuy]*(?=[.,);])", "pattern", code)


def literals(code: str) -> list[str]:
    """Return the strings in a piece of script, those within the places of a template too; `#` stands for a place."""
    texts: list[str] = []
    within: list[str | None] = []  # the text of each template that is open, None for each brace
    place = 0
    while place < len(code):
        letter, match = code[place], QUOTED.match(code, place)
        text = within[-1] if within else None
        if text is not None and code.startswith("${", place):
            within[-1:] = [f"{text}#", None]
            place += 1
        elif text is not None and letter != "`":
            within[-1] = text + letter
        elif text is not None:
            texts.append(text)
            within.pop()
        elif letter == "`":
            within.append("")
        elif letter == "{":
            within.append(None)
        elif letter == "}" and within:
            within.pop()
        elif match:
            texts.append(match[0][1:-1])
            place = match.end() - 1
        place += 1
    return texts + [text for text in within if text]


LABELLED = re.compile(
    r"""\.(?:textContent|innerText|title|alt|placeholder|ariaLabel|label)\s*\+?=(?!=)([^;]*)
    |(?:aria-label|aria-description|title|alt|placeholder|label|caption)["']?\s*[:,]([^,;{}()]*)
    |\b(?:element|make|made|shape)\((\s*\{[^{}]*\},[^;]*)
    |\b(?:append|prepend|createTextNode|replaceChildren|heat)\(([^;]*)
    |\bselect\(([^,]*)""",
    re.VERBOSE,
)
"""Where a script hands a text to a reader: the text of an element, what is read out of it, its third argument."""
STRUCTURE = re.compile(
    r"""(?:(?<=element\()|(?<=make\()|(?<=made\()|(?<=shape\())"[\w-]+",?|\.className\s*=\s*[^;]*
    |\b(?:byId|querySelector|querySelectorAll|closest|join|includes|addEventListener|execCommand)(?:\?\.)?\("[^"]*"
    |\[\s*"[^"]*"\s*\]|[=!]==\s*"[^"]*"
    |(?:class|className|role|type|id|scope|value|"data-[\w-]+"|"aria-(?!label|desc)[\w-]+"|"text-anchor"):\s*[^,{}]*""",
    re.VERBOSE,
)
"""Names of elements, what is looked up, and attributes that nobody reads."""


def in_script(text: str) -> list[str]:
    """Return the strings of a script that hold words; what stands between braces in them is code."""
    strings = literals(STRUCTURE.sub("", code_of(text)))
    return [string for string in strings if SENTENCE.search(string) and not re.search(r"[\[#.][a-z-]+[ =\]]", string)]


def labels(text: str) -> list[str]:
    """Return what a script writes on the page in a string of its own that holds a word, be it one alone."""
    code = STRUCTURE.sub("", code_of(text))
    handed = [part for match in LABELLED.finditer(code) for part in match.groups() if part]
    strings = [string for part in handed for string in literals(part) if string not in SPOKEN]
    return [string for string in strings if re.search(r"[A-Za-z]{2}", string)]
