"""Parts of the tests, so that several runs share them: `pytest --part 1/8`, `make test-rest PART=1/8`."""

from __future__ import annotations

import zlib

import pytest


def is_in_part(test: str, part: str) -> bool:
    """Return whether a test belongs to a part. All cases of one test function belong to the same.

    Args:
        test: Its id, `file::function[case]`.
        part: K/N: the K-th, from 1, of N parts.

    Raises:
        UsageError: There is no such part.
    """
    number, parts = map(int, part.split("/"))
    if not 1 <= number <= parts:
        raise pytest.UsageError(f"--part {part}: the first number goes from 1 to the second one")
    return zlib.crc32(test.partition("[")[0].encode()) % parts == number - 1
