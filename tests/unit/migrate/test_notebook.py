from __future__ import annotations

import json

import pytest

from stratagem.core.errors import InputError
from stratagem.migrate import notebook
from stratagem.migrate.program import migrate

IMPORT = "import tensorflow as tf\n"
CELLS = [
    ("markdown", ["# Title"]),
    ("code", ["%matplotlib inline\n", "!pip install \\\n", "    tensorflow\n", IMPORT, "tf.data?"]),
    ("code", ["%%writefile model.py\n", IMPORT, "def f():\n", "    !ls\n", "    %time tf.nonsense()\n"]),
    ("code", ["%%bash\n", "import nothing || true"]),
    ("code", ["print 'Python 2'"]),
    ("code", ["text = '''\n", "%not magic\n", "'''\n", "files = !ls *.py"]),
    ("code", ["!ls\n", "print('%d'\n", "      %(3 if 1\n", "        != 2 else 1))"]),
    ("code", []),
    ("code", "x = tf.nonsense()"),
]


def text_of(cells: list[tuple[str, object]], **style: object) -> str:
    content = {"cells": [{"cell_type": kind, "source": source} for kind, source in cells], "nbformat": 4}
    return json.dumps(content, **style)


@pytest.mark.parametrize("style", [{"indent": 1}, {"indent": 2, "ensure_ascii": False}, {}])
def test_only_the_imports_of_a_notebook_change(style: dict[str, object]) -> None:
    old = text_of(CELLS, **style) + "\n"
    book = notebook.read(old)
    new = book.text_with(migrate(book.program).text)

    assert new == old.replace("import tensorflow as tf", "import stratagem.tf as tf")
    assert book.text_with(book.program) == old
    assert book.unread == (5,)


def test_findings_lie_in_cells() -> None:
    book = notebook.read(text_of(CELLS))
    (missing,) = [finding for finding in migrate(book.program).findings if finding.what == "tf.nonsense"]
    assert [(*book.position(place.line), place.column) for place in missing.places] == [(9, 1, 5)]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"worksheets": []}', '{"cells": 3}'])
def test_what_is_no_notebook_is_explained(text: str) -> None:
    with pytest.raises(InputError, match="This is not a notebook of format 4") as error:
        notebook.read(text)
    assert "Open the notebook with Jupyter and save it" in str(error.value)
