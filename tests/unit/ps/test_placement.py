"""Placement: which server gets which part, and what it is told."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import pytest

from stratagem.core.errors import UsageError
from stratagem.ps.changes import Change, Location
from stratagem.ps.client import Servers
from stratagem.ps.partitioners import FixedShardsPartitioner
from stratagem.ps.placement import Placement
from stratagem.ps.variables import RemoteVariable
from stratagem.transport.message import DONE, Message


class Noted(Servers):
    """Three servers that are only told things."""

    def __init__(self) -> None:
        super().__init__(["no:1", "no:2", "no:3"])
        self.asked: list[tuple[int, Message]] = []
        self.changed: list[Change] = []

    def ask(self, requests: Mapping[int, Message], seconds: float = 0.0) -> dict[int, Message]:
        self.asked += requests.items()
        return dict.fromkeys(requests, Message(DONE))

    def change(self, changes: Any, contribution: Any = None) -> None:
        self.changed += changes

    def created(self) -> list[tuple[int, list[Any], list[list[float]]]]:
        """The parts of all requests, with the values, and no more requests."""
        found = [(server, message.fields["parts"], message.arrays[1:]) for server, message in self.asked]
        self.asked = []
        return [(server, parts, [array.tolist() for array in arrays]) for server, parts, arrays in found]


def test_parts_go_round_the_servers() -> None:
    servers = Noted()
    placement = Placement(servers, FixedShardsPartitioner(2), lazy_update_bytes=20)
    table = keras.Variable(np.arange(5.0), name="table")
    scalar = keras.Variable(7.0, name="scalar")
    placement.place([table, scalar, table])
    assert isinstance(table, RemoteVariable)
    assert table.parts == (Location(0, "table#0/part_0", 3), Location(1, "table#0/part_1", 2))
    assert scalar.parts == (Location(2, "scalar#1"),)
    assert servers.created() == [
        (0, [["table#0/part_0", "table", False, None]], [[0.0, 1.0, 2.0]]),
        (1, [["table#0/part_1", "table", False, None]], [[3.0, 4.0]]),
        (2, [["scalar#1", "scalar", False, None]], [7.0]),
    ]
    larger = keras.Variable(np.arange(6.0), name="larger")
    placement.place([table, larger])
    assert [parts for _, parts, _ in servers.created()] == [
        [["larger#2/part_0", "larger", True, None]],
        [["larger#2/part_1", "larger", True, None]],
    ]


def test_a_variable_with_a_constraint_stays_whole() -> None:
    servers = Noted()
    variable = keras.Variable(np.ones(4), name="weight")
    variable.constraint = keras.constraints.NonNeg()
    Placement(servers, FixedShardsPartitioner(2)).place([variable])
    (constraint,) = pickle.loads(servers.asked[0][1].arrays[0].tobytes())
    assert isinstance(constraint, keras.constraints.NonNeg)
    assert [parts for _, parts, _ in servers.created()] == [[["weight#0", "weight", False, None]]]


def trained(servers: Noted) -> tuple[Placement, keras.Variable, keras.optimizers.Optimizer]:
    placement = Placement(servers, FixedShardsPartitioner(2))
    weight = keras.Variable(np.arange(3.0), name="weight")
    optimizer = keras.optimizers.SGD(momentum=0.5, name="sgd")
    optimizer.build([weight])
    return placement, weight, optimizer


def test_an_optimizer_is_told_once_with_its_slots() -> None:
    servers = Noted()
    placement, _, optimizer = trained(servers)
    assert placement.name_of(optimizer) == placement.name_of(optimizer) == "sgd#1"
    assert [server for server, message in servers.asked if message.kind == "define"] == [0, 1, 2]
    (slots,) = servers.changed
    assert [part.name for part in slots.parts] == ["weight#0/part_0|sgd#1|0", "weight#0/part_1|sgd#1|0"]
    assert np.asarray(slots.value).tolist() == [0.0, 0.0, 0.0]
    assert isinstance(optimizer.variables[2], RemoteVariable)
    optimizer.momentum = 0.9
    with pytest.raises(UsageError, match=r"momentum of the optimizer 'sgd' was 0.5 .* and is 0.9"):
        placement.name_of(optimizer)


def test_all_that_was_placed_is_expected_again() -> None:
    servers = Noted()
    placement, _, optimizer = trained(servers)
    placement.name_of(optimizer)
    servers.asked = []
    placement.expect()
    kinds = [message.kind for _, message in servers.asked]
    assert kinds == ["create", "create", "define", "define", "define"]
    servers.asked = servers.asked[:2]
    assert servers.created() == [
        (0, [["weight#0/part_0", "weight", False, [(2,), "float32", ["", "sgd#1|0"]]]], []),
        (1, [["weight#0/part_1", "weight", False, [(1,), "float32", ["", "sgd#1|0"]]]], []),
    ]


def test_what_is_removed_is_not_expected() -> None:
    servers = Noted()
    placement, weight, optimizer = trained(servers)
    placement.name_of(optimizer)
    servers.asked = []
    placement.remove([weight], [optimizer])
    fields = {"parts": ["weight#0/part_0", "weight#0/part_1"], "optimizers": ["sgd#1"]}
    assert [(message.kind, message.fields) for _, message in servers.asked] == [("remove", fields)] * 3
    servers.asked = []
    placement.expect()
    assert servers.asked == []


def test_the_position_of_a_stream_is_one_part() -> None:
    placement = Placement(Noted(), FixedShardsPartitioner(2))
    generator = keras.random.SeedGenerator(7)
    placement.place([generator.state])
    assert [part.rows for part in generator.state.parts] == [None]
