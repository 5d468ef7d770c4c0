from __future__ import annotations

import pytest

from stratagem.cluster.slurm import (
    SlurmClusterResolver,
    deal_tasks,
    expand_node_list,
    expand_tasks_per_node,
)
from stratagem.core.errors import ClusterError


def step(
    rank: int, count: int, nodes: str, per_node: str, node: int | None = None, local: int | None = None
) -> dict[str, str]:
    environ = {
        "SLURM_PROCID": str(rank),
        "SLURM_STEP_NUM_TASKS": str(count),
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_STEP_TASKS_PER_NODE": per_node,
    }
    if node is not None:
        environ |= {"SLURM_NODEID": str(node), "SLURM_LOCALID": str(local)}
    return environ


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("node1", ["node1"]),
        ("node1,node2", ["node1", "node2"]),
        ("node[01-03,7],gpu-a", ["node01", "node02", "node03", "node7", "gpu-a"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[099-101]-ib", ["n099-ib", "n100-ib", "n101-ib"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("a.b-c_d[5]", ["a.b-c_d5"]),
    ],
)
def test_node_lists(text: str, hosts: list[str]) -> None:
    assert expand_node_list(text) == hosts


@pytest.mark.parametrize(
    "text", ["", "n[1-2", "n]1[", "n[]", "n[a-b]", "n[2-1]", "a,,b", ",a", "n[1-999999999]", "[[1]]"]
)
def test_node_lists_that_are_none(text: str) -> None:
    with pytest.raises(ClusterError, match=r"not a (list|range) of nodes"):
        expand_node_list(text)


def test_tasks_per_node() -> None:
    assert expand_tasks_per_node("2(x3),1") == [2, 2, 2, 1]
    assert expand_tasks_per_node("4") == [4]
    for text in ("", "x", "2(x", "2(3)", "1,,2", "9999999999"):
        with pytest.raises(ClusterError, match="how many tasks each node has"):
            expand_tasks_per_node(text)


def test_dealing() -> None:
    assert deal_tasks(["a", "b"], [2, 1], "block") == [("a", 0), ("a", 1), ("b", 0)]
    assert deal_tasks(["a", "b"], [1, 2], "cyclic:block") == [("a", 0), ("b", 0), ("b", 1)]


@pytest.mark.parametrize(
    ("environ", "cluster", "task_id"),
    [
        (step(0, 1, "n1", "1", 0, 0), ["n1:8888"], 0),
        (step(2, 3, "n1", "3", 0, 2), ["n1:8888", "n1:8889", "n1:8890"], 2),
        (step(1, 2, "n[1-2]", "1(x2)", 1, 0), ["n1:8888", "n2:8888"], 1),
        (step(2, 3, "n[1-2]", "2,1", 1, 0), ["n1:8888", "n1:8889", "n2:8888"], 2),
        (step(2, 3, "n[1-2]", "2,1", 0, 1) | {"SLURM_DISTRIBUTION": "cyclic"}, ["n1:8888", "n2:8888", "n1:8889"], 2),
        (step(1, 2, "n[1-2]", "1(x2)"), ["n1:8888", "n2:8888"], 1),
    ],
)
def test_job_steps(environ: dict[str, str], cluster: list[str], task_id: int) -> None:
    resolver = SlurmClusterResolver(environ=environ)
    assert resolver.cluster_spec().as_dict() == {"worker": cluster}
    assert (resolver.task_type, resolver.task_id) == ("worker", task_id)
    assert resolver.master() == f"grpc://{cluster[task_id]}"


def test_several_jobs_take_the_ranks_in_order() -> None:
    environ = step(2, 4, "n[1-2]", "2(x2)")
    resolver = SlurmClusterResolver({"chief": 1, "worker": 2, "ps": 1}, port_base=1000, rpc_layer=None, environ=environ)
    assert resolver.cluster_spec().as_dict() == {
        "chief": ["n1:1000"],
        "worker": ["n1:1001", "n2:1000"],
        "ps": ["n2:1001"],
    }
    assert resolver.get_task_info() == ("worker", 1)
    assert resolver.master() == "n2:1000"
    assert resolver.master("chief", 0) == "n1:1000"


