"""Guides by topic: where they lie, their sections, and their text for a terminal."""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stratagem.core.errors import InputError, name_some

_PACKAGE: Final = Path(__file__).parents[1]
_HEADING: Final = re.compile(r"(#+) (.+)")
_FENCE: Final = "```"
_PICTURE: Final = re.compile(r"!\[([^]]*)\]\([^)]*\)")
_ENTRY: Final = re.compile(r"^- \[([^]]*)\]\((?:\.\./)?(\w+)\.md\): (.+)$", re.MULTILINE)
"""A line of the index: `- [Data](data.md): what fit takes.`"""
_INDEX: Final = "README.md"
_LINK: Final = re.compile(r"\[([^]]*)\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Page:
    """A guide.

    Args:
        topic: Its name for `stratagem help`.
        text: Its Markdown.
    """

    topic: str
    text: str

    @property
    def title(self) -> str:
        """The first heading."""
        return next(line.removeprefix("# ") for line in self.text.splitlines() if line.startswith("# "))

    def sections(self) -> dict[str, tuple[int, int]]:
        """Return the lines of each section, first and past the last, by the name that its heading has in links."""
        headings = list(_headings(self.text.splitlines()))
        ends = [
            next((line for line, depth, _ in headings[number + 1 :] if depth <= own), len(self.text.splitlines()))
            for number, (_, own, _) in enumerate(headings)
        ]
        return {
            anchor(title): (line, end) for (line, _, title), end in reversed(list(zip(headings, ends, strict=True)))
        }

    def section(self, name: str) -> str:
        """Return the Markdown of a section, with the sections below it.

        Args:
            name: Its heading, or the name that the heading has in links.

        Raises:
            InputError: The page has no such section.
        """
        sections = self.sections()
        wanted = anchor(name)
        if wanted not in sections:
            near = difflib.get_close_matches(wanted, sections, n=3, cutoff=0.5)
            raise InputError(
                f"The topic {self.topic} has no section {name!r}.",
                f"Name one of these: {', '.join(near) if near else name_some(reversed(sections))}.",
            )
        first, end = sections[wanted]
        return "\n".join(self.text.splitlines()[first:end]).rstrip() + "\n"


def anchor(heading: str) -> str:
    """Return the name that a heading has in links.

    Example:
        >>> anchor("How a worker ends"), anchor("`shard=`, and `layout_map=`")
        ('how-a-worker-ends', 'shard-and-layout_map')
    """
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _headings(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """Yield the line, depth and text of each heading."""
    is_code = False
    for number, line in enumerate(lines):
        if line.startswith(_FENCE):
            is_code = not is_code
        elif not is_code and (found := _HEADING.fullmatch(line)):
            yield number, len(found[1]), found[2]


def _files(package: Path) -> list[Path]:
    """Return the files of all guides, and their index, README.md."""
    installed, root = package / "guides", package.parents[1]
    return [*installed.glob("*.md")] or [*(root / "docs").glob("*.md"), *root.glob("SECURITY.md")]


def pages(package: Path = _PACKAGE) -> dict[str, Page]:
    """Return the guides by topic, in the order of the alphabet.

    Args:
        package: The folder of `stratagem`. An installed one has `guides`; in a checkout the folder `docs` is read.
    """
    found = {file.stem.lower(): file for file in _files(package) if file.name != _INDEX}
    return {topic: Page(topic, found[topic].read_text(encoding="utf-8")) for topic in sorted(found)}


def find_page(topic: str, package: Path = _PACKAGE) -> Page:
    """Return the guide of a topic.

    Args:
        topic: Its name, in the spelling of files, links or headings.
        package: The folder of `stratagem`.

    Raises:
        InputError: There is none.
    """
    known = pages(package)
    wanted = topic.lower().removesuffix(".md").rpartition("/")[2].replace("-", "_").replace(" ", "_")
    if wanted not in known:
        near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
        hint = f"Did you mean {' or '.join(near)}? " if near else ""
        all_topics = "`stratagem help` lists all topics; `stratagem COMMAND --help` explains a command."
        raise InputError(f"There is no topic {topic!r}.", hint + all_topics)
    return known[wanted]


def listing(columns: int, package: Path = _PACKAGE) -> str:
    """Return a line for each topic, with what the index of the documentation says of it.

    Args:
        columns: The width of the terminal.
        package: The folder of `stratagem`.
    """
    known = pages(package)
    index = "".join(file.read_text(encoding="utf-8") for file in _files(package) if file.name == _INDEX)
    said = {name.lower(): f"{title}: {_without_marks(text)}" for title, name, text in _ENTRY.findall(index)}
    width = max(map(len, known), default=0)
    room = max(40, columns - width - 4)
    whole = {topic: said.get(topic, page.title) for topic, page in known.items()}
    lines = {topic: textwrap.shorten(line, room, placeholder=" ...") for topic, line in whole.items()}
    return "".join(f"  {topic:{width}}  {line}\n" for topic, line in lines.items())


def plain(markdown: str, emphasize: Callable[[str], str] = str) -> str:
    r"""Return Markdown as text for a terminal: links to other guides become commands, code stays as it is.

    Args:
        markdown: The Markdown.
        emphasize: What to make of a heading.

    Example:
        >>> print(plain("# Data\n\nSee [the order](data.md#order) and [Keras](https://keras.io)."))
        # Data
        <BLANKLINE>
        See the order (stratagem help data#order) and Keras (https://keras.io).
    """
    lines, is_code = [], False
    for line in markdown.splitlines():
        if line.startswith(_FENCE):
            is_code = not is_code
            lines.append(line.replace(" run", "") if line.startswith("```python run") else line)
        elif is_code:
            lines.append(line)
        else:
            text = _LINK.sub(_link, _PICTURE.sub(r"(picture: \1)", line))
            lines.append(emphasize(text) if _HEADING.fullmatch(line) else text)
    return "\n".join(lines)


def _link(found: re.Match[str]) -> str:
    text, target = found.groups()
    file, _, section = target.partition("#")
    if ":" in target:
        return text if text == target else f"{text} ({target})"
    if not file:  # a section of the same page
        return text
    if file.endswith(".md") and ("/" not in file or file == "../SECURITY.md"):
        return f"{text} (stratagem help {Path(file).stem.lower()}{f'#{section}' if section else ''})"
    return text if text == file.removeprefix("../") else f"{text} ({file.removeprefix('../')})"


def _without_marks(markdown: str) -> str:
    """Return a paragraph without links, code and emphasis."""
    return re.sub(r"[*`]", "", _LINK.sub(r"\1", markdown))
