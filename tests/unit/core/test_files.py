"""What lies in a folder."""

from __future__ import annotations

from pathlib import Path

from stratagem.core.files import files_in


def test_names_begin_and_end_so(tmp_path: Path) -> None:
    for name in (".a.1.tmp", ".a.tmp", ".a.b.2.tmp", "a.1.tmp", ".A.1.tmp", "[a].tmp"):
        (tmp_path / name).touch()
    assert {file.name for file in files_in(tmp_path, ".a.", ".tmp")} == {".a.1.tmp", ".a.b.2.tmp"}
    assert files_in(tmp_path, "[a]", "") == [tmp_path / "[a].tmp"]
    assert len(files_in(tmp_path)) == 6


def test_a_folder_that_is_none_has_no_files(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert files_in(tmp_path / "no such") == files_in(tmp_path / "file") == []
