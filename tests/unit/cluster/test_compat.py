from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
import jax
from jax._src import distributed
from stratagem.cluster import compat

distributed.global_state.process_id = 1
compat.keep_programs(sys.argv[1])
assert jax.jit(lambda x: 2 * x)(3.0) == 6.0
"""


@pytest.mark.parametrize(("folder", "written"), [("own", True), ("common", False)])
def test_a_process_other_than_the_first_keeps_programs_only_in_its_own_folder(
    folder: str, written: bool, tmp_path: Path
) -> None:
    variables = {
        **os.environ,
        "JAX_ENABLE_COMPILATION_CACHE": "true",
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path / "own")], env=variables, check=True)

    assert any(file.name.startswith("jit__lambda-") for file in (tmp_path / folder).iterdir()) is written
    assert not (tmp_path / ("common" if folder == "own" else "own")).exists()
