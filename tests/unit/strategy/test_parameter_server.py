"""How many workers a `ParameterServerStrategy` asks for."""

from __future__ import annotations

from typing import Any

import pytest

import stratagem
from stratagem.core.errors import InputError, PeerError
from stratagem.strategy.parameter_server import _options_of


def test_one_worker_is_enough_unless_somebody_says_otherwise() -> None:
    options = _options_of(3, None, {})
    assert (options.min_workers, options.below_min_seconds) == (1, 300.0)
    assert _options_of(3, None, {"STRATAGEM_MIN_WORKERS": "2"}).min_workers == 2
    asked = stratagem.ElasticOptions(2, below_min_seconds=7.0)
    for variables in ({}, {"STRATAGEM_MIN_WORKERS": "2"}):
        assert _options_of(3, asked, variables) == asked


@pytest.mark.parametrize(
    ("asked", "variables", "kind", "message"),
    [
        (stratagem.ElasticOptions(4), {}, InputError, "started with 3 workers; min_workers is 4"),
        (stratagem.ElasticOptions(1, 8), {}, InputError, r"max_workers=8, and the cluster has 3 worker\(s\)"),
        (stratagem.ElasticOptions(1), {"STRATAGEM_MIN_WORKERS": "2"}, PeerError, "was given --elastic 2:3"),
        (None, {"STRATAGEM_MIN_WORKERS": "two"}, InputError, "min_workers is 0"),
    ],
    ids=str,
)
def test_numbers_that_cannot_be_are_refused(asked: Any, variables: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        _options_of(3, asked, variables)


def test_a_cluster_in_this_process_loses_nobody() -> None:
    strategy = stratagem.ParameterServerStrategy(elastic=stratagem.ElasticOptions(4, 8))
    assert strategy.workers.dispatch.least == 1
    strategy.close()
