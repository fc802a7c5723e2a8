"""`make docs` builds the site offline, and refuses what would mislead a reader."""

from __future__ import annotations

import io
import pkgutil
import re
from importlib import import_module
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from tests.docs.blocks import ROOT
from tests.packaging.public_api import PUBLIC_MODULES, RECIPES

if TYPE_CHECKING:
    from pathlib import Path

    from sphinx.application import Sphinx

pytestmark = [
    pytest.mark.slow,
    # Of extensions that are not ours.
    pytest.mark.filterwarnings("ignore::sphinx.deprecation.RemovedInSphinx11Warning"),
]

#: A tag that makes a browser load something.
_LOADED = re.compile(r"<(?:script|img|link|iframe)\b[^>]*?\b(?:src|href)=\"(?:https?:)?//[^\"]*\"")


def _build(source: Path, target: Path, **settings: Any) -> tuple[Sphinx, str]:
    """Build a site as `make docs` does, in this process; return it with its warnings."""
    from sphinx.application import Sphinx  # noqa: PLC0415 -- a second
    from sphinx.util.docutils import docutils_namespace, patch_docutils  # noqa: PLC0415

    warnings = io.StringIO()
    with patch_docutils(str(ROOT / "docs")), docutils_namespace():
        app = Sphinx(
            srcdir=source,
            confdir=ROOT / "docs",
            outdir=target / "html",
            doctreedir=target / "doctrees",
            buildername="html",
            confoverrides=settings,
            status=None,
            warning=warnings,
            freshenv=True,
        )
        app.build()
    # In colours, where a terminal or pytest asks for them.
    return app, re.sub(r"\x1b\[[0-9;]*m", "", warnings.getvalue())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> tuple[Sphinx, str]:
    return _build(ROOT, tmp_path_factory.mktemp("site"))


def test_the_site_builds_without_a_warning(site: tuple[Sphinx, str]) -> None:
    _, warnings = site
    assert warnings == ""


def test_the_site_needs_nothing_from_the_network(site: tuple[Sphinx, str]) -> None:
    app, _ = site
    found = sorted(app.outdir.rglob("*.html"))
    assert len(found) > 50
    assert {path.name: tags for path in found if (tags := _LOADED.findall(path.read_text(encoding="utf-8")))} == {}


def test_the_first_page_leads_into_the_site(site: tuple[Sphinx, str]) -> None:
    app, _ = site
    (target,) = re.findall(r"url=([^\"]+)", (app.outdir / "index.html").read_text(encoding="utf-8"))
    assert (app.outdir / target).exists()


def test_every_public_name_is_in_the_reference(site: tuple[Sphinx, str]) -> None:
    app, _ = site
    names = set(app.env.domaindata["py"]["objects"])
    documented = {id(_named(name)) for name in names}
    for module in PUBLIC_MODULES:
        public = import_module(module)
        for name in public.__all__:
            # A class or a function may stand on a page under another of its names.
            thing = getattr(public, name)
            elsewhere = isinstance(thing, type | FunctionType | ModuleType) and id(thing) in documented
            assert f"{module}.{name}" in names or elsewhere, f"{module}.{name} is on no page"


def test_every_construct_has_a_page_of_its_own(site: tuple[Sphinx, str]) -> None:
    from constructs import Construct  # noqa: PLC0415

    import training_storage  # noqa: PLC0415 -- with the next, starts CDK

    app, _ = site
    objects = app.env.domaindata["py"]["objects"]
    for name in training_storage.__all__:
        thing = getattr(training_storage, name)
        if isinstance(thing, type) and issubclass(thing, Construct):
            page = objects[f"training_storage.{name}"].docname
            assert page.startswith("docs/constructs/"), name
            text = (ROOT / f"{page}.md").read_text(encoding="utf-8")
            for heading in ("## Example", "## What it refuses", "## Reference"):
                assert heading in text or (heading, page) in _WITHOUT, f"{page} lacks {heading}"


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("[a](missing.md)", "target not found: 'missing.md'"),
        ("[a](#missing)", "target not found: 'missing'"),
        ("[a](other.md#missing)", "local id not found in doc 'other': 'missing'"),
        ("[a](other.txt)", "target not found: 'other.txt'"),
        ("[a](http://aws.amazon.com/fsx/)", "no https address: http://aws.amazon.com/fsx/"),
        ("[a](https://localhost/fsx/)", "no https address: https://localhost/fsx/"),
    ],
)
def test_a_link_that_leads_nowhere_is_a_warning(text: str, warning: str, tmp_path: Path) -> None:
    (tmp_path / "index.md").write_text(f"# Page\n\n## Heading\n\n{text}\n\n[b](#heading)\n", encoding="utf-8")
    (tmp_path / "other.md").write_text("---\norphan: true\n---\n# Other\n", encoding="utf-8")
    _, warnings = _build(tmp_path, tmp_path, root_doc="index", include_patterns="*.md", exclude_patterns="html")
    assert [line for line in warnings.splitlines() if "WARNING" in line and warning in line], warnings
    assert warnings.count("WARNING") == 1


def test_the_documented_modules_are_the_public_ones() -> None:
    named = set()
    for page in (ROOT / "docs" / "api").glob("*.md"):
        named |= set(re.findall(r"automodule:: (\S+)", page.read_text(encoding="utf-8")))
    recipes = import_module(RECIPES).__path__
    wanted = {*PUBLIC_MODULES, *(f"{RECIPES}.{module.name}" for module in pkgutil.iter_modules(recipes))}
    # `training_storage.planning` has this one among its names.
    assert named == {*wanted, "training_storage.planning.catalog"}


def _named(name: str) -> object:
    """Return what a dotted name of the reference means; None for a parameter or an attribute of instances."""
    parts = name.split(".")
    for at in range(len(parts), 0, -1):
        try:
            thing: object = import_module(".".join(parts[:at]))
        except ModuleNotFoundError:
            continue
        for part in parts[at:]:
            thing = getattr(thing, part, None)
        return thing
    return None


_WITHOUT: frozenset[tuple[str, str]] = frozenset()
