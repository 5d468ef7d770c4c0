"""`tf.keras.utils.get_file` with a path, as Keras 2 took it."""

from __future__ import annotations

import shutil
import tarfile
import warnings
from pathlib import Path

import pytest

import stratagem.tf as tf
from stratagem.tf.keras.old_archives import inside


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A folder `texts` with one file, and its archives in `origin`."""
    inside = tmp_path / "made" / "texts"
    inside.mkdir(parents=True)
    (inside / "spa.txt").write_text("Go.\tVe.")
    for kind in ("zip", "gztar"):
        shutil.make_archive(str(tmp_path / "origin" / "texts"), kind, inside.parent, "texts")
    return tmp_path


def test_an_archive_is_unpacked_beside_the_path(texts: Path) -> None:
    wanted = texts / "data" / "texts.zip"
    found = tf.keras.utils.get_file(str(wanted), origin=(texts / "origin/texts.zip").as_uri(), extract=True)
    assert found == str(wanted)
    assert (wanted.parent / "texts" / "spa.txt").read_text() == "Go.\tVe."


def test_untar_gives_the_folder(texts: Path) -> None:
    wanted = texts / "data" / "texts"
    for _ in range(2):  # the second time it is there
        found = tf.keras.utils.get_file(wanted, (texts / "origin/texts.tar.gz").as_uri(), untar=True)
        assert found == str(wanted)
    assert (wanted / "spa.txt").read_text() == "Go.\tVe."


def test_nothing_of_an_archive_lands_outside(tmp_path: Path) -> None:
    """Where Python has no filter of its own, before 3.11.4."""
    names = ["a/b.txt", "../c.txt", "/etc/d.txt", "a/../../e.txt", "."]
    members = [tarfile.TarInfo(name) for name in names]
    members[-1].type = tarfile.DIRTYPE
    link = tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc"
    assert [each.name for each in inside([*members, link], str(tmp_path))] == ["a/b.txt", "."]


@pytest.mark.parametrize("has_filter", [True, False])
def test_tar_archives_are_unpacked(texts: Path, has_filter: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_filter:
        monkeypatch.delattr("tarfile.data_filter", raising=False)
    wanted = texts / "elsewhere" / "texts"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of newer Pythons without the filter
        tf.keras.utils.get_file(wanted, (texts / "origin/texts.tar.gz").as_uri(), untar=True)
    assert (wanted / "spa.txt").read_text() == "Go.\tVe."


def test_a_path_below_the_cache(texts: Path) -> None:
    origin = (texts / "origin/texts.zip").as_uri()
    found = tf.keras.utils.get_file("a/texts.zip", origin, cache_dir=str(texts), cache_subdir="kept")
    assert found == str(texts / "kept" / "a" / "texts.zip")
    assert Path(found).read_bytes() == (texts / "origin/texts.zip").read_bytes()


def test_a_name_is_keras_3s(texts: Path) -> None:
    origin = (texts / "origin/texts.zip").as_uri()
    found = tf.keras.utils.get_file("texts.zip", origin, extract=True, cache_dir=str(texts))
    assert found == str(texts / "datasets" / "texts_extracted")
    assert (Path(found) / "texts" / "spa.txt").exists()
