"""The documentation site has every page and every public name, and no link of it is broken."""

from __future__ import annotations

import inspect
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import jax
import pytest
from tools.site import reference
from tools.site.__main__ import build
from tools.site.members import INSIDE, is_ours, options_of
from tools.site.pages import Pages, code_page
from tools.site.sections import HOME, SECTIONS

import stratagem

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Sphinx is given."""
    folder = tmp_path_factory.mktemp("sources")
    Pages(ROOT).write(folder)
    reference.write(folder / "reference")
    return folder


def test_every_guide_and_example_has_its_section() -> None:
    pages = Pages(ROOT)
    listed = [file.as_posix() for section in SECTIONS for file in pages.files_of(section)]
    assert len(listed) == len(set(listed))
    files = [*ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.py"), *ROOT.glob("notebooks/*.md")]
    assert sorted({str(file.relative_to(ROOT)) for file in files} - {*listed, HOME}) == []


@pytest.mark.parametrize(
    ("file", "place"),
    [
        ("docs/README.md", "index.md"),
        ("README.md", "index.md"),
        ("docs/data.md", "data.md"),
        ("SECURITY.md", "security.md"),
        ("benchmarks/README.md", "benchmarks.md"),
        ("examples/gan.py", "examples/gan.md"),
        ("docs/top.svg", "top.svg"),
        ("tests/programs/tensorflow/vae.py", "files/tests/programs/tensorflow/vae.py.md"),
    ],
)
def test_place_of_a_file(file: str, place: str) -> None:
    assert Pages(ROOT).place_of(Path(file)) == Path(place)


def test_links_lead_to_pages_of_the_site(sources: Path) -> None:
    home = (sources / "index.md").read_text()
    assert "](security.md)" in home
    assert "](examples/gan.md)" in home
    assert "](files/tests/programs/tensorflow/vae.py.md)" in (sources / "tensorflow.md").read_text()


def test_code_keeps_what_looks_like_a_link(tmp_path: Path) -> None:
    for file in ("docs/README.md", *(page for section in SECTIONS for page in section.pages if "*" not in page)):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(
            "# A page\n\n```python\nf[0](data.md)\n```\n\n[data](docs/data.md)\n[other](README.md)\n"
        )
    for pattern in ("examples/a.py", "benchmarks/results/a.md"):
        (tmp_path / pattern).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / pattern).write_text('"""An example."""\n')
    for folder in {Path(page).parent for section in SECTIONS for page in section.pages}:
        (tmp_path / folder / "docs").mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "docs" / "data.md").write_text("# Data\n")
        (tmp_path / folder / "README.md").touch()
    Pages(tmp_path).write(tmp_path / "site")
    text = (tmp_path / "site" / "security.md").read_text()
    assert "f[0](data.md)\n" in text
    assert "[data](data.md)" in text


def test_cells_with_commands_of_the_notebook_are_no_python(sources: Path) -> None:
    text = (sources / "notebooks" / "one_line_changed.md").read_text()
    assert "```text\n%env JAX_PLATFORMS=cpu\n" in text
    assert text.count("```python\n") > 0


def test_page_of_a_program_begins_with_its_docstring() -> None:
    text = code_page(Path("examples/a.py"), '"""Train a network."""\nimport keras\n')
    assert text == '# a.py\n\nTrain a network.\n\n````python\n"""Train a network."""\nimport keras\n````\n'


def test_every_public_name_is_in_the_reference(sources: Path) -> None:
    folder = sources / "reference"
    for name in stratagem.__all__:
        value = getattr(stratagem, name)
        assert (folder / f"stratagem.{name}.{'md' if inspect.ismodule(value) else 'rst'}").is_file(), name
    for module in reference.modules():
        text = (folder / f"{module}.md").read_text()
        names = [each for each in reference.public_names(module) if not inspect.ismodule(each.value)]
        assert [each.path for each in names if f"`{each.name}`" not in text] == []
        assert [each.path for each in names if each.has_page and not each.summary] == []


def test_members_that_are_left_out_exist() -> None:
    classes: dict[str, type] = {}
    for module in reference.modules():
        classes |= {each.name: each.value for each in reference.public_names(module) if inspect.isclass(each.value)}
    wrong = [
        f"{name}.{member}"
        for name, members in INSIDE.items()
        for member in members
        if not hasattr(classes[name], member)
    ]
    assert wrong == []


def test_every_member_of_a_page_has_a_docstring() -> None:
    """Sphinx leaves out those without, in silence."""
    found = []
    for module in reference.modules():
        for each in reference.public_names(module):
            if each.has_page and inspect.isclass(each.value) and not issubclass(each.value, BaseException):
                hidden = set(re.findall(r"\w+", options_of(each.value, set()).partition(":exclude-members:")[2]))
                own = [name for name in vars(each.value) if not name.startswith("_") and name not in hidden]
                members = [name for name in own if callable(getattr(each.value, name))]
                found += [f"{each.path}.{name}" for name in members if not inspect.getdoc(getattr(each.value, name))]
    assert sorted(set(found)) == []


def test_what_keras_has_is_not_ours() -> None:
    assert is_ours(stratagem.MirroredStrategy)
    assert not is_ours(stratagem.keras.Model)


class Links(HTMLParser):
    """The links of a page, and the places in it that links may name."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.places |= {given["id"]} if given.get("id") else set()
        self.links += [str(given[name]) for name in ("href", "src") if given.get(name)]


def links_of(page: Path) -> Links:
    links = Links()
    links.feed(page.read_text("utf-8"))
    return links


@pytest.mark.multiprocess
@pytest.mark.timeout(900)
def test_site_is_built_without_a_warning_and_its_links_lead_somewhere(tmp_path: Path) -> None:
    jax.devices()  # JAX has started, and warns when its process forks: Sphinx does
    assert build(tmp_path / "site") == 0
    pages = {page.resolve(): links_of(page) for page in (tmp_path / "site").rglob("*.html")}
    assert len(pages) > 250
    # From a source, viewcode names a class by the public module of the first class in that file, which may be another:
    # the link leads to the page of the class, and to no place in it.
    sources = (tmp_path / "site" / "_modules").resolve()
    broken = []
    for page, links in pages.items():
        for link in links.links:
            path, _, place = unquote(link).partition("#")
            if ":" in path or link.startswith("//"):
                continue
            target = (page.parent / path.partition("?")[0]).resolve() if path else page
            has_place = not place or target not in pages or place in pages[target].places
            if not target.is_file() or not (has_place or page.is_relative_to(sources)):
                broken.append(f"{page.name}: {link}")
    assert broken == []
