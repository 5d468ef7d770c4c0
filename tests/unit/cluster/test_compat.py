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


STAND_INS = """
import numpy as np
from stratagem.cluster import compat
compat.start_with_stand_ins(200)
import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

own, *others = jax.devices()
assert (len(others), jax.process_index(), own.process_index) == (200, 0, 0)
assert [each.process_index for each in others] == list(range(1, 201))
for devices, rank in (([others[150], own], 1), ([own, others[3], others[7]], 0)):
    mesh = Mesh(np.array(devices), ("replica",))
    share = jax.make_array_from_process_local_data(
        NamedSharding(mesh, PartitionSpec("replica")), np.full((1, 4), 3.0, np.float32)
    )
    place = lambda rows: 2 * rows + jax.lax.axis_index("replica")
    spec = PartitionSpec("replica")
    placed = jax.jit(jax.shard_map(place, mesh=mesh, in_specs=spec, out_specs=spec))
    np.testing.assert_array_equal(placed(share).addressable_data(0), np.full((1, 4), 6.0 + rank))
"""


def test_a_process_alone_has_devices_that_stand_for_others() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STAND_INS], env={**os.environ, "JAX_PLATFORMS": "cpu"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
