"""Guides: topics, sections, text for a terminal; and each command that a message names leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stratagem.core.errors import InputError
from stratagem.help import pages

ROOT = Path(__file__).parents[3]

GUIDE = """# A guide

It says *much* of [words](glossary.md#words).

## One `part`, first

```python run
# not a heading
```

### Below it

## Another
the end
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """An installed package with two guides and their index."""
    guides = tmp_path / "site" / "stratagem" / "guides"
    guides.mkdir(parents=True)
    (guides / "parameter_servers.md").write_text(GUIDE)
    (guides / "SECURITY.md").write_text("# Security\n\nReport it.\n")
    index = "# Documentation\n\n- [Servers](parameter_servers.md): what `they` do, [here](x.md).\n- no entry\n"
    (guides / "README.md").write_text(index)
    return guides.parent


def test_topics_of_the_checkout_are_the_pages_of_the_documentation() -> None:
    names = {file.stem for file in (ROOT / "docs").glob("*.md")} - {"README"} | {"security"}
    assert list(pages.pages()) == sorted(names)


def test_an_installed_package_has_guides_of_its_own(package: Path) -> None:
    assert list(pages.pages(package)) == ["parameter_servers", "security"]
    assert pages.listing(60, package) == (
        "  parameter_servers  Servers: what they do, here.\n  security           Security\n"
    )


def test_a_line_is_cut_to_the_terminal(package: Path) -> None:
    (package / "guides" / "README.md").write_text(f"- [Servers](parameter_servers.md): {'word ' * 30}\n")
    first = pages.listing(72, package).splitlines()[0]
    assert first.endswith("word ...")
    assert len(first) <= 72


@pytest.mark.parametrize(
    "topic", ["parameter_servers", "parameter-servers", "Parameter Servers", "docs/parameter_servers.md"]
)
def test_spellings_of_a_topic(topic: str, package: Path) -> None:
    assert pages.find_page(topic, package).topic == "parameter_servers"


@pytest.mark.parametrize(
    ("topic", "remedy"),
    [
        ("servers", "Did you mean parameter_servers? `stratagem help` lists all topics"),
        ("securty", "Did you mean security?"),
        ("xyz", "What to do: `stratagem help` lists all topics; `stratagem COMMAND --help` explains a command."),
    ],
)
def test_an_unknown_topic_is_told_the_nearest(topic: str, remedy: str, package: Path) -> None:
    with pytest.raises(InputError, match=f"There is no topic '{topic}'.") as caught:
        pages.find_page(topic, package)
    assert remedy in str(caught.value)


def test_sections(package: Path) -> None:
    page = pages.find_page("parameter_servers", package)
    assert list(page.sections()) == ["another", "below-it", "one-part-first", "a-guide"]
    assert page.section("one-part-first").splitlines()[0] == "## One `part`, first"
    assert page.section("One `part`, first").splitlines()[-1] == "### Below it"
    assert page.section("below it") == "### Below it\n"
    assert page.section("another") == "## Another\nthe end\n"
    assert page.section("a guide") == GUIDE


@pytest.mark.parametrize(
    ("section", "remedy"),
    [
        ("anoter", "What to do: Name one of these: another."),
        ("xyz", "What to do: Name one of these: a-guide, one-part-first, below-it, another."),
    ],
)
def test_an_unknown_section_is_told_the_nearest(section: str, remedy: str, package: Path) -> None:
    with pytest.raises(InputError, match=f"The topic parameter_servers has no section '{section}'.") as caught:
        pages.find_page("parameter_servers", package).section(section)
    assert str(caught.value).endswith(remedy)


@pytest.mark.parametrize(
    ("markdown", "text"),
    [
        ("[Data](data.md)", "Data (stratagem help data)"),
        ("[a](data.md#order) and [b](#here)", "a (stratagem help data#order) and b"),
        ("[Security](../SECURITY.md)", "Security (stratagem help security)"),
        ("[examples/gan.py](../examples/gan.py)", "examples/gan.py"),
        ("[a GAN](../examples/gan.py)", "a GAN (examples/gan.py)"),
        ("[peers](../benchmarks/README.md#peers)", "peers (benchmarks/README.md)"),
        ("[Keras](https://keras.io)", "Keras (https://keras.io)"),
        ("![a step](step.svg)", "(picture: a step)"),
        ("```python run\nx = a[0](b)\n```", "```python\nx = a[0](b)\n```"),
    ],
)
def test_text_for_a_terminal(markdown: str, text: str) -> None:
    assert pages.plain(markdown) == text


def test_headings_are_emphasized_but_comments_of_code_are_not(package: Path) -> None:
    text = pages.plain(GUIDE, lambda heading: f"<{heading}>")
    assert [line for line in text.splitlines() if "#" in line and "stratagem help" not in line] == [
        "<# A guide>",
        "<## One `part`, first>",
        "# not a heading",
        "<### Below it>",
        "<## Another>",
    ]


def named_in_sources() -> list[str]:
    """Return what follows `stratagem help` in the sources, in the notebooks and in README."""
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "notebooks").glob("*.md"), ROOT / "README.md"]
    text = "\n".join(file.read_text("utf-8") for file in files)
    return sorted(set(re.findall(r"stratagem help ([a-z_]+(?:#[\w-]+)?)", text)))


NAMED = named_in_sources()


def test_messages_name_guides() -> None:
    assert {"data", "estimator", "sharding", "tensorflow", "keras#text-and-lookups"} <= set(NAMED)


@pytest.mark.parametrize("named", NAMED)
def test_a_guide_that_a_message_names_is_there(named: str) -> None:
    topic, _, section = named.partition("#")
    page = pages.find_page(topic)
    assert page.topic == topic
    assert section == "" or page.section(section).startswith("#")


def test_no_message_names_a_file_of_the_documentation() -> None:
    """Docstrings and comments may: who reads them has the sources."""
    found = []
    for file in (ROOT / "src").rglob("*.py"):
        code = re.sub(r'r?""".*?"""', "", file.read_text("utf-8"), flags=re.DOTALL)
        found += [f"{file}: {line}" for line in code.splitlines() if re.search(r"^[^#]*[\"' (]docs/\w+\.md", line)]
    assert found == []
