"""Start-up of real processes: who is missing, who disagrees, and how a cluster ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from stratagem.core import exits

pytestmark = pytest.mark.multiprocess

PATHS = os.pathsep.join([str(Path(__file__).parents[2] / "src"), os.environ["PYTHONPATH"]])
SECONDS = 40
SECRET = {"STRATAGEM_SECRET": "the secret of this cluster"}

PRELUDE = """
import os, sys, time
from stratagem.cluster.bootstrap import join
from stratagem.cluster.detect import detect
from stratagem.core.errors import StratagemError
"""

JOIN = "membership = join(detect())\npeers = membership.peers\n"

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a program as a task; whatever still runs at the end of the test is killed."""
    with ExitStack() as cleaning:

        def start_one(program: str, config: dict[str, object] | None, **variables: str) -> subprocess.Popen[str]:
            kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
            kept.pop("TF_CONFIG", None)
            environ = kept | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": PATHS, "PYTHONUNBUFFERED": "1"} | variables
            if config is not None:
                environ["TF_CONFIG"] = json.dumps(config)
            process = subprocess.Popen(
                [sys.executable, "-c", PRELUDE + textwrap.dedent(program)],
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            cleaning.enter_context(process)
            cleaning.callback(process.kill)
            return process

        yield start_one


def free_ports(count: int) -> list[int]:
    with ExitStack() as open_sockets:
        sockets = [open_sockets.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [taken.getsockname()[1] for taken in sockets]


def configs(*addresses: str) -> list[dict[str, object]]:
    cluster = {"worker": list(addresses)}
    return [{"cluster": cluster, "task": {"type": "worker", "index": index}} for index in range(len(addresses))]


def local_configs(count: int = 2, host: str = "127.0.0.1") -> list[dict[str, object]]:
    return configs(*(f"{host}:{port}" for port in free_ports(count)))


def finish(process: subprocess.Popen[str], expect: int = 0) -> tuple[str, str]:
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == expect, f"exit code {process.returncode}\n{out}\n{err}"
    return out, err


def wait_for(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == line + "\n"


@pytest.mark.parametrize("host", [pytest.param("127.0.0.1", marks=pytest.mark.quick), "localhost", "[::1]"])
def test_two_processes_add_up_and_end_quickly(start: Start, host: str) -> None:
    if host == "[::1]" and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    program = (
        JOIN
        + """
import jax
from jax.experimental import multihost_utils
values = multihost_utils.process_allgather(jax.numpy.float32(membership.process_index + 1))
print(float(values.sum()), membership.process_index, membership.process_count, membership.is_chief, jax.device_count())
assert join(detect()) is membership
peers.barrier("end")
print(time.time())
"""
    )
    own = local_configs(host=host)
    processes = [start(program, config) for config in own]
    outputs = [finish(process) for process in processes]
    seconds_to_exit = time.time() - max(float(out.split()[-1]) for out, _ in outputs)
    assert [out.splitlines()[-2] for out, _ in outputs] == ["3.0 0 2 True 2", "3.0 1 2 False 2"]
    for config, (_, err) in zip(own, outputs, strict=True):
        address = config["cluster"]["worker"][config["task"]["index"]]  # type: ignore[index]
        assert f"Started server with target: grpc://{address}" in err
    assert seconds_to_exit < 5, "JAX's shutdown barrier held the processes"


@pytest.mark.quick
def test_process_0_names_the_tasks_that_do_not_arrive(start: Start) -> None:
    own = local_configs(3)
    program = """
    print("here")
    input()
    try:
        join(detect(), timeout_seconds=3)
    except StratagemError as error:
        print(type(error).__name__, error)
    """
    processes = [start(program, config) for config in own[:2]]
    for process in processes:
        wait_for(process, "here")
    for process in reversed(processes):  # worker 1 gives up before process 0, which still has the last word
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    outputs = [finish(process)[0] for process in processes]
    missing = own[0]["cluster"]["worker"][2]  # type: ignore[index]
    for out in outputs:
        assert f"StartupError 1 of 3 tasks did not reach worker 0 within 3 s: worker 2 ({missing})." in out
        assert "STRATAGEM_STARTUP_TIMEOUT" in out


def test_a_worker_names_the_coordinator_it_cannot_reach(start: Start) -> None:
    own = local_configs()
    program = """
    try:
        join(detect())
    except StratagemError as error:
        print(type(error).__name__, error)
    """
    unnamed = configs("no-such-host.invalid:2222", "localhost:2223")
    refused = start(program, own[1], STRATAGEM_STARTUP_TIMEOUT="1.5")
    unknown = start(program, unnamed[1], STRATAGEM_STARTUP_TIMEOUT="1.5")
    address = own[1]["cluster"]["worker"][0]  # type: ignore[index]
    out = finish(refused)[0]
    assert "StartupError worker 1 (host" in out
    assert f"could not start with worker 0 at {address} within 1.5 s: Connection refused." in out
    assert "could not start with worker 0 at no-such-host.invalid:2222 within 1.5 s: " in finish(unknown)[0]


@pytest.mark.quick
def test_a_busy_port_is_named(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        process = start("join(detect())", configs(f"127.0.0.1:{port}", "127.0.0.1:1")[0])
        _, err = finish(process, expect=exits.PEER_LOST)
    assert f"StartupError: worker 0 cannot listen on port {port} of 127.0.0.1: the port is in use." in err


@pytest.mark.parametrize("first", [0, 1])
def test_a_late_task_still_joins(start: Start, first: int) -> None:
    program = "print('here')\n" + JOIN + "print(membership.process_index, [p.task.index for p in peers.peers])"
    own = local_configs()
    early = start(program, own[first])
    wait_for(early, "here")
    late = start(program, own[1 - first])
    assert finish(early)[0] == f"{first} [0, 1]\n"
    assert finish(late)[0] == f"here\n{1 - first} [0, 1]\n"


@pytest.mark.quick
def test_strangers_on_the_port_are_ignored(start: Start) -> None:
    program = "print('here')\n" + JOIN + "print(membership.process_index)"
    ports = free_ports(2)
    own = configs(*(f"127.0.0.1:{port}" for port in ports))
    first = start(program, own[0])
    wait_for(first, "here")
    with _connect_until_open(ports[0]) as scanner, _connect_until_open(ports[0]) as silent:
        scanner.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert scanner.recv(100) == b""
        second = start(program, own[1])
        assert finish(first)[0] == "0\n"
        assert finish(second)[0] == "here\n1\n"
        assert silent.recv(100) == b""


def _connect_until_open(port: int) -> socket.socket:
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        except ConnectionRefusedError:
            continue


def test_different_clusters_are_shown_on_both_tasks(start: Start) -> None:
    ports = free_ports(3)
    one = configs(f"127.0.0.1:{ports[0]}", f"127.0.0.1:{ports[1]}")[0]
    other = configs(f"127.0.0.1:{ports[0]}", f"127.0.0.1:{ports[2]}")[1]
    processes = [start("join(detect())", config, **SECRET) for config in (one, other)]
    for process in processes:
        _, err = finish(process, expect=1)
        assert "ClusterError: worker 0 (host" in err
        assert "describe different clusters" in err
        assert str(ports[1]) in err
        assert str(ports[2]) in err


def test_without_a_secret_a_wrong_task_is_turned_away_and_the_right_one_is_awaited(start: Start) -> None:
    addresses = [f"127.0.0.1:{port}" for port in free_ports(3)]
    own, wrong = configs(*addresses[:2]), configs(*addresses)[1]
    program = "membership = join(detect()); print(membership.process_count)"
    first, stray = start(program, own[0]), start(program, wrong)
    _, err = finish(stray, expect=1)
    assert "describe different clusters" in err
    right = start(program, own[1])
    for process in (first, right):
        assert finish(process)[0].splitlines()[-1] == "2"


def test_two_processes_with_one_index_are_named(start: Start) -> None:
    own = local_configs(3)
    processes = [start("join(detect())", own[index], **SECRET) for index in (0, 1, 1)]
    for process in processes:
        _, err = finish(process, expect=1)
        assert "ClusterError: Two processes say that they are worker 1: worker 1 (host" in err
        assert f"pid {processes[1].pid}" in err
        assert f"pid {processes[2].pid}" in err


def test_the_peers_of_a_failed_start_are_told_why(start: Start) -> None:
    own = local_configs()
    program = """
    import jax
    if detect().task_id == 1:
        jax.__version__ = "0.0.1"
    join(detect())
    """
    for process in [start(program, config, **SECRET) for config in own]:
        _, err = finish(process, expect=1)
        assert "PeerError: worker 0 (host" in err
        assert "'jax': '0.0.1'" in err


@pytest.mark.quick
def test_tasks_that_disagree_are_named(start: Start) -> None:
    program = (
        JOIN
        + """
index = membership.process_index
peers.agree("options", {"batch": 64, "lr": 0.1})
print(peers.from_chief("seed", b"abc" if index == 0 else b""), peers.from_chief("big", b"x" * 9_000_000)[-1:])
try:
    peers.agree("options", {"batch": 64 * (index + 1), "lr": 0.1, **({"extra": 1} if index else {})})
except StratagemError as error:
    print(type(error).__name__, error)
peers.barrier("next")
start = time.perf_counter()
for _ in range(200):
    peers.barrier("speed")
barrier = time.perf_counter() - start
for _ in range(200):
    peers.agree("speed", {"a": 1})
agree = time.perf_counter() - start - barrier
print(f"barrier {barrier * 5:.2f} ms, agree {agree * 5:.2f} ms")
"""
    )
    processes = [start(program, config) for config in local_configs()]
    outputs = [finish(process)[0] for process in processes]
    print(outputs[0])
    for out in outputs:
        assert out.startswith(
            "b'abc' b'x'\nPeerError The tasks differ at agreement 'options':\n    batch is 64 on worker 0"
        )
        assert "    batch is 128 on worker 1 (host" in out
        assert "    extra is nothing on worker 0" in out
        assert "lr" not in out


def test_a_task_that_does_not_come_is_named_and_holds_nobody(start: Start) -> None:
    program = (
        JOIN
        + """
peers.barrier("start")
if membership.process_index == 1:
    sys.stdin.read()
try:
    peers.barrier("alone", timeout_seconds=0.5)
except StratagemError as error:
    print(type(error).__name__, error)
    sys.exit(5)
"""
    )
    first, second = (start(program, config) for config in local_configs())
    out, _ = finish(first, expect=5)
    assert "PeerError worker 0 (host" in out
    assert f"waited 0.5 s at barrier 'alone'; missing: worker 1 (host {socket.gethostname()}, pid {second.pid})." in out


def test_a_changed_tf_config_is_refused(start: Start) -> None:
    program = (
        JOIN
        + """
os.environ["TF_CONFIG"] = '{"cluster": {"worker": ["other:1", "other:2"]}, "task": {"type": "worker", "index": 0}}'
try:
    join(detect())
except StratagemError as error:
    print(type(error).__name__, error)
"""
    )
    own = local_configs()
    for index, process in enumerate([start(program, config) for config in own]):
        out = finish(process)[0]
        assert f"UsageError This process is worker {index} of ClusterSpec({own[0]['cluster']})" in out
        assert "and should now be worker 0 of ClusterSpec({'worker': ['other:1', 'other:2']})" in out


def test_jax_used_before_is_refused_at_once(start: Start) -> None:
    program = "import jax\njax.numpy.zeros(1)\njoin(detect())"
    _, err = finish(start(program, local_configs()[1]), expect=1)
    assert "UsageError: JAX was used before worker 1 joined its cluster" in err
    assert "Create the strategy first" in err


def test_an_exception_ends_the_process_at_once_with_its_traceback(start: Start) -> None:
    program = (
        JOIN
        + """
peers.barrier("start")
if membership.process_index == 1:
    print("last words", end="")
    raise KeyError("boom")
sys.stdin.read()
"""
    )
    own = local_configs()
    first, second = (start(program, config) for config in own)
    out, err = finish(second, expect=1)
    assert out == "last words"
    assert f"stratagem: worker 1 (host {socket.gethostname()}, pid {second.pid}) failed:\nTraceback" in err
    assert err.rstrip().endswith("KeyError: 'boom'")
    first.wait(SECONDS)  # before its input is closed, which ends it too
    _, err = finish(first, expect=exits.PEER_LOST)
    assert f"stratagem: worker 1 (host {socket.gethostname()}, pid {second.pid}) failed: KeyError: 'boom'\n" in err


def test_sigterm_ends_a_process(start: Start) -> None:
    processes = [start(JOIN + "print('in')\nsys.stdin.read()", config) for config in local_configs()]
    for process in processes:
        wait_for(process, "in")
    processes[1].terminate()
    finish(processes[1], expect=-signal.SIGTERM)


def test_a_proxy_in_the_environment_does_not_stand_between_the_tasks(start: Start) -> None:
    nowhere = "http://127.0.0.1:1"
    program = JOIN + "peers.barrier('end')\nprint(os.environ['no_grpc_proxy'])"
    processes = [start(program, config, http_proxy=nowhere, no_proxy="a.example") for config in local_configs()]
    for process in processes:
        assert finish(process)[0] == "a.example,127.0.0.1\n"


def test_processes_of_multiprocessing_end_together(tmp_path: Path) -> None:
    """Its end looked like a death, and the other worker ended with 43: before Python 3.13 it runs no exit handlers.

    From then on it runs them after an exception too, of which they know nothing: the other ends as it would have.
    """
    told = 43 if sys.version_info < (3, 13) else 0
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import json, multiprocessing, os, sys

            def work(config, fails):
                os.environ["TF_CONFIG"] = json.dumps(config)
                from stratagem.cluster.bootstrap import join
                from stratagem.cluster.detect import detect
                import jax, jax.numpy as jnp
                from jax.experimental import multihost_utils
                join(detect())
                print("sum", int(multihost_utils.process_allgather(jnp.asarray(jax.process_index() + 1)).sum()))
                if fails:
                    raise ValueError("on purpose")

            if __name__ == "__main__":
                configs, method, fails = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3] == "fails"
                make = multiprocessing.get_context(method).Process
                tasks = [make(target=work, args=(each, fails and not i)) for i, each in enumerate(configs)]
                for each in tasks:
                    each.start()
                for each in tasks:
                    each.join()
                print("ended", *(each.exitcode for each in tasks))
            """
        )
    )
    for method, outcome, codes in (("fork", "ends", "0 0"), ("spawn", "ends", "0 0"), ("spawn", "fails", f"1 {told}")):
        command = [sys.executable, str(program), json.dumps(local_configs()), method, outcome]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        assert ended.stdout.splitlines()[-1] == f"ended {codes}", ended.stderr
        assert Counter(ended.stdout.split())["3"] == 2
        assert "ended without a word" not in ended.stderr
        assert ("on purpose" in ended.stderr) == (outcome == "fails")
