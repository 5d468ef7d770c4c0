"""GPUs that a process was given, without starting a driver."""

from __future__ import annotations

from collections.abc import Mapping

from stratagem.core.environment import CUDA_VISIBLE_DEVICES


def chosen_gpus(environ: Mapping[str, str]) -> list[str] | None:
    """Return the GPUs that CUDA_VISIBLE_DEVICES names; None if it is not set.

    Args:
        environ: Environment of the process.

    Example:
        >>> chosen_gpus({"CUDA_VISIBLE_DEVICES": "2, 3, -1, 4"}), chosen_gpus({})
        (['2', '3'], None)
    """
    chosen = environ.get(CUDA_VISIBLE_DEVICES)
    if chosen is None:
        return None
    names = [name.strip() for name in chosen.split(",")]
    # As CUDA does it: the first name that is no device ends the list, so "-1" hides all.
    hidden = next((place for place, name in enumerate(names) if name in ("", "-1")), len(names))
    return names[:hidden]
