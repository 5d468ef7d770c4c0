"""The notes that processes leave for each other, on a store held by threads of one process."""

from __future__ import annotations

import re

import pytest
from tests.meeting import FakeWorld, members, members_of_world, on_all

from stratagem.cluster import agreement
from stratagem.cluster.agreement import Peers
from stratagem.core.errors import PeerError, name_some


def test_equal_values_agree_and_the_store_does_not_grow() -> None:
    service, peers = members(3)

    def work(index: int, own: Peers) -> None:
        for step in range(50):
            own.agree("step", {"step": step, "shape": [None, 28], "name": "ä"})
            own.barrier("after step")

    assert on_all(peers, work) == [None] * 3
    assert len(service.store) == 2 * 2 * 3  # two places, two folders, three processes


def test_differing_fields_are_shown_with_who_has_which_value() -> None:
    _, peers = members(3)
    errors = on_all(peers, lambda index, own: own.agree("fit", {"batch": 64 if index < 2 else 32, "epochs": 3}))
    for error in errors:
        assert isinstance(error, PeerError)
        assert str(error).splitlines()[:3] == [
            "The tasks differ at agreement 'fit':",
            "    batch is 64 on worker 0 (host node0, pid 100), worker 1 (host node1, pid 101)",
            "    batch is 32 on worker 2 (host node2, pid 102)",
        ]
        assert "Run the same program" in str(error)


@pytest.mark.parametrize("value", [b"text", b"\x00 bytes", b" ", b""])
def test_the_value_of_the_chief_is_everybodys(value: bytes) -> None:
    _, peers = members(2)
    assert on_all(peers, lambda index, own: own.from_chief("v", b"own" if index else value)) == [value, value]


def test_of_many_each_reads_one_answer_and_process_0_alone_the_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "FEW", 7)
    service, peers = members(8)
    listed = []
    service.key_value_dir_get_bytes = lambda key, read=service.key_value_dir_get_bytes: listed.append(key) or read(key)  # type: ignore[method-assign]
    assert on_all(peers, lambda index, own: own.from_all("rows", index)) == [list(range(8))] * 8
    assert on_all(peers, lambda index, own: own.from_all("rows", [7])) == [[[7]] * 8] * 8
    assert on_all(peers, lambda index, own: own.agree("fit", {"batch": 64})) == [None] * 8
    assert len(listed) == 3
    assert len(service.store) == 2 * 8 + 8 + 2  # notes of two calls and of one, and the last answer of each place


def test_process_0_is_named_where_its_answer_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "FEW", 1)
    service, peers = members(2)
    service.key_value_set_bytes = lambda key, value, allow_overwrite=False, write=service.key_value_set_bytes: (  # type: ignore[method-assign]
        None if "/all/" in key else write(key, value, allow_overwrite)
    )
    _, error = on_all(peers, lambda index, own: own.from_all("rows", index, 0.05))
    found = r"worker 1 \(.*\) waited 0.05 s at values 'rows'; missing: worker 0 \(host node0, pid 100\)\."
    assert re.match(found, str(error))


def test_who_is_missing_is_named_also_after_calls_that_went_well() -> None:
    _, peers = members(3)

    def work(index: int, own: Peers) -> None:
        for _ in range(4):
            own.barrier("epoch")
        if index != 1:
            own.barrier("epoch", timeout_seconds=0.05)

    errors = on_all(peers, work)
    assert errors[1] is None
    for index in (0, 2):
        found = f"worker {index} (host node{index}, pid {100 + index}) waited 0.05 s at barrier 'epoch'; "
        assert str(errors[index]).startswith(found + "missing: worker 1 (host node1, pid 101).\n")


def test_who_comes_too_late_learns_that_nobody_waits() -> None:
    _, peers = members(2)
    with pytest.raises(PeerError, match="missing: worker 1"):
        peers[0].barrier("end", timeout_seconds=0.01)
    with pytest.raises(PeerError, match=r"worker 1 .* could not wait at barrier 'end': DEADLINE_EXCEEDED"):
        peers[1].barrier("end")


