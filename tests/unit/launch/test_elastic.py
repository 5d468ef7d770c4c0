"""`stratagem run --spares` and `--elastic`: what it refuses, and what its processes are started with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stratagem.core.errors import ClusterError
from stratagem.launch.elastic import ElasticRun
from stratagem.launch.machine import Machine
from stratagem.launch.plan import Request


def made(**request: Any) -> ElasticRun:
    machine = Machine((0, 1), 2)
    command = ("train.py",)
    return ElasticRun(
        Request(command, **{"workers": 2, **request}), 2, 3, machine, Path(), grace_seconds=1.0, variables={}
    )


@pytest.mark.parametrize(
    "request_",
    [
        {"nodes": 2, "coordinator": "10.0.0.5:12345"},
        {"ps": 1},
        {"evaluator": True},
        {"devices_per_worker": 2},
    ],
    ids=str,
)
def test_what_a_spare_cannot_stand_for_is_refused(request_: dict[str, Any]) -> None:
    with pytest.raises(
        ClusterError, match="--spares or --elastic was given with --nodes, --ps, --evaluator or --devices"
    ):
        made(**request_)


def test_each_process_has_a_name_of_its_own_and_spares_the_cores_of_workers() -> None:
    plans = made()._plans
    assert [plan.name for plan in plans] == [f"process {number}" for number in range(5)]
    assert [plan.cores for plan in plans] == [(0,), (1,), (0,), (1,), (0,)]
    assert len({plan.environment["STRATAGEM_SECRET"] for plan in plans}) == 1
