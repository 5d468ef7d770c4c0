"""TFRecord files: read as TensorFlow reads them, written as it writes them, and what is damaged is found."""

from __future__ import annotations

import gc
import gzip
import pickle
import threading
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from stratagem.core.errors import InputError, UsageError
from stratagem.data import Dataset, TFRecordDataset, TFRecordWriter, write_tfrecord
from stratagem.data.files import tfrecord
from stratagem.data.files.byte_file import ByteFile
from stratagem.data.files.tfrecord import HEADER_BYTES, data_of, framed, next_intact, size_of
from stratagem.data.nodes import walk

GOLDEN = Path(__file__).parent / "golden"
"""Four records that TensorFlow 2.21 wrote, in three files; `test_example` says what is in them."""

RECORDS = [b"", b"one\0", b"x" * 5000, b"\0" * 70, bytes(range(256)) * 300, b"last"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_tfrecord(tmp_path / "a.tfrecord", RECORDS)
    return tmp_path / "a.tfrecord"


def records(*args: object, **kwargs: object) -> list[bytes]:
    return list(TFRecordDataset(*args, **kwargs).as_numpy_iterator())


def place_of(number: int) -> int:
    return sum(len(framed(record)) for record in RECORDS[:number])


def changed(file: Path, place: int) -> str:
    """Turn over one bit."""
    content = bytearray(file.read_bytes())
    content[place] ^= 16
    file.write_bytes(content)
    return str(file)


def test_files_of_tensorflow_are_read_and_written_alike(tmp_path: Path) -> None:
    plain = records(GOLDEN / "plain.tfrecord")
    assert len(plain) == 4
    assert sum(len(record) + 16 for record in plain) == (GOLDEN / "plain.tfrecord").stat().st_size
    for kind in ("gzip", "zlib"):
        assert records(GOLDEN / f"{kind}.tfrecord", compression_type=kind.upper()) == plain
        write_tfrecord(tmp_path / kind, plain, kind.upper())
        assert records(tmp_path / kind, kind.upper()) == plain
    write_tfrecord(tmp_path / "plain", plain)
    assert (tmp_path / "plain").read_bytes() == (GOLDEN / "plain.tfrecord").read_bytes()
    assert gzip.decompress((tmp_path / "gzip").read_bytes()) == (tmp_path / "plain").read_bytes()
    assert zlib.decompress((tmp_path / "zlib").read_bytes()) == (tmp_path / "plain").read_bytes()


def test_records_by_position(file: Path) -> None:
    dataset = TFRecordDataset([str(file), bytes(file)])
    assert (len(dataset), dataset.element_spec.shape, dataset.element_spec.dtype) == (12, (), object)
    assert list(dataset.as_numpy_iterator()) == RECORDS * 2
    order = [int(i) for i in dataset.range(12).shuffle(12, seed=5)]
    assert list(dataset.shuffle(12, seed=5).as_numpy_iterator()) == [(RECORDS * 2)[i] for i in order]
    assert [list(batch) for batch in dataset.batch(5).as_numpy_iterator()][1] == (RECORDS * 2)[5:10]
    assert records(np.array(str(file))) == RECORDS


def test_many_small_records_and_few_large_ones_are_walked_alike(tmp_path: Path) -> None:
    sizes = np.random.default_rng(0).permutation([3] * 30_000 + [5, 100_000, 7, 600_000] * 2).tolist()
    some = [bytes([size % 251]) * size for size in sizes]
    write_tfrecord(tmp_path / "a", some)
    assert records(tmp_path / "a") == some


def test_an_empty_file_has_no_record(tmp_path: Path) -> None:
    write_tfrecord(tmp_path / "empty", [])
    write_tfrecord(tmp_path / "empty.gz", [], "GZIP")
    assert records(tmp_path / "empty") == []
    assert records(tmp_path / "empty.gz", "GZIP") == []
    (tmp_path / "nothing").touch()
    assert records(tmp_path / "nothing", "GZIP") == []


def test_threads_and_other_processes(file: Path) -> None:
    dataset = TFRecordDataset(file)
    (node,) = walk(dataset._node)
    copy = pickle.loads(pickle.dumps(node))
    block = copy.stream((0,)).pull(9)
    assert block.elements() == RECORDS
    wrong = []

    def read(seed: int) -> None:
        order = np.random.default_rng(seed).integers(0, len(RECORDS), 500)
        found = block.select(order).elements()
        wrong.extend(k for k, i in enumerate(order) if found[k] != RECORDS[i])

    threads = [threading.Thread(target=read, args=[seed]) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_damaged_data_are_an_error_or_left_out(
    file: Path, compression: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(file, place_of(2) + 500)
    if compression:
        file.write_bytes(gzip.compress(file.read_bytes()))
    with pytest.raises(InputError, match=rf"the data has a wrong checksum in record 2 at byte {place_of(2)}\."):
        records(file, compression)
    dataset = TFRecordDataset(file, compression, on_corrupt="skip")
    assert list(dataset.as_numpy_iterator()) == RECORDS[:2] + RECORDS[3:]
    assert list(dataset.as_numpy_iterator()) == RECORDS[:2] + RECORDS[3:]
    assert dataset.skipped_records == {str(file): 1}
    assert capsys.readouterr().err.count("1 damaged record left out") == 1


def test_a_damaged_length_costs_one_record(file: Path) -> None:
    for number in (2, 4):
        changed(file, place_of(number) + 6)  # a length of 2**52: nothing of that size is allocated
    with pytest.raises(InputError, match=rf"the length has a wrong checksum in record 2 at byte {place_of(2)}\."):
        records(file)
    dataset = TFRecordDataset(file, on_corrupt="skip")
    assert len(dataset) == 4
    assert list(dataset.as_numpy_iterator()) == [RECORDS[k] for k in (0, 1, 3, 5)]
    assert dataset.skipped_records == {str(file): 2}


def test_a_damaged_length_in_a_compressed_file_costs_the_rest(file: Path) -> None:
    file.write_bytes(gzip.compress(Path(changed(file, place_of(2))).read_bytes()))
    with pytest.raises(InputError, match=r"the length has a wrong checksum in record 2"):
        records(file, "GZIP")
    assert records(file, "GZIP", on_corrupt="skip") == RECORDS[:2]


@pytest.mark.parametrize("left", [1, 11, 12, 500])
def test_a_record_that_is_cut_short(file: Path, left: int) -> None:
    file.write_bytes(file.read_bytes()[: place_of(2) + left])
    expected = rf"the end is missing in record 2 at byte {place_of(2)}\."
    with pytest.raises(InputError, match=expected):
        len(TFRecordDataset(file))
    assert records(file, on_corrupt="skip") == RECORDS[:2]
    file.write_bytes(gzip.compress(file.read_bytes()))
    with pytest.raises(InputError, match=r"in record 2 at"):
        records(file, "GZIP")


def test_a_compressed_file_that_is_cut_short(file: Path) -> None:
    whole = gzip.compress(file.read_bytes())
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="cannot be decompressed as GZIP: its end is missing"):
        records(file, "GZIP")
    dataset = TFRecordDataset(file, "GZIP", on_corrupt="skip")
    found = list(dataset.as_numpy_iterator())
    assert found == RECORDS[: len(found)]
    assert dataset.skipped_records == {str(file): 1}


def test_compressed_files_may_be_joined(tmp_path: Path) -> None:
    parts = [gzip.compress(framed(record)) for record in RECORDS]
    (tmp_path / "joined").write_bytes(b"".join(parts))
    assert records(tmp_path / "joined", "GZIP") == RECORDS


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "garbage").write_bytes(np.random.default_rng(0).bytes(5000))
    with pytest.raises(
        InputError, match=r"garbage is damaged, or is not a TFRecord file: the length .* record 0 at byte 0"
    ):
        records(tmp_path / "garbage")
    with pytest.raises(InputError, match="garbage cannot be decompressed as ZLIB"):
        records(tmp_path / "garbage", "ZLIB")
    for compression in (None, "ZLIB"):
        with pytest.raises(InputError, match="garbage"):
            records(tmp_path / "garbage", compression, on_corrupt="skip")
    with pytest.raises(InputError, match="is a folder"):
        records(tmp_path)
    for compression in (None, "GZIP"):
        with pytest.raises(InputError, match=r"missing cannot be read: No such file"):
            records(tmp_path / "missing", compression, on_corrupt="skip")


def test_a_wrong_compression_is_no_damage(file: Path) -> None:
    with pytest.raises(InputError, match="cannot be decompressed as GZIP"):
        records(file, "GZIP", on_corrupt="skip")
    file.write_bytes(gzip.compress(file.read_bytes()))
    with pytest.raises(InputError, match="compressed files need compression_type"):
        records(file, on_corrupt="skip")


def test_a_file_that_is_cut_short_while_it_is_read(file: Path) -> None:
    dataset = TFRecordDataset(file)
    assert len(dataset) == 6
    file.write_bytes(b"")
    with pytest.raises(InputError, match=r"a\.tfrecord ends at byte 0"):
        list(dataset)


def test_wrong_arguments() -> None:
    with pytest.raises(InputError, match="compression_type is 'gzip'"):
        TFRecordDataset("a", "gzip")
    with pytest.raises(InputError, match="on_corrupt is True"):
        TFRecordDataset("a", on_corrupt=True)
    with pytest.raises(InputError, match="not the name of a file"):
        TFRecordDataset([3])


def test_a_file_gets_its_name_when_it_is_whole(file: Path) -> None:
    before = file.read_bytes()
    with pytest.raises(InputError, match="type int"):
        write_tfrecord(file, [b"new", 3])
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == ["a.tfrecord"]
    writer = TFRecordWriter(file.parent / "new" / "b", SimpleNamespace(compression_type="GZIP"))
    writer.write(bytearray(b"new"))
    assert list((file.parent / "new").glob("b")) == []
    writer.close()
    writer.close()
    assert records(file.parent / "new" / "b", "GZIP") == [b"new"]
    with pytest.raises(UsageError, match=r"after close\(\)"):
        writer.write(b"lost")


def test_what_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="A record is of type str"):
        write_tfrecord(tmp_path / "a", ["text"])
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"a cannot be written: .*[Ff]ile"):
        write_tfrecord(tmp_path / "file" / "a", [])
    with pytest.raises(InputError, match="compression_type is 'LZ4'"):
        TFRecordWriter(tmp_path / "a", "LZ4")