def test_a_thousand_names_are_not_all_listed() -> None:
    assert name_some(f"worker {index}" for index in range(1000)).endswith("worker 15 and 984 more")


def test_a_posted_value_reaches_those_that_wait() -> None:
    _, peers = members(2)

    def work(index: int, own: Peers) -> object:
        if index == 0:
            own.post("answer", {"is": 42})
        return own.wait_for("answer")

    assert on_all(peers, work) == [{"is": 42}] * 2
    with pytest.raises(TimeoutError, match="nobody posted 'question'"):
        peers[0].wait_for("question", 0.01)


def test_one_process_collects_what_all_have_posted_and_takes_it_away() -> None:
    service, peers = members(3)

    def work(index: int, own: Peers) -> object:
        own.post(f"shards/{index}", {"bytes": index})
        return own.collect("shards") if index == 0 else None

    assert on_all(peers, work)[0] == [{"bytes": 0}, {"bytes": 1}, {"bytes": 2}]
    assert service.store == {}
    for index in (0, 2):
        peers[index].post(f"late/{index}", None)
    with pytest.raises(PeerError, match=r"^worker 0 .* waited 0.01 s; missing: worker 1 .*, with late"):
        peers[0].collect("late", 0.01)


def test_process_0_collects_what_is_different_and_names_all_that_are_missing() -> None:
    service, peers = members(8)
    reads = []
    service.key_value_dir_get_bytes = lambda key, read=service.key_value_dir_get_bytes: reads.append(key) or read(key)  # type: ignore[method-assign]
    told = on_all(peers, lambda index, own: sorted(set(own.distinct("program", index % 2, waits=index != 3))))
    assert told == [[0, 1], [0, 1], [0, 1], [1], *[[0, 1]] * 4]
    assert len(reads) <= 8  # by process 0 alone
    # Where process 0 goes on, what it has stands for all.
    told = on_all(peers, lambda index, own: sorted(set(own.distinct("known", index % 2, waits=index != 0))))
    assert told == [[0], *[[0, 1], [0]] * 3, [0, 1]]
    assert [peers[i].distinct("other", i, waits=False) for i in (2, 3)] == [[2], [3]]
    missing = r"waited 0.01 s; missing: worker 0 \(.*\), worker 4 \(.*\), .*, worker 7 \(.*\), with other\."
    with pytest.raises(PeerError, match=missing):
        peers[1].distinct("other", 1, 0.01, waits=True)
    with pytest.raises(
        PeerError, match=r"waited 0.01 s; missing: worker 4 \(.*\), worker 5 \(.*, worker 7 \(.*\), with other\."
    ):
        peers[0].distinct("other", 0, 0.01, waits=True)


# Where processes change -------------------------------------------------------------------------------


def test_some_of_all_meet_and_the_others_are_taken_to_say_what_the_first_of_them_says() -> None:
    _, peers = members_of_world(4)

    def work(index: int, own: Peers) -> list[object]:
        if index == 2:
            own.meet_with([2])
            assert own.is_alone
        else:
            own.meet_with([0, 1, 3])
        own.barrier("here")
        return [own.from_all("rows", index), own.from_chief("v", b"%d" % index), own.agree("fit", {"batch": 64})]

    others = [[0, 1, 0, 3], b"0", None]
    assert on_all(peers, work) == [others, others, [[2, 2, 2, 2], b"2", None], others]


def test_a_meeting_goes_on_in_the_next_world() -> None:
    world, peers = members_of_world(2)
    following = FakeWorld(2)

    def renew(own: Peers, error: PeerError) -> bool:
        own.move(following.of(own.own_index), own.peers, own.own_index)
        return str(error).startswith("World 1 has ended.")

    def work(index: int, own: Peers) -> object:
        own.renew = lambda error: renew(own, error)
        if index == 1:
            world.end()
        return own.from_all("rows", index)

    assert on_all(peers, work) == [[0, 1], [0, 1]]


def test_without_a_next_world_the_error_is_shown() -> None:
    world, peers = members_of_world(2)
    world.end()
    for error in on_all(peers, lambda index, own: own.barrier("here")):
        assert isinstance(error, PeerError)
        assert "World 1 has ended." in str(error)
