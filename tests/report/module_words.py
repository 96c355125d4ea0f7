"""Reads a Python module for words of its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.report.script_words import SENTENCE, SPOKEN

TAG = re.compile(r"<[^<>]*>|<[^<>]*$|^[^<>]*>")
READ_OUT = re.compile(rf'(?:{"|".join(SPOKEN)})="([^"]*)')
NO_WORDS = re.compile(r"sans-serif")
PLACES = ("loc", "textcoords")
"""Arguments by which Matplotlib learns where something stands."""

LABELS = ("title", "label", "caption", "unit", "across")
"""Arguments and fields that a reader sees."""

HEADS = ("head", "heads")
"""Names of what stands above the columns of a table."""

SHOWING = ("Words", "Axis", "Reading", "paragraph", "set_xlabel", "set_ylabel", "set_title", "set_label")
"""What shows the texts that it is given."""


def in_module(tree: ast.Module) -> Iterator[str]:
    """Yield the strings of a module that hold words: no docstrings, no messages of errors, no marks of a page."""
    aside = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    aside |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.Raise) for part in ast.walk(node)}
    aside |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg in PLACES}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in aside else None
        if isinstance(text, str) and any(SENTENCE.search(part) for part in seen(text)) and not NO_WORDS.search(text):
            yield text


def seen(text: str) -> list[str]:
    """Return what a reader sees of a string that may hold marks of a page: what is between them, or read out."""
    return [text] if not re.search("[<>]", text) else [TAG.sub(" | ", text), *READ_OUT.findall(text)]


def labels(tree: ast.Module) -> Iterator[str]:
    """Yield the labels of one word that a module has of its own: titles, names of axes, heads of tables."""
    for node in ast.walk(tree):
        for value in labelled(node):
            parts = [part.value for part in ast.walk(value) if isinstance(part, ast.Constant)]
            text = "#".join(part for part in parts if isinstance(part, str))
            if any(re.search("[A-Za-z]{2}", part) for part in seen(text)):
                yield text


def labelled(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what a piece of a module gives a reader to see, where that stands there as a string or a list of them."""
    values: list[ast.AST | None] = []
    if (
        (isinstance(node, ast.keyword) and node.arg in LABELS)
        or (isinstance(node, ast.AnnAssign) and name_of(node.target) in LABELS)
        or (isinstance(node, ast.Assign) and any(name_of(target).lower() in HEADS for target in node.targets))
    ):
        values = [node.value]
    elif isinstance(node, ast.Call) and name_of(node.func) in SHOWING:
        values = [*node.args]
    for value in values:
        if isinstance(value, ast.Tuple | ast.List):
            yield from (part for part in value.elts if isinstance(part, ast.Constant | ast.JoinedStr))
        elif isinstance(value, ast.Constant | ast.JoinedStr):
            yield value


def name_of(node: ast.AST) -> str:
    """Return the last part of a name: `set_title` of `panel.set_title`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
