"""Programs that workers compare: each once, those that nobody else runs never."""

from __future__ import annotations

from typing import Any

import jax
import pytest
from jax import lax
from tests.meeting import members, on_all

from stratagem.cluster.agreement import Peers
from stratagem.core.errors import PeerError
from stratagem.mesh.mesh import AXIS
from stratagem.program import compared
from stratagem.program.compared import ComparedProgram


class Jitted:
    """What JAX would compile, of two replicas; it counts its runs."""

    def __init__(self, rate: float, *, alone: bool = False) -> None:
        self._function = jax.jit(lambda x: x * rate if alone else lax.psum(x * rate, AXIS))
        self.runs = 0

    def trace(self, x: Any) -> Any:
        class Traced:
            jaxpr = jax.make_jaxpr(self._function, axis_env=[(AXIS, 2)])(x)

        return Traced

    lower = trace

    def __call__(self, x: Any) -> float:
        self.runs += 1
        return x


def compare(peers: Peers, runs: compared._Runs, rate: float) -> None:
    runs.number += 1
    compared.compare(peers, runs, "train_step of Net", compared.fingerprint(Jitted(rate).trace(1.0).jaxpr))


def test_equations_cross_only_where_programs_differ() -> None:
    """A large network has thousands, and each of a thousand workers would read those of each."""
    service, peers = members(3)
    runs = [compared._Runs() for _ in peers]
    assert on_all(peers, lambda index, own: compare(own, runs[index], 0.5)) == [None] * 3
    assert all(len(note) < 100 for note in service.store.values())
    on_all(peers, lambda index, own: compare(own, runs[index], (0.25, 0.25, 0.75)[index]))
    assert len([name for name in service.store if "equations of" in name]) == 2


def two() -> tuple[list[Peers], list[compared._Runs]]:
    return members(2)[1], [compared._Runs(), compared._Runs()]


def test_a_difference_is_shown_with_its_equation() -> None:
    peers, runs = two()
    for error in on_all(peers, lambda index, own: compare(own, runs[index], (0.5, 0.25)[index])):
        assert isinstance(error, PeerError)
        said = str(error)
        assert "the first equation of train_step of Net that differs is" in said
        assert "mul(float32[], 0.5) at test_compared.py:" in said
        assert "mul(float32[], 0.25) at test_compared.py:" in said
        assert "worker 1 (host node1, pid 101)" in said
        assert "experimental_distribute_values_from_function" in said


def test_who_runs_what_all_have_agreed_on_waits_for_nobody() -> None:
    """One worker may have kept a program that another traces again: it does not come."""
    peers, runs = two()
    assert on_all(peers, lambda index, own: compare(own, runs[index], 0.5)) == [None, None]
    compare(peers[1], runs[1], 0.5)
    runs[0].number += 1  # worker 0 has kept it
    assert on_all(peers, lambda index, own: compare(own, runs[index], 0.25)) == [None, None]


def test_who_comes_with_another_program_than_the_known_one_says_so_at_once() -> None:
    peers, runs = two()
    assert on_all(peers, lambda index, own: compare(own, runs[index], 0.5)) == [None, None]
    first, second = on_all(peers, lambda index, own: compare(own, runs[index], (0.5, 0.25)[index]))
    assert first is None
    assert "On worker 1 (host node1, pid 101), the first equation of train_step of Net that differs is" in str(second)


def test_equations_that_do_not_come_leave_the_difference_said(monkeypatch: pytest.MonkeyPatch) -> None:
    peers, runs = two()
    monkeypatch.setattr(compared, "_post_equations", lambda peers, own: None)
    for member in peers:
        member.timeout_seconds = 0.2
    for error in on_all(peers, lambda index, own: compare(own, runs[index], (0.5, 0.25)[index])):
        assert str(error).startswith("The tasks run different programs, and worker ")
        assert "Look for a constant, a branch or an array" in str(error)


def test_who_does_not_come_is_named() -> None:
    _, peers = members(2)
    peers[0].timeout_seconds = 0.01
    with pytest.raises(PeerError, match=r"waited 0.01 s; missing: worker 1 \(host node1, pid 101\)"):
        compare(peers[0], compared._Runs(), 0.5)


def test_a_program_is_compared_before_its_first_run_only(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int]] = []
    peers = members(1)[1][0]
    monkeypatch.setattr(compared, "current_peers", lambda: peers)
    monkeypatch.setattr(compared, "compare", lambda peers, runs, name, own: seen.append((name, runs.number)))
    jitted, alone = Jitted(0.5), ComparedProgram("alone", Jitted(0.5, alone=True))
    program = ComparedProgram("step", jitted)
    assert [program(1.0), program(1.0), program(1.0)] == [1.0, 1.0, 1.0]
    assert (seen, jitted.runs) == ([("step", 1)], 3)
    assert [alone(1.0), alone(1.0)] == [1.0, 1.0]  # what one worker runs alone is compared with nothing
    ComparedProgram("lowered", jitted).lower(1.0)
    assert seen == [("step", 1), ("lowered", 4)]
