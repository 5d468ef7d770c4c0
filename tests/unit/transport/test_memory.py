"""Arrays in memory that two tasks share: the same on both sides, and nothing bad said about it does harm."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

from stratagem.core.clock import Deadline
from stratagem.transport import memory
from stratagem.transport.channel import Channel
from stratagem.transport.keys import Role, make_keys
from stratagem.transport.memory import SharedMemory
from stratagem.transport.message import Message, MessageError, decode, encode
from stratagem.transport.server import SHARE, MessageServer, Request

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory without a name is a thing of Linux")

KEYS = make_keys(workers=1)
ARRAYS = (
    np.arange(5000.0),
    np.zeros((0, 4), np.float16),
    np.array(7, np.int64),
    np.array([1.5, -2.0], ml_dtypes.bfloat16),
    np.arange(12).reshape(3, 4)[:, ::2],
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rooms of 64 KiB."""
    monkeypatch.setattr(memory, "ROOM", 1 << 16)
    monkeypatch.setattr(memory, "LONG", 1 << 12)


@pytest.fixture
def ends() -> Iterator[tuple[SharedMemory, SharedMemory]]:
    """One memory, as its owner and as another task has it."""
    made = SharedMemory.make()
    assert made is not None
    opened = SharedMemory.open(**made.whereabouts)
    assert opened is not None
    yield made, opened
    made.close()


@pytest.fixture
def connect() -> Iterator[Callable[[Callable[[Request], None]], tuple[Channel, MessageServer]]]:
    """Start a server with a handler, and a channel that shares memory with it."""
    closed: list[Channel | MessageServer] = []

    def connect(handler: Callable[[Request], None]) -> tuple[Channel, MessageServer]:
        server = MessageServer("127.0.0.1:0", handler, keys=KEYS[Role.PS])
        channel = Channel("ps 0", server.address, keys=KEYS["worker 0"])
        closed.extend([channel, server])
        channel.share_memory(Deadline(20.0))
        return channel, server

    yield connect
    for each in closed:
        each.close()


def echo(request: Request) -> None:
    """Give back what came, and say how it came."""
    request.answer(Message("done", {"memory": request.message.memory is not None}, request.message.arrays))


def put(memory: SharedMemory, *values: float, size: int = 20_000) -> list[object]:
    return encode(Message("push", {}, [np.full(size, value, np.float32) for value in values]), memory)


def got(memory: SharedMemory, frames: list[object]) -> list[np.ndarray]:
    return list(decode(frames, None, {memory.name: memory}).arrays)


def room_of(frames: list[object]) -> int:
    return json.loads(bytes(frames[0])[6:])["memory"][1]


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return [(a.dtype, a.shape, a.tolist()) for a in one] == [(a.dtype, a.shape, a.tolist()) for a in other]


def test_arrays_lie_in_memory_in_both_directions(ends: tuple[SharedMemory, SharedMemory]) -> None:
    made, opened = ends
    asked = encode(Message("pull", {}, ARRAYS, id=3), made)
    answered = encode(Message("done", {}, [np.arange(9)], id=3), opened)
    assert len(asked) == len(answered) == 1  # the header alone travels
    received = decode(asked, None, {opened.name: opened})
    assert same(received.arrays, list(ARRAYS))
    assert received.memory == made.name
    assert decode(answered, None, {made.name: made}).arrays[0].tolist() == list(range(9))
    encode(Message("pull", {}, [np.zeros(5000)]), made)  # the next one is put where it lay
    assert same(received.arrays, list(ARRAYS))


def test_a_room_is_used_until_its_arrays_are_dropped(ends: tuple[SharedMemory, SharedMemory]) -> None:
    made, opened = ends
    first = got(opened, frames := put(made, 1.0, 2.0))
    assert room_of(frames) == 0
    second = got(opened, frames := put(made, 3.0))
    assert room_of(frames) == 1
    row = first[1][5:7]
    del first
    third = got(opened, frames := put(made, 4.0))
    assert room_of(frames) == 2  # the row is still in use
    del row
    fourth = got(opened, frames := put(made, 5.0))
    assert room_of(frames) == 0
    assert [array[0][-1] for array in (second, third, fourth)] == [3.0, 4.0, 5.0]


def test_arrays_that_are_kept_never_change(ends: tuple[SharedMemory, SharedMemory]) -> None:
    for sender, receiver in (ends, ends[::-1]):
        kept = [got(receiver, put(sender, float(number), -float(number))) for number in range(8)]
        assert [[set(array.tolist()) for array in arrays] for arrays in kept] == [
            [{n}, {-n}] for n in map(float, range(8))
        ]


