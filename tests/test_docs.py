"""Every example in the README, the docs and the docstrings runs, and shows what it says it shows."""

from __future__ import annotations

import doctest
import pkgutil
import shlex
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

import headrace
from headrace.cli.app import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(headrace.__path__, "headrace.")
    if not module.name.endswith(("__main__", "_native"))
)


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """The page's blocks in a language with the line that each begins on (0-based)."""
    found: list[tuple[int, str]] = []
    begin: int | None = None
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if begin is None and line.strip() == f"```{language}":
            begin = number + 1
        elif begin is not None and line.strip() == "```":
            found.append((begin, "\n".join(lines[begin:number]) + "\n"))
            begin = None
    assert begin is None, f"{page}: a block begins at line {begin} and does not end"
    return found


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_a_page(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page share their names. A block with >>> shows its results, any other just runs."""
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {"__name__": "__main__"}
    for begin, code in blocks(page, "python"):
        if code.lstrip().startswith(">>>"):
            example = doctest.DocTestParser().get_doctest(code, names, page.name, str(page), begin)
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
            told: list[str] = []
            runner.run(example, out=told.append, clear_globs=False)
            names = example.globs
            assert not told, "".join(told)
        else:
            exec(compile("\n" * begin + code, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_the_commands_of_a_page(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ```console block shows a command after `$ ` and all that it prints."""
    monkeypatch.chdir(ROOT)
    for _, block in blocks(page, "console"):
        command, _, shown = block.partition("\n")
        prompt, program, *arguments = shlex.split(command)
        assert (prompt, program) == ("$", "headrace")
        assert CliRunner().invoke(app, arguments, prog_name=program).output == shown


@pytest.mark.parametrize("name", MODULES)
def test_a_docstring(name: str) -> None:
    module: ModuleType = import_module(name)
    assert doctest.testmod(module).failed == 0


def test_links_between_pages() -> None:
    """A link to a file of the project leads somewhere."""
    for page in PAGES:
        for part in page.read_text(encoding="utf-8").split("](")[1:]:
            target = part.split(")")[0].split("#")[0]
            if target and "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
