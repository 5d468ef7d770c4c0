"""What the suite shows of what its scripts have measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

Script = Callable[[str], Any]


def result_of(script: Script, contender: Any, times: Sequence[float], peak_mib: float = 100.0) -> Any:
    """Return a result with one turn for each time of a step."""
    turns = [script("processes").Turn(ms, ms, loss=1.0, others=0.0, peak_mib=peak_mib) for ms in times]
    return script("rounds").Result(contender, {"torch": "2.13"}, [1.0] * (len(turns) + 1), turns)


def test_ratio_is_the_median_of_the_rounds_own(script: Script) -> None:
    contender = script("step_time").REFERENCE
    slow, fast = result_of(script, contender, [20, 44, 90]), result_of(script, contender, [10, 20, 30])

    assert slow.ratio_to(fast) == pytest.approx(2.2)  # of 2, 2.2 and 3; the ratio of the medians is another
    assert slow.beyond(fast) == 24
    assert (slow.ms, slow.quartiles) == (44, (32, 67))


def test_steps_are_compared_with_plain_keras_and_a_peer_has_its_version(script: Script) -> None:
    step_time = script("step_time")
    contenders = {each.name: each for each in step_time.CONTENDERS}
    names, times, memory = ("keras", "two", "torch"), (10, 15, 23), (400, 500, 300)
    measured = zip(names, times, memory, strict=True)
    results = [result_of(script, contenders[name], [ms, ms], peak) for name, ms, peak in measured]

    figures = step_time.summary(results)

    assert [(each.value, each.unit, each.ratio) for each in figures] == [
        (10, "ms", None),
        (15, "ms", 1.5),
        (23, "ms", 2.3),
        (400, "MiB", None),
        (500, "MiB", 1.25),
        (300, "MiB", 0.75),
    ]
    assert figures[2].what == "PyTorch, DDP over Gloo, 2 workers, torch 2.13"
    assert {each.to for each in figures[1:3]} == {"Keras on JAX"}


def scaled(script: Script, times: dict[tuple[int, int, bool], float]) -> dict[Any, Any]:
    scaling = script("scaling")
    runs = scaling.runs()
    assert {tuple(run) for run in runs} == set(times)
    return {run: result_of(script, run.contender, [times[tuple(run)]] * 2) for run in runs}


TIMES = {
    (1, 64, False): 10.0,
    (2, 64, True): 20.0,
    (2, 64, False): 12.5,
    (4, 64, True): 40.0,
    (4, 64, False): 25.0,
    (1, 256, False): 40.0,
    (2, 128, True): 25.0,
    (2, 128, False): 20.0,
}


def test_efficiency_is_that_of_the_cores_in_use(script: Script) -> None:
    scaling = script("scaling")
    results = scaled(script, TIMES)

    found = [(each.heading.split()[0], each.what, each.value, each.ratio) for each in scaling.summary(results, cores=2)]

    assert found == [
        # Two workers with a core each should take 10 ms, and do 12.5 without exchange.
        ("weak", "2 workers of 64 rows on 2 cores, each for itself", 80, None),
        ("weak", "2 workers of 64 rows on 2 cores, training together", 50, pytest.approx(0.625)),
        # Four on two cores should take 20.
        ("weak", "4 workers of 64 rows on 2 cores, each for itself", 80, None),
        ("weak", "4 workers of 64 rows on 2 cores, training together", 50, pytest.approx(0.625)),
        # Half the rows on each of two cores: 20. Four workers share the cores, so 20 too.
        ("strong", "2 workers of 128 rows on 2 cores, each for itself", 100, None),
        ("strong", "2 workers of 128 rows on 2 cores, training together", 80, pytest.approx(0.8)),
        ("strong", "4 workers of 64 rows on 2 cores, each for itself", 80, None),
        ("strong", "4 workers of 64 rows on 2 cores, training together", 50, pytest.approx(0.625)),
    ]
    assert scaling.efficiency("weak", scaling.run_of("weak", 4, True), results, cores=4) == pytest.approx(0.25)


def test_what_a_second_worker_adds_is_compared_with_ddp_where_that_took_part(script: Script) -> None:
    resnet = script("resnet_time")
    times = ([100, 110], [150, 180], [90, 90], [190, 190])
    results = [result_of(script, contender, ms) for contender, ms in zip(resnet.CONTENDERS, times, strict=True)]

    assert [(each.value, each.ratio) for each in resnet.summary(results)[-2:]] == [(60, 0.6), (100, None)]
    assert [(each.value, each.ratio) for each in resnet.summary(results[:2])[-1:]] == [(60, None)]


def test_parameter_servers_are_compared_in_steps_per_second(script: Script) -> None:
    servers = script("parameter_servers")
    times = dict(zip(("tensorflow-fit", "fit", "loop"), (40, 20, 25), strict=True))
    results = [result_of(script, each, [times[each.name]] * 2) for each in servers.CONTENDERS if each.name in times]

    found = [(each.value, each.ratio) for each in servers.summary(results)]

    assert found == [(25, None), (50, 2), (40, None)]  # TensorFlow's loop did not take part


def test_sums_are_shown_by_the_smallest_the_largest_and_the_slowest(script: Script) -> None:
    collectives = script("collectives")
    ways = {
        1 << 10: {"AUTO": [1e-4, 2e-4, 3e-4], "RING": [1e-3, 2e-3, 3e-3]},
        64 << 10: {"AUTO": [1e-3, 1e-3, 8e-3], "RING": [1e-3, 1e-3, 80e-3]},
        16 << 20: {"AUTO": [8e-3] * 3, "RING": [16e-3] * 3},
    }

    found = [(each.what, each.value, each.ratio) for each in collectives.summary({2: ways})]

    assert found == [
        ("1 KiB", pytest.approx(0.2), pytest.approx(0.1)),
        ("16 MiB", 8, 0.5),
        ("bandwidth: 16 MiB by its time", pytest.approx(2.097, abs=1e-3), pytest.approx(2)),
        ("slowest call of all with at most 1 MiB", 8, pytest.approx(0.1)),
    ]


def test_a_restart_is_compared_with_the_start(script: Script) -> None:
    recovery = script("recovery")

    found = recovery.summary(4.0, 6.0, {"with a spare": 0.5})

    assert [(each.value, each.ratio) for each in found] == [(4.0, None), (6.0, 1.5), (0.5, 0.125)]


def test_plots_follow_a_light_and_a_dark_page(script: Script, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plots, scaling = script("plots"), script("scaling")
    plots.bars(tmp_path / "a.svg", "a step", "ms", {"one": (10, 9, 11), "two": (15, 15, 16)}, ["two"])
    scaling.draw(scaled(script, TIMES), 2, tmp_path / "b.svg")

    for name in ("a.svg", "b.svg"):
        text = (tmp_path / name).read_text()
        assert ElementTree.fromstring(text).attrib["width"] == "576pt"
        assert text.count("prefers-color-scheme:dark") == 1
        assert "fill: var(--ink)" in text
        assert plots.INK not in text
        assert "#ffffff" not in text.replace("fill: #ffffff; stroke", "")  # open markers


def test_networks_are_compared_with_the_best_of_the_others_on_as_many_workers(script: Script) -> None:
    networks = script("networks")
    times = {"one": 30, "keras-jax": 60, "tensorflow": 40, "torch": 20, "two": 33, "torch-two": 44}
    found = {
        name: {
            each.name: result_of(script, each, [times[each.name]] * 2)
            for each in networks.contenders(name)
            if each.name in times
        }
        for name in ("gpt", "wgan")
    }

    assert [(each.value, each.ratio, each.to) for each in networks.summary(found)] == [
        (30, 1.5, "PyTorch, torch 2.13"),
        (33, 0.75, "PyTorch, 2 workers, torch 2.13"),
    ] * 2
    assert "keras-jax" not in found["wgan"]  # plain Keras has no tape in a tape
    _, _, gpt, _ = networks.table(found).splitlines()
    cells = [cell.strip() for cell in gpt.strip("|").split("|")]
    assert cells[1:] == ["16", "30.0", "60.0", "", "40.0", "20.0", "1.50", "33.0", "", "44.0", "0.75"]
    drawn = networks.relative(found, "one")
    assert drawn["small GPT"] == {"Stratagem": 1.5, "Keras on JAX": 3.0, "TensorFlow": 2.0, "PyTorch": 1.0}
    assert networks.relative(found, "two")["small GPT"] == {"Stratagem": 0.75, "PyTorch": 1.0}
    assert {title for values in drawn.values() for title in values} <= set(networks.COLOURS)


def test_all_contenders_of_a_network_train_on_the_same_rows(script: Script) -> None:
    script("networks")
    catalogue = script("catalogue")
    for name, network in catalogue.NETWORKS.items():
        rows, again = (catalogue.drawn(network, 2) for _ in range(2))
        assert {len(array) for array in rows.values()} == {2 * network.rows * network.steps}, name
        assert all((rows[key] == again[key]).all() for key in rows)


def test_growth_is_predicted_for_many_workers(script: Script) -> None:
    growth = script("growth")
    costs = {"memory": growth.Link(), "Gloo": growth.Link(), "sockets": growth.Link()}
    table = growth.prediction_table(growth.Workload(10e6, 0.001), costs, per_host=1).splitlines()
    assert len(table) == 2 + len(growth.MANY)
    # 7/8 of 10 MB twice, at 10 Gbit/s without headers, and 14 messages of 20 us; 2/3 of 1 ms hide a part of it.
    cells = [cell.strip() for cell in table[2].strip("|").split("|")]
    assert (cells[0], cells[1], cells[2], cells[4]) == ("8", "8", "15.2", "14.5")
