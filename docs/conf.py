"""The site that `make docs` builds. The repository is its source, so that each link works on the site and beside it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.util import logging
from sphinx.util.inspect import signature as signature_of
from sphinx.util.inspect import stringify_signature

import training_storage

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_ROOT = Path(__file__).resolve().parents[1]
_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs", "examples")

project = "training-storage"
author = "the authors of training-storage"
language = "en"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**", "examples/README.md", "examples/**/README.md"]
# Sphinx walks over everything that is not excluded: environments and build folders lie beside the pages.
exclude_patterns = [path.name for path in _ROOT.iterdir() if path.name not in _PAGES]

myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
# One parameter a line, as in the code: signatures here have up to thirty.
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"
napoleon_google_docstring = False
napoleon_use_rtype = False
# Several names may share an entry, as in "vpc, subnet".
napoleon_custom_sections = [("Attributes", "params_style")]
# `Name` in a docstring is a link where the site has that name, and code anywhere else.
default_role = "py:obj"

html_theme = "furo"
html_title = "training-storage"
html_extra_path = ["site"]
html_static_path = ["static"]
html_css_files = ["pages.css"]
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False

#: The page of the names that `training_storage` itself has.
_REFERENCE = "docs/api/README"

_log = logging.getLogger(__name__)
_PAGE_IN_DOCSTRING = re.compile(r"(?<![`\w/])docs/((?:\w+/)?[\w-]+)(\.md)?(?![\w/`])")


def _check_address(_: Sphinx, doctree: nodes.document) -> None:
    """Warn of external addresses that cannot be right; whether they answer, nobody can say offline."""
    for reference in doctree.findall(nodes.reference):
        address = reference.get("refuri", "")
        if "://" not in address:
            continue
        parts = urlsplit(address)
        if parts.scheme != "https" or "." not in (parts.hostname or "") or any(sign in address for sign in " …<>"):
            _log.warning("no https address: %s", address, location=reference)


def _lead_to_the_page_of_a_folder(app: Sphinx, doctree: nodes.document) -> None:
    """Let a link to a folder lead to its README, as on a code host."""
    here = _ROOT / app.env.docname
    for link in doctree.findall(pending_xref):
        if link.get("reftype") != "myst" or link.get("refdomain"):
            continue
        page = (here.parent / link["reftarget"] / "README").resolve()
        if page.is_relative_to(_ROOT) and (name := str(page.relative_to(_ROOT))) in app.env.found_docs:
            link["refdomain"], link["reftarget"], link["reftargetid"] = "doc", name, None


def _construct_signature(
    _app: Sphinx, what: str, _name: str, thing: object, _options: object, _signature: str | None, returned: str | None
) -> tuple[str, str | None] | None:
    """Return the signature of a construct's own `__init__`: CDK's metaclass hides it."""
    if what != "class" or type(thing).__module__.partition(".")[0] != "jsii":
        return None
    signature = signature_of(thing.__init__, bound_method=True)  # type: ignore[misc]
    return stringify_signature(signature, unqualified_typehints=True, show_return_annotation=False), returned


def _docstring(_app: Sphinx, what: str, name: str, _thing: object, _options: object, lines: list[str]) -> None:
    """Link the pages that a docstring names, and keep Napoleon from taking "Whether it may: …" for a type."""
    for number, line in enumerate(lines):
        lines[number] = _PAGE_IN_DOCSTRING.sub(lambda found: _page_link(found[1], name), line)
    if what in ("property", "attribute"):
        lines.insert(0, "")


def _page_link(page: str, name: str) -> str:
    # Decisions are named by number.
    found = sorted((_ROOT / "docs").glob(f"{page}.md")) or sorted((_ROOT / "docs").glob(f"{page}-*.md"))
    if len(found) != 1:
        _log.warning("%s: its docstring names docs/%s, which is no page", name, page)
        return f"docs/{page}"
    return f":doc:`docs/{page} </docs/{found[0].relative_to(_ROOT / 'docs').with_suffix('')}>`"


def _skip(app: Sphinx, what: str, name: str, thing: object, skip: bool, _options: object) -> bool | None:  # noqa: FBT001
    """Leave out of a subpackage's page what the library's own has, under its shorter name."""
    if skip or what != "module" or app.env.docname == _REFERENCE:
        return None
    return True if name in training_storage.__all__ and getattr(training_storage, name) is thing else None


def setup(app: Sphinx) -> None:
    """Connect what is checked and corrected above."""
    app.connect("doctree-read", _check_address)
    app.connect("doctree-read", _lead_to_the_page_of_a_folder)
    app.connect("autodoc-process-signature", _construct_signature)
    # Before Napoleon, whose priority is the default one.
    app.connect("autodoc-process-docstring", _docstring, priority=400)
    app.connect("autodoc-skip-member", _skip)
