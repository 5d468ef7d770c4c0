"""Programs whose collectives go through memory: their order, and what they compute.

The other worker is a twin here, with the same values: a sum is twice the own part.
"""

from __future__ import annotations

import ctypes
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import Literal
from jax.sharding import Mesh, PartitionSpec
from tests.sent_bytes import sent_by_a_worker

from stratagem.core.errors import PeerError
from stratagem.host_memory import ffi
from stratagem.host_memory.hosts import Hosts
from stratagem.host_memory.plan import Plan, PlanPart
from stratagem.mesh.shards import sums_in_shards, whole_of
from stratagem.program.rules import exchanges, through_memory
from stratagem.program.rules.through_memory import MemoryProgram
from stratagem.program.tracing import Replayable

TARGET = "stratagem_twins"
CROSSING = ("ffi_call", "psum", "pmax", "all_gather", "reduce_scatter", "all_to_all")
WORKERS = 2


class Twins:
    """In place of `HostMemory`: two workers with equal values."""

    workers = WORKERS
    hosts = Hosts(((0, 1),))
    capacity = 1 << 20
    crosses_beside = False

    def __init__(self) -> None:
        self.plans: dict[int, Plan] = {}
        self.calls: list[int] = []
        self.begun: list[int] = []
        self.finished: list[int] = []
        self.error: Exception | None = None

    def plan(self, name: str, parts: Sequence[PlanPart]) -> Plan:
        return Plan(name, parts, self.capacity, self.hosts)

    def add(self, plan: Plan) -> None:
        self.plans[plan.signature] = plan

    def run(self, signature: int, operands: list[int], results: list[int]) -> None:
        if self.error is not None:
            raise self.error
        self.calls.append(signature)
        self._combine(signature, operands, results)

    def begin(self, signature: int, operands: list[int], results: list[int]) -> None:
        assert operands[:-1] == results[:-1], "what has begun stays where it is"
        self.begun.append(signature)

    def finish(self, signature: int, operands: list[int], results: list[int]) -> None:
        self.finished.append(signature)
        self._combine(signature, operands, results)

    def _combine(self, signature: int, operands: list[int], results: list[int]) -> None:
        for part, operand, result in zip(self.plans[signature].parts, operands, results, strict=False):
            count = WORKERS if part.operation == "gather" else 1
            if part.nbytes:
                own = np.frombuffer(ctypes.string_at(operand, part.nbytes), part.dtype)
                made = np.frombuffer(
                    memoryview((ctypes.c_char * (count * part.nbytes)).from_address(result)), part.dtype
                )
                made[:] = own * WORKERS if part.operation == "sum" else np.tile(own, count)


_current: list[Twins] = []


@pytest.fixture(scope="module")
def target() -> str:
    """Register the target once: XLA knows it for the life of the process."""
    ffi.register(TARGET, lambda *call: _current[-1].run(*call))
    ffi.register(f"{TARGET}_begin", lambda *call: _current[-1].begin(*call))
    ffi.register(f"{TARGET}_finish", lambda *call: _current[-1].finish(*call))
    return TARGET


@pytest.fixture
def twins(target: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Twins]:
    monkeypatch.setattr(exchanges, "TARGET", target)
    monkeypatch.setattr(exchanges, "BEGIN", f"{target}_begin")
    monkeypatch.setattr(exchanges, "FINISH", f"{target}_finish")
    _current.append(Twins())
    yield _current[-1]
    _current.pop()


def through(function: Callable[..., Any], twins: Any) -> Callable[..., Any]:
    """Compile a function of one replica, on one device that believes that it has a twin."""
    mesh = Mesh(np.array(jax.devices()[:1]), ("replica",))
    spec = PartitionSpec()
    arguments = len(inspect.signature(function).parameters)
    return MemoryProgram(mesh, function, (spec,) * arguments, spec, twins, donated=False)


def on_four(function: Callable[..., Any], twins: Any, arguments: int, shards: Sequence[int] = ()) -> Any:
    """Return a program of four replicas, which can be traced and compiled but not run."""
    mesh = Mesh(np.array(jax.devices()[:4]), ("replica",))
    specs = tuple(PartitionSpec("replica") if i in shards else PartitionSpec() for i in range(arguments))
    return MemoryProgram(mesh, function, specs, PartitionSpec(), twins, donated=False)


