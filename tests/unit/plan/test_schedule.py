"""What a compiled program does, by its text."""

from __future__ import annotations

import pytest

from stratagem.plan.program_text import array_bytes, parsed
from stratagem.plan.schedule import Collective, schedule_of

GPU = """HloModule jit_step, is_scheduled=true

%fused (p: f32[1000]) -> f32[1000] {
  %p = f32[1000]{0} parameter(0)
  ROOT %n = f32[1000]{0} negate(%p)
}

ENTRY %main (a: f32[1000], b: f32[250]) -> (f32[1000], f32[250]) {
  %a = f32[1000]{0} parameter(0), metadata={op_name="a"}
  %b = f32[250]{0} parameter(1)
  %all-reduce-start = f32[1000]{0} all-reduce-start(%a), channel_id=1, to_apply=%add, backend_config={"is_sync":false}
  %back = f32[1000]{0} fusion(%a), kind=kLoop, calls=%fused, metadata={op_name="jit(f)/transpose(jvp(dense))/dot"}
  %update = f32[1000]{0} fusion(%back), kind=kLoop, calls=%fused, metadata={op_name="jit(f)/adam/mul"}
  %all-reduce-done = f32[1000]{0} all-reduce-done(%all-reduce-start)
  %all-reduce-start.1 = f32[250]{0} all-reduce-start(%b), channel_id=2, backend_config={"is_sync":true}
  %all-reduce-done.1 = f32[250]{0} all-reduce-done(%all-reduce-start.1)
  %asks = f32[] custom-call(%b), custom_call_target="xla_ffi_python_gpu_callback"
  ROOT %tuple = (f32[1000]{0}, f32[250]{0}) tuple(%all-reduce-done, %all-reduce-done.1)
}
"""

LOOP = """HloModule jit_steps, is_scheduled=true

%body (s: (s32[], f32[8])) -> (s32[], f32[8]) {
  %s = (s32[], f32[8]{0}) parameter(0)
  %x = f32[8]{0} get-tuple-element(%s), index=1
  %sum = f32[8]{0} all-reduce(%x), to_apply=%add
  %i = s32[] get-tuple-element(%s), index=0
  ROOT %t = (s32[], f32[8]{0}) tuple(%i, %sum)
}

ENTRY %main (p: f32[8]) -> (s32[], f32[8]) {
  %p = f32[8]{0:T(128)} parameter(0)
  %c = s32[] constant(0)
  %begin = (s32[], f32[8]{0}) tuple(%c, %p)
  ROOT %w = (s32[], f32[8]{0}) while(%begin), condition=%cond, body=%body, backend_config={"known_trip_count":{"n":"5"}}
}
"""

LOOP_OF_TPU = LOOP.replace(', backend_config={"known_trip_count":{"n":"5"}}', "").replace(
    "%body (",
    """%cond (t: (s32[], f32[8])) -> pred[] {
  %n = s32[]{:T(128)} constant(7)
  %t = (s32[]{:T(128)}, f32[8]{0}) parameter(0)
  %j = s32[]{:T(128)} get-tuple-element(%t), index=0
  ROOT %lt = pred[]{:T(512)} compare(%j, %n), direction=LT, metadata={op_name="jit(f)/while/cond/lt"}
}

%body (""",
)

ON_CHIP = """ENTRY %main (p: bf16[64,128]) -> bf16[64,128] {
  %p = bf16[64,128]{1,0:T(8,128)(2,1)} parameter(0)
  %near = bf16[64,128]{1,0:T(8,128)(2,1)S(1)} fusion(%p), kind=kLoop, calls=%f
  ROOT %far = bf16[64,128]{1,0:T(8,128)(2,1)} fusion(%near), kind=kLoop, calls=%f
}
"""

GATHERED = """%wrapped (p: f32[4]) -> f32[1] {
  %p = f32[4]{0} parameter(0)
  ROOT %r = f32[1]{0} reduce-scatter(%p), dimensions={0}
}

ENTRY %main (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  %start = ((f32[4]{0}), f32[1]{0}) async-start(%p), calls=%wrapped
  %done = f32[1]{0} async-done(%start), calls=%wrapped
  ROOT %all = f32[4]{0} all-gather(%done), dimensions={0}
}
"""


def test_collectives_and_what_runs_beside_them() -> None:
    schedule = schedule_of(parsed(GPU))
    first, second = schedule.collectives
    # Beside the first: one kernel of the backward pass and one of the update, each reads and writes 4,000 bytes.
    assert first == Collective("all-reduce", 4000, beside=2, backward=1, moved=16_000)
    assert second == Collective("all-reduce", 1000)
    assert schedule.crossing == 5000
    assert schedule.beside_backward == 0.8
    assert schedule.host_calls == 1
    # Two fusions of 8,000 bytes, two sums that read or write their array, a call that reads 1,000 and writes 4.
    assert schedule.moved == 16_000 + 5000 + 1004


def test_what_a_loop_does_counts_as_often_as_it_turns() -> None:
    schedule = schedule_of(parsed(LOOP))
    assert schedule.collectives == (Collective("all-reduce", 32, times=5),)
    assert schedule.crossing == 160
    assert schedule.moved == 5 * 64
    assert schedule_of(parsed(LOOP_OF_TPU)).collectives == (Collective("all-reduce", 32, times=7),)


def test_what_branches_do_counts() -> None:
    branches = """%yes (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %sum = f32[4]{0} all-reduce(%p), to_apply=%add
}

%no (q: f32[4]) -> f32[4] {
  ROOT %q = f32[4]{0} parameter(0)
}

ENTRY %main (c: pred[], p: f32[4]) -> f32[4] {
  %c = pred[] parameter(0)
  %p = f32[4]{0} parameter(1)
  ROOT %r = f32[4]{0} conditional(%c, %p, %p), METHOD
}
"""
    for method in ("true_computation=%yes, false_computation=%no", "branch_computations={%no, %yes}"):
        schedule = schedule_of(parsed(branches.replace("METHOD", method)))
        assert schedule.collectives == (Collective("all-reduce", 16),)


def test_what_lies_beside_the_cores_moves_nothing() -> None:
    assert schedule_of(parsed(ON_CHIP)).moved == 2 * 64 * 128 * 2


def test_collectives_of_other_kinds() -> None:
    schedule = schedule_of(parsed(GATHERED))
    assert [(each.kind, each.nbytes) for each in schedule.collectives] == [("reduce-scatter", 4), ("all-gather", 16)]


@pytest.mark.parametrize(
    ("shape", "nbytes"),
    [
        ("f32[]", [4]),
        ("pred[7]{0}", [7]),
        ("s4[3]", [2]),
        ("f8e4m3fn[10]{0}", [10]),
        ("c64[2]", [16]),
        ("(u32[2]{0}, token[], bf16[3,5]{1,0:T(8,128)(2,1)})", [8, 0, 30]),
    ],
)
def test_bytes_of_shapes(shape: str, nbytes: list[int]) -> None:
    assert array_bytes(shape) == nbytes
