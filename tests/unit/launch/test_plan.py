from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import pytest

from stratagem.core.errors import ClusterError
from stratagem.launch.machine import Machine
from stratagem.launch.plan import Request, TaskPlan, make_plan, worker_addresses

TWO_CORES = Machine(cores=(0, 1), num_cores=2)


def fixed_ports(count: int) -> Sequence[int]:
    return range(5000, 5000 + count)


def plan(request: Request, machine: Machine = TWO_CORES, **variables: str) -> list[TaskPlan]:
    return make_plan(request, machine, variables, fixed_ports)


def test_each_worker_gets_the_cluster_and_its_own_index() -> None:
    tasks = plan(Request(("train.py", "--epochs", "3"), workers=2))

    assert [json.loads(task.environment["TF_CONFIG"]) for task in tasks] == [
        {"cluster": {"worker": ["127.0.0.1:5000", "127.0.0.1:5001"]}, "task": {"type": "worker", "index": index}}
        for index in (0, 1)
    ]
    assert [task.command for task in tasks] == [(sys.executable, "train.py", "--epochs", "3")] * 2
    assert [(task.name, task.log_name, task.is_chief) for task in tasks] == [
        ("worker 0", "worker-0.log", True),
        ("worker 1", "worker-1.log", False),
    ]


