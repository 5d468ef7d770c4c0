"""Files of `Inspect`: the state before a step and its batch, the finding, and digests of the states of a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np

from stratagem.checkpoint import storage
from stratagem.core.files import draft_of
from stratagem.core.log import logger
from stratagem.feed.batch import GlobalBatch
from stratagem.inspection.finding import Finding
from stratagem.inspection.states import Watched
from stratagem.mesh.mesh import ReplicaMesh
from stratagem.mesh.same_values import checksums_of

_DIGESTS: Final = "digests.jsonl"


def save_step(
    folder: str, watched: Watched, finding: Finding, state: Sequence[jax.Array], batch: GlobalBatch
) -> str | None:
    """Write a step so that it can be run again; the chief writes. All workers call it together.

    The files are `step-N.json`, the finding, and `step-N.safetensors`, whose arrays are the variables by name, and
    those of the batch in their order as `batch/0` and so on, in blocks of equal size for each replica.

    Args:
        folder: The folder to write to.
        watched: The variables of the step.
        finding: The finding.
        state: The values that the step is given.
        batch: Its batch.

    Returns:
        The name of the files without their endings; None if they could not be written, which is logged.
    """
    mesh = watched.step.mesh
    arrays = {name: _whole(mesh, value) for name, value in zip(watched.names, state, strict=True)}
    arrays |= {f"batch/{i}": _whole(mesh, leaf) for i, leaf in enumerate(jax.tree.leaves(batch.data))}
    path = Path(folder, f"step-{finding.step}")
    if watched.strategy.is_chief:
        said = {**finding.as_json(), "shares": batch.split.shares, "steps": batch.steps}
        try:
            known = {name: array for name, array in arrays.items() if storage.can_hold(array.dtype)}
            storage.write(str(path), json.dumps(said), known)
            with draft_of(path.with_suffix(".json")) as draft:
                draft.write_text(json.dumps(said, indent=2) + "\n")
        except OSError as error:
            logger.error("%s could not be written: %s", path, error)
            return None
    return str(path)


def _whole(mesh: ReplicaMesh, value: Any) -> np.ndarray:
    if not isinstance(value, jax.Array):
        return np.asarray(value)
    if jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    if value.is_fully_addressable and not mesh.multi_process:
        return np.asarray(value)
    return np.asarray(mesh.whole(value).addressable_data(0))


def digest_of(values: Mapping[str, jax.Array]) -> str:
    """Return a digest of the bits of values, as this process holds them.

    Args:
        values: Arrays by name. The number of replicas that hold one does not matter.
    """
    checksums = {name: sorted(set(numbers)) for name, numbers in checksums_of(values).items()}
    return hashlib.sha256(json.dumps(sorted(checksums.items())).encode()).hexdigest()


class Digests:
    """The file `digests.jsonl` in a folder: a line for each state whose digest is kept.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: str) -> None:
        self._file = Path(folder, _DIGESTS)

    def begin(self) -> None:
        """Begin an empty file, for a run that begins."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text("")

    def add(self, step: int, digest: str) -> None:
        """Add the digest of the state after a step."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as file:
            file.write(json.dumps({"step": step, "digest": digest}) + "\n")

    def of_step(self, step: int) -> str | None:
        """Return the digest of the state after a step, or None if there is none."""
        found = None
        try:
            lines = self._file.read_text().splitlines()
        except FileNotFoundError:
            return None
        for line in lines:
            said = _said(line)
            found = said["digest"] if said.get("step") == step else found
        return found


def _said(line: str) -> dict[str, Any]:
    """Return what a line says; nothing where a killed process has written a part of it."""
    try:
        said = json.loads(line)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}
