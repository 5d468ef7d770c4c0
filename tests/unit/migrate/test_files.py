"""The command, from files to its exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stratagem.launch import cli
from stratagem.migrate.__main__ import main
from stratagem.migrate.files import programs_in

OLD = "import tensorflow as tf\nlayer = tf.keras.layers.Dense(10)  # logits\n"
NEW = OLD.replace("import tensorflow", "import stratagem.tf")


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


def test_a_file_is_shown_then_written_then_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(OLD)
    file.chmod(0o754)

    shown = run("--check", file)
    assert (shown.exit_code, file.read_text()) == (1, OLD)
    assert (
        f"--- {file}\n+++ {file}\n@@ -1,2 +1,2 @@\n-import tensorflow as tf\n+import stratagem.tf as tf\n"
        in shown.output
    )
    assert shown.output.endswith("1 to rewrite, 1 work as they are.\n")

    written = run("--write", file)
    assert (written.exit_code, file.read_text(), file.stat().st_mode & 0o777) == (0, NEW, 0o754)
    assert written.output.endswith("1 rewritten, 1 work as they are.\n")

    again = run("--write", "--check", file)
    assert (again.exit_code, file.read_text()) == (0, NEW)
    assert again.output == "Works as it is\n  tf.keras.layers.Dense (2)\n\n1 work as they are.\n"


def test_missing_names_fail_the_check_only(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("import stratagem.tf as tf\ntf.contrib.slim.conv()\n")
    assert [run(file).exit_code, run("--check", file).exit_code] == [0, 1]
    assert f"Missing: the program stops here\n  {file}:2:1: tf.contrib.slim.conv\n" in run(file).output


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.py").write_text(OLD)
    link = tmp_path / "link.py"
    link.symlink_to(tmp_path / "real.py")
    assert run("--write", link).exit_code == 0
    assert (link.is_symlink(), (tmp_path / "real.py").read_text()) == (True, NEW)


@pytest.mark.parametrize(
    ("data", "new"),
    [
        (OLD.encode().replace(b"\n", b"\r\n"), NEW.encode().replace(b"\n", b"\r\n")),
        (b"\xef\xbb\xbf" + OLD.encode(), b"\xef\xbb\xbf" + NEW.encode()),
        (b"# -*- coding: latin-1 -*-\n# \xe9\n" + OLD.encode(), b"# -*- coding: latin-1 -*-\n# \xe9\n" + NEW.encode()),
        (b"import tensorflow as tf", b"import stratagem.tf as tf"),
        (b"#!/usr/bin/env python\n\n" + OLD.encode(), b"#!/usr/bin/env python\n\n" + NEW.encode()),
        (b"", b""),
    ],
    ids=["crlf", "bom", "latin-1", "no last newline", "shebang", "empty"],
)
def test_bytes_that_do_not_matter_stay(data: bytes, new: bytes, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_bytes(data)
    assert run("--write", file).exit_code == 0
    assert file.read_bytes() == new


@pytest.mark.parametrize(
    ("data", "found", "repair"),
    [
        (
            b"import tensorflow as tf\nprint 'two'\n",
            "Line 2 is not Python: Missing parentheses in call to 'print'.",
            "run 2to3 if the program is for Python 2",
        ),
        (b"import tensorflow\n# \xff\xfe\n", "The file is not in the encoding that it declares", "Save it as UTF-8"),
        (b"# coding: klingon\n", "The file is not in the encoding that it declares", "Save it as UTF-8"),
        (None, "The file cannot be read: No such file or directory", "Name a file that can be read"),
    ],
    ids=["python 2", "not utf-8", "unknown encoding", "not there"],
)
def test_files_that_cannot_be_read_are_named_and_the_others_done(
    data: bytes | None, found: str, repair: str, tmp_path: Path
) -> None:
    bad, good = tmp_path / "bad.py", tmp_path / "good.py"
    if data is not None:
        bad.write_bytes(data)
    good.write_text(OLD)
    done = run("--write", bad, good)
    assert done.exit_code == 2
    assert f"stratagem: {bad}: {found}" in done.output
    assert repair in done.output
    assert good.read_text() == NEW
    assert data is None or bad.read_bytes() == data


def test_folders_are_searched_without_what_is_not_the_users(tmp_path: Path) -> None:
    for name in ("b.py", "a/c.py", "a/d.ipynb", "a/e.txt", ".git/f.py", "__pycache__/g.py", "venv/lib/h.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    assert [str(path.relative_to(tmp_path)) for path in programs_in((tmp_path,))] == ["a/c.py", "a/d.ipynb", "b.py"]


def test_a_notebook_names_its_cells(tmp_path: Path) -> None:
    file = tmp_path / "train.ipynb"
    file.write_text(
        '{"cells": [{"cell_type": "code", "source": ["import tensorflow as tf\\n", "tf.nonsense"]}, '
        '{"cell_type": "code", "source": "no python"}]}'
    )
    done = run("--write", file)
    assert f"{file}:cell 1:2:1: tf.nonsense\n" in done.output
    assert f"{file}:cell 2:1:1: a cell that is not Python\n" in done.output
    assert '"import stratagem.tf as tf\\n", "tf.nonsense"' in file.read_text()


def test_the_command_line_hands_over(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").write_text(OLD)
    assert cli.main(["migrate", "--check", str(tmp_path)]) == 1
    assert capfd.readouterr().out.endswith("1 to rewrite, 1 work as they are.\n")
    assert cli.main(["migrate"]) == 2


def test_without_libcst_the_extra_is_named(tmp_path: Path) -> None:
    (tmp_path / "libcst.py").write_text("raise ImportError('not here')")
    done = subprocess.run(
        [sys.executable, "-m", "stratagem.migrate", "train.py"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("stratagem: stratagem migrate needs libcst, which cannot be imported: not here.")
    assert 'pip install "stratagem[migrate]"' in done.stderr