def test_tasks_per_node_can_be_given() -> None:
    environ = step(2, 3, "n[1-2]", "nonsense")
    by_host = SlurmClusterResolver(tasks_per_node={"n1": 1, "n2": 2}, environ=environ)
    assert by_host.cluster_spec().job_tasks("worker") == ["n1:8888", "n2:8888", "n2:8889"]
    environ = step(1, 2, "n[1-2]", "nonsense")
    assert SlurmClusterResolver(tasks_per_node=1, environ=environ).cluster_spec().num_tasks("worker") == 2


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({}, "SLURM_STEP_NUM_TASKS is None"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_NODELIST": "n[1-2]"}, "SLURM_STEP_NUM_TASKS is None"),
        (step(0, 2, "", "1(x2)"), "'' is not a list of nodes"),
        (step(0, 3, "n[1-2]", "1(x2)"), "2 places on 2 nodes for 3 tasks"),
        (step(2, 2, "n[1-2]", "1(x2)"), "this task has rank 2"),
        (step(0, 2, "n[1-2]", "1(x3)"), "describes 3 nodes, but SLURM_STEP_NODELIST lists 2"),
        (step(1, 4, "n[1-2]", "2(x2)", 1, 0), "--distribution=block"),
        (step(0, 2, "n[1-2]", "1(x2)") | {"SLURM_PROCID": "x"}, "SLURM_PROCID is 'x'"),
    ],
)
def test_job_steps_that_contradict_themselves(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ClusterError) as error:
        SlurmClusterResolver(environ=environ).cluster_spec()
    assert message in str(error.value)


def test_jobs_must_be_as_many_as_tasks() -> None:
    with pytest.raises(ClusterError, match=r"jobs=.* has 3 tasks, but the job step has 2"):
        SlurmClusterResolver({"worker": 3}, environ=step(0, 2, "n1", "2")).cluster_spec()


@pytest.mark.parametrize(
    ("rank", "more", "arguments", "visible", "accelerators"),
    [
        (1, {"SLURM_GPUS_ON_NODE": "4"}, {}, "2,3", {"GPU": 2}),
        (0, {"SLURM_GPUS_ON_NODE": "4", "CUDA_VISIBLE_DEVICES": "4,5,6,7"}, {}, "4,5", {"GPU": 2}),
        (1, {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}, {"gpus_per_task": 1}, "5", {"GPU": 1}),
        (1, {"SLURM_GPUS_ON_NODE": "2", "CUDA_VISIBLE_DEVICES": "0"}, {}, "0", {"GPU": 1}),
        (1, {"SLURM_GPUS_ON_NODE": "4"}, {"auto_set_gpu": False}, None, {"GPU": 2}),
        (1, {}, {"gpus_per_node": 0}, None, {}),
        (1, {"CUDA_VISIBLE_DEVICES": ""}, {"gpus_per_node": 2, "gpus_per_task": 1}, "1", {"GPU": 1}),
        (1, {"CUDA_VISIBLE_DEVICES": ""}, {"gpus_per_node": 4, "gpus_per_task": 2}, "2,3", {"GPU": 2}),
        (1, {"CUDA_VISIBLE_DEVICES": "", "SLURM_GPUS_ON_NODE": "2"}, {}, "", {"GPU": 1}),
    ],
)
def test_tasks_of_a_node_share_its_gpus(
    rank: int, more: dict[str, str], arguments: dict[str, int], visible: str | None, accelerators: dict[str, int]
) -> None:
    environ = step(rank, 2, "n1", "2") | more
    resolver = SlurmClusterResolver(environ=environ, **arguments)  # type: ignore[arg-type]
    for _ in range(2):  # the second call must not share out the share
        resolver.cluster_spec()
        assert environ.get("CUDA_VISIBLE_DEVICES") == visible
    assert resolver.num_accelerators() == accelerators


def test_too_few_gpus_are_named() -> None:
    environ = step(1, 2, "n1", "2") | {"CUDA_VISIBLE_DEVICES": "0,1,2"}
    with pytest.raises(ClusterError, match="should take 2 GPUs; CUDA_VISIBLE_DEVICES has 3"):
        SlurmClusterResolver(gpus_per_task=2, environ=environ).cluster_spec()


def test_the_port_of_a_job_counts_where_the_program_says_none() -> None:
    environ = step(1, 2, "n[1-2]", "1(x2)", 1, 0) | {"STRATAGEM_PORT": "20007"}
    assert SlurmClusterResolver(environ=environ).cluster_spec().job_tasks("worker") == ["n1:20007", "n2:20007"]
    assert SlurmClusterResolver(port_base=5, environ=environ).cluster_spec().job_tasks("worker") == ["n1:5", "n2:5"]
    with pytest.raises(ClusterError, match="STRATAGEM_PORT is '0'"):
        SlurmClusterResolver(environ=environ | {"STRATAGEM_PORT": "0"}).cluster_spec()