def traced_on_four(function: Callable[..., Any], twins: Any, *args: Any) -> Any:
    """Return the equations of a function of one of four replicas."""
    traced = on_four(function, twins, len(args)).trace(*args)
    [spmd] = [eqn for eqn in traced.jaxpr.eqns if eqn.primitive.name == "shard_map"]
    return spmd.params["jaxpr"]


def crossings(function: Callable[..., Any], twins: Any, *args: Any) -> list[Any]:
    """Return those by which it meets the others."""
    return [eqn for eqn in traced_on_four(function, twins, *args).eqns if eqn.primitive.name in CROSSING]


def text_of(program: Any, *args: Any) -> str:
    """Return a program as XLA has compiled it."""
    return program.trace(*args).lower().compile().as_text()


def by_jax(function: Callable[..., Any], *args: Any) -> Any:
    """Run it on two replicas, as JAX does, and return what the first one has."""
    twice = jax.vmap(function, axis_name="replica", axis_size=WORKERS, in_axes=None)
    return jax.tree.map(lambda leaf: leaf[0], twice(*args))


def total(value: Any) -> Any:
    return lax.psum(value, "replica")


def step(weights: jax.Array, counts: jax.Array, flags: jax.Array) -> Any:
    """Everything that a step may ask of the other replicas."""
    gradients = [jnp.sin(weights), counts * 2, weights.astype(jnp.bfloat16)]
    loss = total(weights.sum())
    first = total(gradients)
    most = lax.pmax((weights, flags), "replica")
    least = lax.pmin(counts, "replica")
    stacked = lax.all_gather(weights, "replica", axis=1)
    side_by_side = lax.all_gather(weights, "replica", axis=1, tiled=True)
    second = total(first[0] * loss)  # needs the first exchange
    third = jax.jit(lambda x: total(x + 1))(second)
    chosen = lax.cond(loss > 0, lambda x: total(x) + 1, lambda x: x, third)

    def body(carry: jax.Array, row: jax.Array) -> Any:
        carry = carry / 2 + total(row)
        return carry, total(carry)

    last, rows = lax.scan(body, chosen[0], chosen)
    nothing = total(jnp.zeros((0, 3)))
    return loss, first, most, least, stacked, side_by_side, second, third, chosen, last, rows, nothing


ARGS = (jnp.arange(6.0).reshape(2, 3) + 1, jnp.arange(4, dtype=jnp.int32), jnp.array([True, False]))


