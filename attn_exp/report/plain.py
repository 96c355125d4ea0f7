"""Texts of users in few characters and on one line, so that nothing in them is obeyed or hidden."""

from __future__ import annotations


def visible(text: str) -> str:
    """Return a text on one line, with every character that is no letter, mark or space as its number."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def plain(text: str, most: int = 48) -> str:
    """Return a text that a terminal shows and never obeys: on one line, cut to `most` characters, controls escaped."""
    safe = visible(text[: most + 1])
    return safe if len(safe) <= most else safe[: most - 3] + "..."


def label(token: str, most: int = 18) -> str:
    """Return a token as a label: on one line, controls escaped, the middle left out where it is long."""
    safe = visible(token[:200])
    if len(safe) <= most and len(token) <= 200:
        return safe
    return f"{safe[: most - 6]}…{ending(token)}"


def ending(token: str) -> str:
    """Return the last letters of a token; a question mark for each that is none."""
    return "".join(letter if letter.isprintable() else "?" for letter in token[-5:])
