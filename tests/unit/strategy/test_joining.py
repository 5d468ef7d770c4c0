"""What a process of a run whose workers may change reads in its environment."""

from __future__ import annotations

import pytest

from stratagem.core.errors import ClusterError
from stratagem.mesh.worker_counts import Bounds
from stratagem.strategy.joining import bounds_in


@pytest.mark.parametrize(("said", "bounds", "may_change"), [("2,4", Bounds(2, 4), True), ("3,3", Bounds(3, 3), False)])
def test_the_launcher_says_how_many_workers_there_may_be(said: str, bounds: Bounds, may_change: bool) -> None:
    assert bounds_in({"STRATAGEM_ELASTIC_WORKERS": said}) == bounds
    assert bounds.may_change is may_change


@pytest.mark.parametrize("environ", [{}, {"STRATAGEM_ELASTIC_WORKERS": "3"}, {"STRATAGEM_ELASTIC_WORKERS": "a,b"}])
def test_an_environment_that_does_not_say_so_is_an_error(environ: dict[str, str]) -> None:
    with pytest.raises(ClusterError, match="STRATAGEM_ELASTIC is set, and STRATAGEM_ELASTIC_WORKERS is"):
        bounds_in(environ)