def test_a_program_computes_the_same(twins: Twins) -> None:
    program = through(step, twins)
    expected = by_jax(step, *ARGS)
    for _ in range(2):
        found = program(*ARGS)
        assert jax.tree.structure(found) == jax.tree.structure(expected)
        for own, wanted in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            assert (own.shape, own.dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_allclose(np.asarray(own, float), np.asarray(wanted, float), rtol=1e-6)


def test_what_the_compiler_has_freed_goes_back_before_the_first_run(
    twins: Twins, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(through_memory, "give_back", lambda: found.append((len(compiled), len(twins.calls))))
    program = through(lambda x: total(x), twins)
    compiled.clear()
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(program(ARGS[0])), 2 * np.asarray(ARGS[0]))
    assert found == [(1, 0)]
    assert (len(compiled), len(twins.calls)) == (1, 3)


def test_what_does_not_need_another_exchange_goes_into_the_same(twins: Twins) -> None:
    through(step, twins)(*ARGS)
    # first; second; in the jitted function; in the branch; two for each of the two rows of the loop
    assert len(twins.calls) == 8
    parts = [len(twins.plans[signature].parts) for signature in twins.calls]
    assert parts == [10, 1, 1, 1, 1, 1, 1, 1]


def test_a_sum_that_nobody_needs_is_left_out(twins: Twins) -> None:
    def wasteful(x: jax.Array) -> jax.Array:
        total(x + total(x))
        return x

    through(wasteful, twins)(ARGS[0])
    assert twins.calls == []


def test_other_axes_and_groups_stay_with_xla(twins: Twins) -> None:
    def other(x: jax.Array) -> jax.Array:
        return jax.vmap(lambda row: lax.psum(row, "rows"), axis_name="rows")(x)

    np.testing.assert_array_equal(through(other, twins)(ARGS[0]), by_jax(other, ARGS[0]))
    assert twins.calls == []


def test_xla_works_between_two_calls(twins: Twins) -> None:
    """Only traced: XLA's collectives wait for the first call, the second one waits for them; on every worker alike."""

    def step(x: jax.Array) -> Any:
        swapped = lax.all_to_all(jnp.tile(x, (2, 1)), "replica", 0, 0)
        first = total(x)
        return first, swapped, total(2 * first), lax.psum(x, "replica", axis_index_groups=[[0, 1], [2, 3]])

    first, *between, last = crossings(step, twins, ARGS[0])
    assert (first.primitive.name, last.primitive.name) == ("ffi_call", "ffi_call")
    groups = {eqn.primitive.name: eqn.params["axis_index_groups"] for eqn in between}
    assert groups == {"all_to_all": None, "psum": ((0, 1), (2, 3))}
    for eqn in between:
        assert eqn.invars[0] in first.outvars
    program = traced_on_four(step, twins, ARGS[0])
    needed = {[eqn for eqn in program.eqns if eqn.primitive.name == "ffi_call"][-1].invars[-1]}
    for eqn in reversed(program.eqns):
        if needed & set(eqn.outvars):
            needed |= {var for var in eqn.invars if not isinstance(var, Literal)}
    assert all(set(eqn.outvars) <= needed for eqn in program.eqns if eqn.primitive.name in ("all_to_all", "psum"))


def test_the_link_waits_for_xla_and_stays_zero(twins: Twins) -> None:
    """XLA:CPU may not leave the dependence out."""

    def step(x: jax.Array) -> Any:
        swapped = lax.all_to_all(jnp.tile(x, (2, 1)), "replica", 0, 0)
        return swapped, total(2 * total(x))

    text = text_of(on_four(step, twins, 1), ARGS[0])
    *_, last = [line for line in text.splitlines() if TARGET in line]
    link = re.findall(r"%([\w.-]+)", last.partition("custom-call(")[2].partition(")")[0])[-1]
    [made] = [line for line in text.splitlines() if line.strip().startswith(f"%{link} =")]
    assert "all-to-all" in made or "fusion" in made, made


def in_shards(gradient: jax.Array, slot: jax.Array, weight: jax.Array) -> Any:
    """What a step asks of the others: sums in shards, new weights in the place of old ones, a weight that was gathered.

    A replica has gradients of 4 x 6 and 6 x 4 numbers in float32, a shard of 1 x 6 of a slot, and one of 2 x 6 of a
    weight in bfloat16.
    """
    shards = sums_in_shards([(gradient, 0), (gradient.T, 1)], None)
    renewed = whole_of(shards[0] + slot, 0, gradient)
    return renewed, whole_of(shards[1], 1), whole_of(weight, 0), total(slot.sum())


SHARDS = (jnp.zeros((4, 6)), jnp.zeros((4, 6)), jnp.zeros((8, 6), jnp.bfloat16))
"""Arguments of it: a whole, and the shards of all four replicas."""

_OF_ONE = (jnp.zeros((4, 6)), jnp.zeros((1, 6)), jnp.zeros((2, 6), jnp.bfloat16))
"""Those of one replica."""


@pytest.mark.parametrize("by_host", [((0, 1), (2, 3)), ((0, 3), (1, 2)), ((0, 1, 2), (3,))])
def test_shards_cross_in_calls_only(twins: Twins, by_host: tuple[tuple[int, ...], ...]) -> None:
    """Whichever hosts there are: nothing is left to XLA."""
    twins.hosts = Hosts(by_host)
    program = on_four(in_shards, twins, 3, shards=(1, 2))
    assert sent_by_a_worker(text_of(program, *SHARDS)) == {}
    assert {eqn.primitive.name for eqn in crossings(in_shards, twins, *_OF_ONE)} == {"ffi_call"}


def test_new_weights_lie_where_the_old_ones_lay(twins: Twins) -> None:
    twins.hosts = Hosts(((0, 1), (2, 3)))

    def step(shard: jax.Array, before: jax.Array, short: jax.Array, short_before: jax.Array) -> Any:
        return whole_of(shard, 0, before), whole_of(short, 0, short_before)

    whole, short = jnp.zeros((4, 3)), jnp.zeros((8, 3), jnp.bfloat16)
    [call] = crossings(step, twins, whole[:1], whole, short[:2], short)
    aliases = dict(call.params["input_output_aliases"])
    assert {aliases[i] for i, var in enumerate(call.invars) if var.aval.shape in (whole.shape, short.shape)} == {0, 1}


def test_programs_in_a_traced_function_keep_their_order(twins: Twins) -> None:
    program = through(lambda x: total(x), twins)

    def function(x: jax.Array) -> Any:
        first, second = program(x), program(x + 1)  # neither needs the other
        looped = lax.scan(lambda c, _: (c + program(x), None), x, None, length=2)[0]
        return first, second, looped, program(x)

    def traced(x: jax.Array) -> Any:
        return Replayable(lambda: function(x)).run()

    found = jax.jit(traced)(ARGS[0])
    np.testing.assert_array_equal(found[1], 2 * (ARGS[0] + 1))
    assert len(twins.calls) == 3
    equations = [eqn for eqn in jax.make_jaxpr(traced)(ARGS[0]).jaxpr.eqns if eqn.primitive.name == "shard_map"]
    assert [len(eqn.outvars) for eqn in equations] == [2, 2, 2]
    assert [eqn.invars[0] for eqn in equations[1:]] == [eqn.outvars[0] for eqn in equations[:-1]]
    assert "psum" in str(jax.make_jaxpr(traced)(ARGS[0]))  # in the loop


def test_an_exception_fails_the_program_with_its_words(twins: Twins) -> None:
    program = through(lambda x: total(x), twins)
    program(ARGS[0])
    twins.error = PeerError("worker 1 has ended, 10 °C")
    with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match="ABORTED: worker 1 has ended, 10 °C"):
        jax.block_until_ready(program(ARGS[0]))
    twins.error = None
    np.testing.assert_array_equal(program(ARGS[0]), 2 * ARGS[0])