def test_a_dataset_names_the_files(tmp_path: Path) -> None:
    for number in range(3):
        write_tfrecord(tmp_path / f"{number}.tfrecord", [b"%d%d" % (number, k) for k in range(2)])
        write_tfrecord(tmp_path / f"{number}.gz", [b"%d%d" % (number, k) for k in range(2)], "GZIP")
    for pattern, kind in (("*.tfrecord", None), ("*.gz", "GZIP")):
        names = Dataset.list_files(tmp_path / pattern, seed=3)
        dataset = TFRecordDataset(names, kind)
        pickle.dumps(dataset._node)  # reader processes need that
        orders = [[record.decode() for record in dataset.as_numpy_iterator()] for _ in range(4)]
        assert sorted(orders[0]) == ["00", "01", "10", "11", "20", "21"]
        assert [order[0][0] for order in orders] == [Path(next(iter(names)).numpy().decode()).name[0] for _ in range(4)]
        assert len({tuple(order) for order in orders}) > 1
    mixed = Dataset.list_files(tmp_path / "*.tfrecord", shuffle=False).interleave(TFRecordDataset, cycle_length=3)
    assert list(mixed.as_numpy_iterator()) == [b"00", b"10", b"20", b"01", b"11", b"21"]


def test_damaged_records_of_files_that_a_dataset_names(file: Path) -> None:
    dataset = TFRecordDataset(Dataset.from_tensor_slices([changed(file, place_of(1) + 12)]), on_corrupt="skip")
    assert list(dataset.as_numpy_iterator()) == RECORDS[:1] + RECORDS[2:]
    assert dataset.skipped_records == {str(file): 1}