def test_short_arrays_keep_no_room(ends: tuple[SharedMemory, SharedMemory]) -> None:
    made, opened = ends
    kept, rooms = [], set()
    for number in range(4):
        frames = put(made, float(number), size=memory.LONG // 4 - 1)
        kept.append(got(opened, frames)[0])
        rooms.add(room_of(frames))
    assert rooms == {0}
    assert [set(array.tolist()) for array in kept] == [{0.0}, {1.0}, {2.0}, {3.0}]


def test_long_arrays_are_used_where_they_lie_and_can_be_used_by_jax(ends: tuple[SharedMemory, SharedMemory]) -> None:
    made, opened = ends
    (array,) = got(opened, put(made, 1.0))
    assert not array.flags.writeable
    assert array.ctypes.data % 64 == 0
    held = jax.device_put(array)
    assert held.unsafe_buffer_pointer() == array.ctypes.data
    del array
    later = [got(opened, frames := put(made, 2.0)), room_of(frames)]
    assert later[1] == 1
    assert set(held.tolist()) == {1.0}


def test_a_task_that_finds_no_room_sends(ends: tuple[SharedMemory, SharedMemory]) -> None:
    made, opened = ends
    opened._in.marks[:] = 1  # one that does not keep to the rules
    frames = put(made, 1.0, 2.0)
    assert len(frames) == 3
    assert [set(array.tolist()) for array in got(opened, frames)] == [{1.0}, {2.0}]


def test_a_room_named_again_while_it_is_used_is_copied(ends: tuple[SharedMemory, SharedMemory]) -> None:
    made, opened = ends
    frames = put(made, 1.0)
    first, again = got(opened, frames), got(opened, frames)
    del first
    gone = got(opened, put(made, 2.0))  # lies where the first one lay
    assert (set(again[0].tolist()), set(gone[0].tolist())) == ({1.0}, {2.0})


def test_what_finds_no_space_travels(small: None, ends: tuple[SharedMemory, SharedMemory]) -> None:
    made, opened = ends
    arrays = [np.full(6000, 1.0), np.full(6000, 2.0), np.full(1000, 3.0), np.full(9000, 4.0)]
    frames = encode(Message("push", {}, arrays), made)
    assert [memoryview(frame).nbytes for frame in frames[1:]] == [48_000, 72_000]
    assert same(decode(frames, None, {opened.name: opened}).arrays, arrays)


def test_a_channel_shares_memory_with_its_server(connect: Callable[..., tuple[Channel, MessageServer]]) -> None:
    channel, _ = connect(echo)
    for _ in range(3):
        answer = channel.request(Message("echo", {}, ARRAYS))
        assert answer.fields == {"memory": True}
        assert answer.memory is not None
        assert same(answer.arrays, list(ARRAYS))
    assert channel.sent_bytes > 3 * ARRAYS[0].nbytes
    assert channel.received_bytes > 3 * ARRAYS[0].nbytes


def test_whatever_is_held_and_dropped_keeps_its_numbers(connect: Callable[..., tuple[Channel, MessageServer]]) -> None:
    rng = np.random.default_rng(0)
    held: dict[str, list[tuple[float, Any]]] = {"client": [], "server": []}

    def hold(side: str, number: float, array: np.ndarray) -> None:
        """Keep some of what came, as an array, a part of it or one of JAX, and drop some of what was kept."""
        kept = held[side]
        kept.append((number, [array, array[3:90], jax.device_put(array)][rng.integers(3)]))
        while len(kept) > rng.integers(1, 7):
            del kept[rng.integers(len(kept))]
        assert all(set(np.unique(each)) == {number} for number, each in kept)

    def handler(request: Request) -> None:
        number = request.message.fields["number"]
        hold("server", number, request.message.arrays[0])
        request.answer(Message("done", {}, [np.full(30_000, -number, np.float32)]))

    channel, _ = connect(handler)
    for number in map(float, range(1, 200)):
        answer = channel.request(Message("hold", {"number": number}, [np.full(25_000, number, np.float32)]))
        hold("client", -number, answer.arrays[0])
        assert answer.memory is not None


def test_two_requests_at_once_do_not_use_it_both(connect: Callable[..., tuple[Channel, MessageServer]]) -> None:
    waiting: queue.SimpleQueue[Request] = queue.SimpleQueue()
    channel, _ = connect(waiting.put)
    numbers = [channel.send(Message("echo", {}, [np.full(50_000, float(i))])) for i in range(3)]
    for request in [waiting.get(timeout=20) for _ in numbers][::-1]:
        echo(request)
    got = {}
    while len(got) < len(numbers):
        channel.socket.poll(20_000)
        answer = channel.poll()
        assert answer is not None
        got[answer.id] = (answer.fields["memory"], set(answer.arrays[0].tolist()))
    assert got == {numbers[0]: (True, {0.0}), numbers[1]: (False, {1.0}), numbers[2]: (False, {2.0})}
    assert channel.send(Message("echo", {}, ARRAYS))
    assert waiting.get(timeout=20).message.memory is not None  # nothing waits any more


def test_a_task_on_another_machine_gets_frames(
    connect: Callable[..., tuple[Channel, MessageServer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = {"name": "stratagem-0", "path": "/proc/1/fd/9"}
    monkeypatch.setattr(SharedMemory, "whereabouts", elsewhere)
    channel, _ = connect(echo)
    answer = channel.request(Message("echo", {}, ARRAYS))
    assert answer.fields == {"memory": False}
    assert same(answer.arrays, list(ARRAYS))


def test_a_system_without_such_memory_sends_frames(
    connect: Callable[..., tuple[Channel, MessageServer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "memfd_create", forbidden)
    channel, _ = connect(echo)
    assert same(channel.request(Message("echo", {}, ARRAYS)).arrays, list(ARRAYS))


@pytest.mark.parametrize(
    ("arrays", "memory", "found"),
    [
        ([["float64", [2], True]], ["stratagem-no", 0], "stratagem-no"),
        ([["float64", [2], True]], None, "None"),
        ([["float64", [2], 1]], "mine", "1 arrays are announced, but 0 came"),
        ([["float64", [1 << 40], True]], "mine", "are larger than the memory"),
        ([["float64", [3000], True]] * 3, "mine", "are larger than the memory"),
        ([["float64", [1 << 70], True]], "mine", "are larger than the memory"),
        ([["object", [2], True]], "mine", "is not a dtype"),
        ([["float64", [-2], True]], "mine", "is not a shape"),
        ([], "mine and more", "too many values"),
        ([], [["mine"], 0], "unhashable"),
        ([], 7, "cannot unpack"),
        ([["float64", [2], True]], "room 3", "3 is not a room"),
        ([["float64", [2], True]], "room -1", "-1 is not a room"),
        ([["float64", [2], True]], "room x", "'x' is not a room"),
        ([["float64", [2]]], "mine", "missing"),
    ],
)
def test_what_does_not_lie_there_is_refused(
    arrays: list[list[object]], memory: object, found: str, small: None, ends: tuple[SharedMemory, SharedMemory]
) -> None:
    made, _ = ends
    frames = encode(Message("echo"))
    places = {
        "mine": [made.name, 0],
        "mine and more": [made.name, 0, 0],
        "room 3": [made.name, 3],
        "room -1": [made.name, -1],
        "room x": [made.name, "x"],
    }
    header = {"kind": "echo", "id": 1, "fields": {}, "memory": places.get(str(memory), memory)}
    frames = [frames[0][:6] + json.dumps({**header, "arrays": arrays}).encode()]
    with pytest.raises(MessageError, match=found):
        decode(frames, None, {made.name: made})


def test_only_memory_of_this_kind_is_opened(
    ends: tuple[SharedMemory, SharedMemory], tmp_path: Path, connect: Callable[..., tuple[Channel, MessageServer]]
) -> None:
    name, path = ends[0].whereabouts["name"], ends[0].whereabouts["path"]
    (tmp_path / "file").write_bytes(b"secret")
    with FileIO(os.memfd_create("open", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "r+") as unsealed:
        unsealed.truncate(memory.size_of_all())
        places = [
            (name[:-1], path),
            ("open", f"/proc/{os.getpid()}/fd/{unsealed.fileno()}"),  # its owner could make it shorter
            (name, str(tmp_path / "file")),
            (name, path + "/../../../.." + str(tmp_path / "file")),
            (name, "/proc/1/fd/0"),
            (name, None),
            (None, path),
            (name, "/proc/99999999999999999999/fd/0"),
        ]
        channel, _ = connect(echo)
        for bad_name, bad_path in places:
            assert SharedMemory.open(bad_name, bad_path) is None
            assert channel.request(Message(SHARE, {"name": bad_name, "path": bad_path})).fields == {"shared": False}
        assert channel.request(Message(SHARE)).fields == {"shared": False}
        assert same(channel.request(Message("echo", {}, ARRAYS)).arrays, list(ARRAYS))
    assert (tmp_path / "file").read_bytes() == b"secret"


_CLIENT = """
import sys
import numpy as np
from stratagem.core.clock import Deadline
from stratagem.transport.channel import Channel
from stratagem.transport.message import Message

channel = Channel("ps 0", sys.argv[1])
channel.share_memory(Deadline(60.0))
print(channel.request(Message("echo", {}, [np.ones(1 << 20)])).memory, flush=True)
sys.stdin.read()
"""


def test_a_task_that_is_killed_leaves_nothing() -> None:
    server = MessageServer("127.0.0.1:0", echo, keys=None)
    before = set(os.listdir("/dev/shm"))
    command = [sys.executable, "-c", _CLIENT, server.address]
    client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert client.stdin is not None
    assert client.stdout is not None
    channel = Channel("ps 0", server.address)
    try:
        name = client.stdout.readline().strip()
        assert name.startswith("stratagem-")
        assert name in Path("/proc/self/maps").read_text()
        client.kill()
        client.wait(60)
        channel.share_memory(Deadline(20.0))
        assert same(channel.request(Message("echo", {}, ARRAYS)).arrays, list(ARRAYS))
        assert name not in Path("/proc/self/maps").read_text()
        assert set(os.listdir("/dev/shm")) == before
    finally:
        channel.close()
        client.stdin.close()
        client.stdout.close()
        server.close()
