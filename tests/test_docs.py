"""What README and docs say runs for somebody who has set nothing, and their links lead somewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.fresh import run_python

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


class Block(NamedTuple):
    """A block of Python in a page; one that begins with ```python run is run, others are compiled."""

    page: Path
    line: int
    is_run: bool
    code: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text()
        for found in re.finditer(r"^```python( run)?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            yield Block(page, text.count("\n", 0, found.start()) + 1, found[1] is not None, found[2])


BLOCKS = list(blocks())


def tier_of(block: Block) -> Any:
    """Return the mark of a block that is run: `make test` runs those that people paste first."""
    return pytest.mark.quick if block.page.name == "README.md" else ()


@pytest.mark.parametrize("block", [block for block in BLOCKS if not block.is_run], ids=str)
def test_block_compiles(block: Block) -> None:
    assert compile(block.code, str(block), "exec").co_names != ()


@pytest.mark.multiprocess
@pytest.mark.parametrize(
    "block", [pytest.param(block, marks=tier_of(block), id=str(block)) for block in BLOCKS if block.is_run]
)
def test_block_runs(block: Block, tmp_path: Path) -> None:
    """In a process of its own: many set up the devices or the cluster of their process."""
    done = run_python("-c", block.code, home=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.multiprocess
@pytest.mark.parametrize("page", ["README.md", "docs/first_steps.md"])
def test_program_that_readers_save_trains_on_two_workers(page: str, tmp_path: Path) -> None:
    program = next(block.code for block in BLOCKS if block.is_run and block.page == ROOT / page)
    (tmp_path / "train.py").write_text(program)
    done = run_python("-m", "stratagem", "run", "--workers", "2", "train.py", home=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Epoch {2 if page == 'README.md' else 3}/" in done.stdout


@pytest.mark.multiprocess
def test_first_diff_of_readme_makes_a_program_that_runs(tmp_path: Path) -> None:
    diff = re.findall(r"^```diff\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[0]
    before, after = ("".join(f"{line[2:]}\n" for line in diff.splitlines() if line[:1] != sign) for sign in "+-")
    assert len(set(after.splitlines()) - set(before.splitlines())) == 3
    given = (
        "import numpy as np\n\n"
        "def make_compiled_model():\n"
        "    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(10)])\n"
        "    model.compile('sgd', keras.losses.SparseCategoricalCrossentropy(from_logits=True))\n"
        "    return model\n\n"
        "class Batches(keras.utils.PyDataset):\n"
        "    def __len__(self): return 210\n"
        "    def __getitem__(self, step): return np.ones((8, 4), 'float32'), np.ones(8, 'int32')\n\n"
        "dataset = Batches()\n"
    )
    imports, _, rest = after.partition("\n\n")
    done = run_python("-c", f"{imports}\n{given}\n{rest}\nprint(keras.backend.backend())", home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Epoch 3/3" in done.stdout
    assert done.stdout.endswith("jax\n")


def imports_keras_too_early(code: str) -> bool:
    """Tell whether a program loads Keras before anything chose JAX."""
    for statement in ast.parse(code).body:
        names = [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else []
        names += [statement.module or ""] if isinstance(statement, ast.ImportFrom) else []
        packages = [name.partition(".")[0] for name in names]
        first = next((name for name in packages if name == "stratagem" or name.startswith("keras")), None)
        if first is not None:
            return first != "stratagem"
        if "KERAS_BACKEND" in ast.unparse(statement):
            return False
    return False


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import keras, stratagem", True),
        ("import numpy\nfrom keras import layers\nimport stratagem", True),
        ("import keras_hub", True),
        ("from stratagem import keras", False),
        ("import stratagem\nimport keras", False),
        ("import os\nos.environ['KERAS_BACKEND'] = 'jax'\nimport keras", False),
        ("import numpy", False),
    ],
)
def test_rule_finds_early_imports_of_keras(code: str, expected: bool) -> None:
    assert imports_keras_too_early(code) is expected


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_no_block_imports_keras_too_early(block: Block) -> None:
    assert not imports_keras_too_early(block.code)


@pytest.mark.parametrize("folder", ["examples", "benchmarks"])
def test_no_program_imports_keras_before_stratagem(folder: str) -> None:
    """Programs of Keras alone, to compare with, may."""
    files = {file: file.read_text() for file in (ROOT / folder).rglob("*.py")}
    with_stratagem = {file: text for file, text in files.items() if re.search("^(import|from) stratagem", text, re.M)}
    assert len(with_stratagem) > 10
    assert [str(file) for file, text in with_stratagem.items() if imports_keras_too_early(text)] == []


def test_no_docstring_imports_keras_before_stratagem() -> None:
    folders = ("loop", "tf")  # to be done where they are worked on
    files = [file for file in (ROOT / "src").rglob("*.py") if file.relative_to(ROOT / "src").parts[1] not in folders]
    early = [
        f"{file}: {line.strip()}"
        for file in files
        for line in file.read_text().splitlines()
        if re.search(r">>> import (\w+, )*keras\b", line)
    ]
    assert early == []


def anchors(page: Path) -> set[str]:
    """Return the names that headings of a page get on GitHub."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    broken = []
    for target in re.findall(r"\]\((?!\w+:)([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


def test_every_page_and_example_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    names = [page.name for page in (ROOT / "docs").glob("*.md") if page.name != "README.md"]
    examples = [f"../examples/{file.name}" for file in (ROOT / "examples").glob("*.py") if file.name != "digits.py"]
    assert [name for name in [*names, *examples] if f"({name})" not in index] == []


OTHERS_MESSAGES = (
    "No module named 'tensorflow'",
    "Terminating process because the JAX distributed service detected fatal errors",
)
"""Messages of Python and JAX on the page of troubleshooting."""


def texts_in_sources() -> str:
    """Return all pieces of text that stand in the sources, one on a line."""
    found = []
    for file in (ROOT / "src").rglob("*.py"):
        nodes = ast.walk(ast.parse(file.read_text("utf-8")))
        found += [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return "\n".join(found)


def test_messages_of_troubleshooting_are_those_of_the_sources() -> None:
    """What stands in the first column, without numbers and names of tasks, is a text of the sources."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    quoted = re.findall(r"^\| `([^`]+ [^`]+)` \|", page, re.MULTILINE)
    assert len(quoted) > 12
    texts = texts_in_sources()
    pieces = [
        piece.strip()
        for message in quoted
        if message not in OTHERS_MESSAGES
        for piece in re.split(
            r"\.\.\.|worker \d(?: \(\S+\))?|[\d.]+|MirroredStrategy|GPU|computes|'distribute'", message
        )
    ]
    assert [piece for piece in pieces if piece not in texts] == []


def test_files_named_in_the_architecture_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    named = re.findall(r"`(?!benchmarks/|tests/)((?:\w+/)+\w+\.py)`", text)
    assert len(named) > 20
    assert [file for file in named if not (ROOT / "src" / "stratagem" / file).is_file()] == []


@pytest.mark.parametrize(
    "file", sorted((ROOT / "src").rglob("*.py")), ids=lambda file: str(file.relative_to(ROOT / "src"))
)
def test_module_begins_with_a_noun_or_a_verb(file: Path) -> None:
    text = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
    assert text.split(" ")[0] not in (
        "",
        "How",
        "Of",
        "What",
        "When",
        "Where",
        "Whether",
        "Which",
        "Who",
        "Whoever",
        "Why",
    )