def backward(weights: Sequence[jax.Array], x: jax.Array) -> Any:
    """Return sums of what is known one after the other, last layers first, with a mask between each and its sum."""
    found = []
    for weight in reversed(weights):
        x = jnp.tanh(x @ weight)
        found.append(x)
    return [total(each * 0.5) for each in reversed(found)]


def test_sums_begin_in_the_order_in_which_the_program_has_them(twins: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "GROUP_BYTES", 2 * 16 * 4)
    twins.crosses_beside = True
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(4, 4)), [jnp.asarray(rng.normal(size=(4, 4)), jnp.float32) for _ in range(5)]
    found = through(lambda a, b, c, d, e, x: backward([a, b, c, d, e], x), twins)(*weights, jnp.asarray(x, jnp.float32))
    for weight, value in zip(reversed(weights), reversed(found), strict=True):
        x = np.tanh(x @ weight)
        np.testing.assert_allclose(value, x, rtol=1e-5)
    assert twins.begun == twins.finished
    assert [len(twins.plans[each].parts) for each in twins.begun] == [2, 2, 1]
    assert twins.calls == []


def test_what_is_no_sum_crosses_with_the_last_of_them(twins: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "GROUP_BYTES", 1)
    twins.crosses_beside = True

    def function(x: jax.Array) -> Any:
        return (
            total(x),
            lax.all_gather(x, "replica"),
            lax.pmax(x, "replica"),
            total(jnp.tanh(x)),
            total(x.astype(jnp.bfloat16)),
        )

    through(function, twins)(ARGS[0])
    operations = [[part.operation for part in twins.plans[each].parts] for each in twins.begun]
    assert operations == [["sum"], ["sum"], ["sum", "gather", "max"]]
    assert twins.begun == twins.finished


def test_a_few_sums_cross_in_one_call(twins: Twins) -> None:
    twins.crosses_beside = True
    through(lambda x: (total(x), total(x + 1)), twins)(ARGS[0])
    assert len(twins.calls) == 1
    assert twins.begun == []