def test_a_writer_that_is_not_closed_says_that_its_records_are_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = TFRecordWriter(tmp_path / "kept")
    writer.write(b"one")
    writer.close()
    del writer
    assert "lost" not in capsys.readouterr().err
    writer = TFRecordWriter(tmp_path / "forgotten")
    writer.write(b"one")
    del writer
    gc.collect()
    assert "forgotten was not written: its TFRecordWriter was never closed" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["kept"]


def test_a_record_has_sixteen_bytes_round_its_data() -> None:
    record = framed(b"three")
    assert len(record) == 21
    assert size_of(record[:HEADER_BYTES]) == 21
    assert data_of(b"#" + record, 1, 22) == b"three"


def test_changes_are_found() -> None:
    record = bytearray(framed(b"three"))
    record[14] ^= 1
    assert size_of(bytes(record[:HEADER_BYTES])) == 21
    assert data_of(bytes(record), 0, 21) is None
    record[0] ^= 1
    assert size_of(bytes(record[:HEADER_BYTES])) is None
    assert size_of(bytes(record[: HEADER_BYTES - 1])) is None


@pytest.mark.parametrize("block", [13, 32, 1 << 18])
@pytest.mark.parametrize("gap", [b"", b"\0" * 70, bytes(range(256)), framed(b"damaged")[:-1] + b"?"])
def test_the_next_intact_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gap: bytes, block: int) -> None:
    monkeypatch.setattr(tfrecord, "_BLOCK", block)
    path = tmp_path / "file"
    path.write_bytes(gap + framed(b"one") + framed(b""))
    file = ByteFile(str(path))
    assert next_intact(file, 0) == len(gap)
    assert next_intact(file, len(gap) + 1) == len(gap) + 19
    assert next_intact(file, len(gap) + 20) == file.size


def test_no_intact_record(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text that is no record " * 9)
    assert next_intact(ByteFile(str(tmp_path / "file")), 0) == 23 * 9
