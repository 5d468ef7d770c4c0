"""Pages of results say what they were measured on."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Script = Callable[[str], Any]


@pytest.mark.parametrize(
    ("described", "wanted"),
    [
        ("model name\t: AMD EPYC\nflags\t\t: fma avx avx2\n", "AMD EPYC with AVX2"),
        ("model name\t: AMD EPYC\nflags\t\t: fma avx avx2 avx512f avx512dq\n", "AMD EPYC with AVX-512"),
        ("model name\t: Old\nflags\t\t: sse2\n\nmodel name\t: Another\n", "Old"),
    ],
)
def test_a_processor_is_named_with_its_widest_vectors(
    described: str, wanted: str, script: Script, tmp_path: Path
) -> None:
    """Networks take other ratios with AVX-512: the name of the processor may not tell it."""
    info = tmp_path / "cpuinfo"
    info.write_text(described)
    assert script("pages").processor(info) == wanted


def test_a_machine_without_a_name_is_named_by_its_kind(script: Script, tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nFeatures\t: fp asimd\n")
    assert script("pages").processor(info) == platform.machine()
