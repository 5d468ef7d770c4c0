"""Options of elastic training, and what they refuse."""

from __future__ import annotations

import math
import re

import pytest

from stratagem.core.errors import InputError
from stratagem.elastic.options import ElasticOptions
from stratagem.elastic.state import Rules


@pytest.mark.parametrize(
    ("arguments", "found", "remedy"),
    [
        ({"min_workers": 0}, "min_workers is 0.", "for instance min_workers=2"),
        ({"min_workers": True}, "min_workers is True.", "for instance min_workers=2"),
        ({"min_workers": 2.0}, "min_workers is 2.0.", "for instance min_workers=2"),
        ({"min_workers": 3, "max_workers": 2}, "max_workers is 2, min_workers is 3.", "whole number, 3 or more"),
        ({"max_workers": "4"}, "max_workers is '4'", "Or leave max_workers out"),
        ({"below_min_seconds": -1}, "below_min_seconds is -1.", "below_min_seconds=600"),
        ({"below_min_seconds": math.inf}, "below_min_seconds is inf.", "below_min_seconds=600"),
        ({"below_min_seconds": math.nan}, "below_min_seconds is nan.", "below_min_seconds=600"),
        ({"below_min_seconds": "10"}, "below_min_seconds is '10'.", "below_min_seconds=600"),
        ({"batch": "worker"}, "batch is 'worker'.", 'batch="global" or batch="per_worker"'),
        ({"shards": "copy"}, "shards is 'copy'.", 'shards="copies" or shards="backup"'),
        ({"batch": 32}, "batch is 32.", 'batch="global" or batch="per_worker"'),
    ],
)
def test_wrong_values_are_refused(arguments: dict[str, object], found: str, remedy: str) -> None:
    with pytest.raises(InputError, match=re.escape(found)) as error:
        ElasticOptions(**arguments)
    assert remedy in str(error.value)
    assert "Why it matters" in str(error.value)


def test_the_largest_number_is_that_at_the_start_unless_another_is_named() -> None:
    assert ElasticOptions().largest(3) == 3
    assert ElasticOptions(max_workers=8).largest(3) == 8
    assert Rules(3, ElasticOptions(2)).most == 3


@pytest.mark.parametrize("workers", [1, 5])
def test_a_start_outside_the_limits_is_refused(workers: int) -> None:
    with pytest.raises(InputError, match=f"started with {workers} workers; min_workers is 2, max_workers is 4"):
        Rules(workers, ElasticOptions(2, 4))


def test_a_start_within_the_limits() -> None:
    assert [Rules(workers, ElasticOptions(2, 4)).wanted for workers in (2, 3, 4)] == [2, 3, 4]


def test_options_cross_the_network_and_are_said() -> None:
    for options in (ElasticOptions(), ElasticOptions(2, 4, 7.5, "per_worker", "backup")):
        assert ElasticOptions.decode(options.encode()) == options
    assert str(ElasticOptions(2)) == "min_workers=2, below_min_seconds=600"
    assert str(ElasticOptions(batch="per_worker")) == "min_workers=1, below_min_seconds=600, batch='per_worker'"
    assert str(ElasticOptions(shards="backup")) == "min_workers=1, below_min_seconds=600, shards='backup'"
    for wrong in (None, [1, None, 600.0], [1, None, 600.0, "global"], [1, None, 600.0, "global", "copies", 1]):
        with pytest.raises(ValueError, match="are no options"):
            ElasticOptions.decode(wrong)
