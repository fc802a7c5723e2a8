"""Finds the code blocks of all pages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]

#: What becomes of a block, by the first word of its fence.
LANGUAGES = frozenset({"python", "sh", "console", "json", "toml", "yaml", "text", "dockerfile"})
#: Fences that only the site's builder reads; building the site runs them.
DIRECTIVES = frozenset({"{eval-rst}", "{toctree}"})


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block of a page.

    Attributes
    ----------
    page, line
        The page, as a path from the repository's root, and the line of the block's first line.
    language, label
        First word of the fence, and the rest: the name of a file, or why the block cannot run here.
    text
        What stands in it.
    """

    page: str
    line: int
    language: str
    label: str
    text: str

    @property
    def file_name(self) -> str | None:
        """The file that a reader makes of it, such as app.py; None for what is run."""
        return self.label if "." in self.label else None

    @property
    def place(self) -> str:
        """Where it stands, for messages."""
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """Return every page whose blocks must run, as paths from the repository's root."""
    found = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
    found += [*ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/README.md")]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page in their order.

    Raises
    ------
    ValueError
        For a block that nothing would run or read: indented code, or a fence of an unknown language.
    """
    found = []
    for token in MarkdownIt("commonmark").parse((ROOT / page).read_text(encoding="utf-8")):
        if token.type not in ("fence", "code_block"):
            continue
        line = (token.map or [0])[0] + 1
        if token.type == "code_block":
            raise ValueError(f"{page}:{line}: code must stand in a fence with its language, not be indented")
        language, _, label = token.info.strip().partition(" ")
        if language not in LANGUAGES | DIRECTIVES:
            allowed = ", ".join(sorted(LANGUAGES))
            raise ValueError(f"{page}:{line}: a fence must name one of {allowed}, got: {language!r}")
        found.append(Block(page=page, line=line + 1, language=language, label=label.strip(), text=token.content))
    return found
