"""Takes a shell block apart into its commands, without a shell."""

from __future__ import annotations

import re
import shlex

_SEPARATORS = frozenset({"&&", "||", ";", "|", "&"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)


def commands(text: str) -> list[list[str]]:
    """Return the words of each simple command, in order; comments, redirections and assignments before it left out.

    Raises
    ------
    ValueError
        For a here-document, a substitution or a loop: a page shows what a reader types, line by line.
    """
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        words: list[str] = []
        for token in _tokens(line):
            if token in _SEPARATORS:
                found.append(words)
                words = []
            else:
                words.append(token)
        found.append(words)
    return [command for words in found if (command := _plain(words))]


def _tokens(line: str) -> list[str]:
    if "<<" in line or "$(" in line or "`" in line:
        raise ValueError(f"a shell block must hold plain commands, got: {line!r}")
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split = True
    return list(lexer)


def _plain(words: list[str]) -> list[str]:
    """Return a command without what the shell itself takes."""
    plain: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in (">", ">>", "<"):
            next(rest, None)
        elif plain or not _ASSIGNMENT.fullmatch(word):
            plain.append(word)
    return plain[1:] if plain[:1] in (["time"], ["sudo"]) else plain
