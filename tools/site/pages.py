"""Pages of the repository as pages of the site: each is copied, and its links lead to other pages of the site."""

from __future__ import annotations

import ast
import os
import re
import shutil
from pathlib import Path
from typing import Final

from tools.site.sections import HOME, SECTIONS, Section

_FENCE: Final = re.compile(r"^(?:`{3,}|~{3,})", re.MULTILINE)
_LINK: Final = re.compile(r"\]\((?!\w+:)([^)\s#]*)(#[^)\s]*)?\)")
_MAGIC: Final = re.compile(r"\A```python(?=\n(?:.*\n)*?[ ]*[%!])")
"""The opening of a cell with commands for the notebook itself, which are no Python."""

_PICTURES: Final = (".png", ".svg")
_LANGUAGES: Final = {".py": "python", ".sh": "sh", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".json": "json"}


class Pages:
    """The pages of the site that come from files.

    Args:
        root: The root of the repository.

    Example:
        >>> Pages(Path()).place_of(Path("docs/data.md"))
        PosixPath('data.md')
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._listed = {Path(HOME), *(file for section in SECTIONS for file in self.files_of(section))}
        self._written: set[Path] = set()

    def files_of(self, section: Section) -> list[Path]:
        """Return the files of a section, relative to the repository.

        Raises:
            FileNotFoundError: A pattern of the section matches no file.
        """
        found = []
        for pattern in section.pages:
            files = sorted(path.relative_to(self._root) for path in self._root.glob(pattern))
            if not files:
                raise FileNotFoundError(f"{pattern} of the section {section.title!r} is no file of the repository")
            found += files
        return found

    def place_of(self, file: Path) -> Path:
        """Return where a file stands in the site: pages of `docs/` at its top, others as in the repository."""
        if file.as_posix() == HOME:
            return Path("index.md")
        if file.name == "README.md":
            return Path(f"{file.parent}.md") if file.parent.name else Path("index.md")
        inside = file.relative_to("docs") if file.parts[0] == "docs" else file
        if inside.suffix in (".md", *_PICTURES):
            return Path(inside.as_posix().lower())
        return inside.with_name(f"{inside.stem}.md") if inside.parts[0] == "examples" else Path("files", f"{inside}.md")

    def write(self, target: Path) -> None:
        """Write all pages of the sections, and the files that they link to.

        Args:
            target: An empty folder, from which the site is made.
        """
        for file in sorted(self._listed):
            self._write_file(file, target)
        lists = "".join(self._list_of(section) for section in SECTIONS)
        with (target / "index.md").open("a") as home:
            home.write(f"\n{lists}\n{_toctree('Reference', ['reference/index'])}")

    def _write_file(self, file: Path, target: Path) -> None:
        place = self.place_of(file)
        if place in self._written:
            return
        self._written.add(place)
        page = target / place
        page.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix in _PICTURES:
            shutil.copyfile(self._root / file, page)
            return
        text = (self._root / file).read_text("utf-8")
        body = self._linked(text, file, target) if file.suffix == ".md" else code_page(file, text)
        page.write_text(body if file in self._listed else f"---\norphan: true\n---\n\n{body}", "utf-8")

    def _linked(self, text: str, file: Path, target: Path) -> str:
        """Return a page whose links lead to places in the site; what they lead to is written as well."""

        def replaced(link: re.Match[str]) -> str:
            if not link[1]:
                return link[0]
            linked = Path(os.path.normpath(file.parent / link[1]))
            if (self._root / linked).is_dir():
                linked = linked / "README.md" if (self._root / linked / "README.md").exists() else Path(HOME)
            self._write_file(linked, target)
            place = os.path.relpath(self.place_of(linked), self.place_of(file).parent)
            return f"]({place}{link[2] or ''})"

        parts = _parts(text)
        return "".join(_MAGIC.sub("```text", part) if is_code else _LINK.sub(replaced, part) for part, is_code in parts)

    def _list_of(self, section: Section) -> str:
        return _toctree(
            section.title, [self.place_of(file).with_suffix("").as_posix() for file in self.files_of(section)]
        )


def code_page(file: Path, text: str) -> str:
    """Return the page of a program: the docstring of the module, then its code.

    Args:
        file: The file, relative to the repository.
        text: What is in it.
    """
    opening = ast.get_docstring(ast.parse(text)) or "" if file.suffix == ".py" else ""
    title = file.name if file.parts[0] == "examples" else file.as_posix()
    language = _LANGUAGES.get(file.suffix, "text")
    return f"# {title}\n\n{opening}\n\n````{language}\n{text.rstrip()}\n````\n"


def _parts(text: str) -> list[tuple[str, bool]]:
    """Split a page into text and blocks of code; tell of each whether it is code."""
    parts: list[tuple[str, bool]] = []
    lines: list[str] = []
    fence = ""
    for line in text.splitlines(keepends=True):
        opening = _FENCE.match(line)
        if opening and not fence:
            parts.append(("".join(lines), False))
            lines, fence = [], opening[0]
        elif fence and line.strip() == fence:
            parts.append(("".join([*lines, line]), True))
            lines, fence = [], ""
            continue
        lines.append(line)
    return [*parts, ("".join(lines), bool(fence))]


def _toctree(title: str, places: list[str]) -> str:
    entries = "\n".join(places)
    return f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{entries}\n```\n"