def test_environment_of_a_worker() -> None:
    environment = plan(Request(("train.py",), workers=2))[0].environment
    del environment["TF_CONFIG"]
    assert len(environment.pop("STRATAGEM_SECRET")) == 64

    assert environment == {
        "KERAS_BACKEND": "jax",
        "STRATAGEM_LAUNCHED": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        "PJRT_NPROC": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


@pytest.mark.parametrize(
    ("c_library", "gpus", "variables", "tunables"),
    [
        ("glibc 2.36", (), {}, "glibc.malloc.tcache_count=0"),
        ("glibc 2.36", (), {"GLIBC_TUNABLES": "glibc.cpu.x=1"}, "glibc.cpu.x=1:glibc.malloc.tcache_count=0"),
        ("glibc 2.36", (), {"MALLOC_ARENA_MAX": "1"}, None),
        ("glibc 2.36", ("0",), {}, None),  # steps run on the GPU
        ("glibc 2.41", (), {}, None),
        ("", (), {}, None),
    ],
)
def test_a_c_library_that_spoils_freed_blocks_is_told_not_to(
    c_library: str, gpus: tuple[str, ...], variables: dict[str, str], tunables: str | None
) -> None:
    (task,) = plan(Request(("train.py",)), Machine((0,), 1, gpus, c_library), **variables)
    assert task.environment.get("GLIBC_TUNABLES") == tunables


def test_tasks_of_one_machine_share_a_new_secret() -> None:
    secrets = [{task.environment["STRATAGEM_SECRET"] for task in plan(Request(("train.py",), workers=3))} for _ in "ab"]
    assert [len(each) for each in secrets] == [1, 1]
    assert secrets[0] != secrets[1]


@pytest.mark.parametrize("variable", ["STRATAGEM_SECRET", "STRATAGEM_SECRET_FILE"])
def test_a_secret_of_the_user_stays(variable: str) -> None:
    (task,) = make_plan(Request(("train.py",)), Machine((0,), 1), {variable: "x"}, ports=lambda count: [1] * count)
    assert "STRATAGEM_SECRET" not in task.environment


def test_several_nodes_have_no_secret_of_our_making() -> None:
    request = Request(("train.py",), nodes=2, coordinator="10.0.0.5:7000")
    assert "STRATAGEM_SECRET" not in plan(request)[0].environment


def test_a_worker_has_as_many_threads_as_cores() -> None:
    tasks = plan(Request(("train.py",), workers=2), Machine(cores=(0, 1, 2, 3, 4), num_cores=5), OMP_NUM_THREADS="9")

    assert [task.cores for task in tasks] == [(0, 1, 2), (3, 4)]
    assert [task.environment["PJRT_NPROC"] for task in tasks] == ["3", "2"]
    assert all("OMP_NUM_THREADS" not in task.environment for task in tasks)


def test_evaluator_stands_beside_the_workers() -> None:
    request = Request(("train.py",), workers=2, evaluator=True)
    *workers, evaluator = plan(request, Machine(cores=(0, 1), num_cores=2, gpus=("3", "5")))

    assert [worker.name for worker in workers] == ["worker 0", "worker 1"]
    assert (evaluator.name, evaluator.is_chief, evaluator.cores) == ("evaluator 0", False, ())
    assert json.loads(evaluator.environment["TF_CONFIG"]) == {
        "cluster": {"worker": ["127.0.0.1:5000", "127.0.0.1:5001"]},
        "task": {"type": "evaluator", "index": 0},
    }
    assert evaluator.environment["CUDA_VISIBLE_DEVICES"] == ""
    assert evaluator.environment["OMP_NUM_THREADS"] == "1"

    elsewhere = Request(("train.py",), nodes=2, node_rank=1, coordinator="10.0.0.5:1000", evaluator=True)
    assert [task.name for task in plan(elsewhere)] == ["worker 1"]


def test_parameter_servers_come_with_a_chief_and_keys() -> None:
    tasks = plan(Request(("train.py",), workers=2, ps=1, evaluator=True))

    assert [(task.name, task.is_chief) for task in tasks] == [
        ("chief 0", True),
        ("worker 0", False),
        ("worker 1", False),
        ("evaluator 0", False),
        ("ps 0", False),
    ]
    assert json.loads(tasks[-1].environment["TF_CONFIG"]) == {
        "cluster": {
            "chief": ["127.0.0.1:5000"],
            "worker": ["127.0.0.1:5001", "127.0.0.1:5002"],
            "ps": ["127.0.0.1:5003"],
        },
        "task": {"type": "ps", "index": 0},
    }
    keys = {task.name: json.loads(task.environment.get("STRATAGEM_KEYS", "null")) for task in tasks}
    assert keys["evaluator 0"] is None  # it talks to nobody
    assert len({keys[name]["secret"] for name in ("chief 0", "worker 0", "worker 1", "ps 0")}) == 4
    assert keys["worker 1"]["holder"] == "worker 1"
    assert keys["chief 0"]["public"] == keys["ps 0"]["public"]
    again = plan(Request(("train.py",), workers=2, ps=1))
    assert again[0].environment["STRATAGEM_KEYS"] != tasks[0].environment["STRATAGEM_KEYS"]


@pytest.mark.parametrize("request_of", [{"ps": -1}, {"ps": 1, "nodes": 2, "coordinator": "10.0.0.5:1000"}])
def test_parameter_servers_that_cannot_be(request_of: dict) -> None:
    with pytest.raises(ClusterError, match="--ps is"):
        Request(("train.py",), **request_of)


def test_thread_counts_that_the_user_set_stay() -> None:
    environment = plan(Request(("train.py",), workers=2), OMP_NUM_THREADS="7")[0].environment

    assert "OMP_NUM_THREADS" not in environment
    assert environment["MKL_NUM_THREADS"] == "1"


def test_threads_follow_the_number_of_cores_where_there_is_no_affinity() -> None:
    tasks = plan(Request(("train.py",), workers=2), Machine(cores=(), num_cores=10))

    assert [task.cores for task in tasks] == [(), ()]
    assert [task.environment["OMP_NUM_THREADS"] for task in tasks] == ["5", "5"]


def test_virtual_devices_where_there_is_no_gpu() -> None:
    tasks = plan(Request(("train.py",), workers=2, devices_per_worker=4))

    assert [task.environment["JAX_NUM_CPU_DEVICES"] for task in tasks] == ["4", "4"]
    assert "CUDA_VISIBLE_DEVICES" not in tasks[0].environment


@pytest.mark.parametrize(
    ("devices_per_worker", "shares"), [(None, ["0,1,2", "4,5,6"]), (2, ["0,1", "2,4"]), (1, ["0", "1"])]
)
def test_gpus_are_divided(devices_per_worker: int | None, shares: list[str]) -> None:
    machine = Machine(cores=(0, 1), num_cores=2, gpus=("0", "1", "2", "4", "5", "6"))
    tasks = plan(Request(("train.py",), workers=2, devices_per_worker=devices_per_worker), machine)

    assert [task.environment["CUDA_VISIBLE_DEVICES"] for task in tasks] == shares
    assert "JAX_NUM_CPU_DEVICES" not in tasks[0].environment


@pytest.mark.parametrize(
    ("devices_per_worker", "message"),
    [(None, "3 workers were asked for; this machine has 2 GPUs (0, 1)."), (1, "3 workers with 1 devices each were")],
)
def test_more_workers_than_gpus_is_an_error(devices_per_worker: int | None, message: str) -> None:
    machine = Machine(cores=(0, 1), num_cores=2, gpus=("0", "1"))

    with pytest.raises(ClusterError) as error:
        plan(Request(("train.py",), workers=3, devices_per_worker=devices_per_worker), machine)
    assert message in str(error.value)
    assert "JAX_PLATFORMS=cpu" in str(error.value)


def test_every_node_computes_the_same_cluster() -> None:
    nodes = [
        plan(Request(("t.py",), workers=2, nodes=2, node_rank=rank, coordinator="10.0.0.5:7000", node_hosts=hosts))
        for rank, hosts in enumerate([("10.0.0.5", "10.0.0.6")] * 2)
    ]
    configs = [json.loads(task.environment["TF_CONFIG"]) for tasks in nodes for task in tasks]

    assert [config["cluster"] for config in configs] == [
        {"worker": ["10.0.0.5:7000", "10.0.0.5:7001", "10.0.0.6:7002", "10.0.0.6:7003"]}
    ] * 4
    assert [config["task"]["index"] for config in configs] == [0, 1, 2, 3]
    assert [task.is_chief for tasks in nodes for task in tasks] == [True, False, False, False]


def test_nodes_without_a_host_have_a_name() -> None:
    request = Request(("t.py",), workers=1, nodes=3, node_rank=2, coordinator="[fe80::1]:7000")

    assert worker_addresses(request) == ["[fe80::1]:7000", "node-1:7001", "node-2:7002"]


@pytest.mark.parametrize(
    ("arguments", "found", "remedy"),
    [
        ({"workers": 0}, "--workers is 0.", "Write --workers 1 or more."),
        ({"nodes": 0}, "--nodes is 0.", "Write --nodes 1 or more."),
        ({"devices_per_worker": -1}, "--devices-per-worker is -1.", "Write --devices-per-worker 1 or more."),
        ({"node_rank": 1}, "--node-rank is 1, --nodes is 1.", "from 0 to 0."),
        ({"nodes": 2, "node_rank": -1}, "--node-rank is -1, --nodes is 2.", "from 0 to 1."),
        ({"nodes": 2}, "--nodes is 2, and no --coordinator is given.", "the same --coordinator HOST:PORT"),
        ({"coordinator": "somewhere"}, "--coordinator is 'somewhere'.", "Write HOST:PORT"),
        ({"coordinator": "::1:80"}, "--coordinator is '::1:80'.", "[fe80::1]:12345"),
        ({"coordinator": "a:65535", "workers": 2}, "and the cluster has 2 workers.", "Choose a port up to 65534."),
        ({"coordinator": "a:0"}, "--coordinator is 'a:0'", "Choose a port up to 65535."),
        ({"node_hosts": ("a",)}, "--node-hosts is 'a', and no --coordinator", "Add --coordinator a:PORT."),
        ({"coordinator": "a:1", "nodes": 2, "node_hosts": ("a",)}, "names 1 hosts, --nodes is 2.", "Name 2 hosts"),
        ({"coordinator": "a:1", "nodes": 2, "node_hosts": ("b", "a")}, "begins with 'b'", "Begin --node-hosts with a."),
    ],
)
def test_a_request_that_is_no_cluster(arguments: dict[str, object], found: str, remedy: str) -> None:
    with pytest.raises(ClusterError) as error:
        Request(("train.py",), **arguments)  # pyright: ignore[reportArgumentType]
    first, why, what = str(error.value).split("\n")
    assert found in first
    assert why.startswith("  Why it matters: ")
    assert remedy in what
