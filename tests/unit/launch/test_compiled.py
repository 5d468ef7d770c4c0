from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from stratagem.launch.compiled import CompiledPrograms, cache_variables, kept_programs, kind_of_programs
from stratagem.launch.machine import Machine, processor

KIND = "a processor"
TASKS = ("worker 0", "worker 1")
PROGRAM = zlib.compress(b"machine code" * 100)


@pytest.fixture
def programs(tmp_path: Path) -> CompiledPrograms:
    return CompiledPrograms(tmp_path / "compiled")


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def run_that_writes(programs: CompiledPrograms, *written: str, kind: str = KIND, program: bytes = PROGRAM) -> None:
    with programs.lent(kind, TASKS) as folders:
        for name in written:
            (folders["worker 0"] / name).write_bytes(program)


def found(programs: CompiledPrograms, kind: str = KIND, tasks: Sequence[str] = TASKS) -> list[list[str]]:
    with programs.lent(kind, tasks) as folders:
        return [names(folders[task]) for task in tasks]


def test_all_tasks_of_the_next_run_find_what_one_task_compiled(programs: CompiledPrograms) -> None:
    assert found(programs) == [[], []]
    run_that_writes(programs, "step-12ab-cache")

    with programs.lent(KIND, TASKS) as folders:
        assert [(folders[task] / "step-12ab-cache").read_bytes() for task in TASKS] == [PROGRAM] * 2
        assert len(set(folders.values())) == 2
    assert names(programs.folder / KIND) == ["step-12ab-cache"]


def test_nobody_finds_what_was_compiled_for_another_processor(programs: CompiledPrograms) -> None:
    run_that_writes(programs, "step-cache")

    assert found(programs, "another processor") == [[], []]


def test_only_this_user_can_put_programs_there(programs: CompiledPrograms, capsys: pytest.CaptureFixture[str]) -> None:
    with programs.lent(KIND, TASKS) as folders:
        for folder in (programs.folder, programs.folder / KIND, folders["worker 0"].parent):
            assert folder.stat().st_mode & 0o077 == 0
    programs.folder.chmod(0o777)
    with programs.lent(KIND, TASKS) as folders:
        assert folders == {}
    assert "other users could put programs there" in capsys.readouterr().err


@pytest.mark.parametrize("length", [0, 1, len(PROGRAM) // 2, len(PROGRAM) - 1])
def test_half_a_program_is_not_kept(programs: CompiledPrograms, length: int) -> None:
    run_that_writes(programs, "half-cache", program=PROGRAM[:length])
    run_that_writes(programs, "whole-cache")

    assert found(programs) == [["whole-cache"]] * 2


def test_a_task_that_writes_is_not_read_by_others_before_it_has_ended(programs: CompiledPrograms) -> None:
    with programs.lent(KIND, TASKS) as folders:
        (folders["worker 0"] / "step-cache").write_bytes(PROGRAM)

        assert names(folders["worker 1"]) == []
        assert found(programs) == [[], []]  # another run at the same time; the folders of this one stay
        assert names(folders["worker 0"]) == ["step-cache"]
    assert found(programs) == [["step-cache"]] * 2


def test_what_a_killed_launcher_has_left_is_taken_over(programs: CompiledPrograms) -> None:
    script = f"""
import os, pathlib, signal
from stratagem.launch.compiled import CompiledPrograms
with CompiledPrograms(pathlib.Path({str(programs.folder)!r})).lent({KIND!r}, {TASKS!r}) as folders:
    (folders["worker 0"] / "whole-cache").write_bytes({PROGRAM!r})
    (folders["worker 0"] / "half-cache").write_bytes({PROGRAM[:30]!r})
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    assert len(names(programs.folder / KIND)) == 1  # the folder of that run

    assert found(programs) == [["whole-cache"]] * 2
    assert names(programs.folder / KIND) == ["whole-cache"]


def test_programs_that_were_not_used_for_longest_go_first(tmp_path: Path) -> None:
    programs = CompiledPrograms(tmp_path, most_bytes=3 * len(PROGRAM))
    run_that_writes(programs, "a-cache", "b-cache", "c-cache")
    for age, name in enumerate(("b-cache", "a-cache", "c-cache")):  # b was used last
        os.utime(tmp_path / KIND / name, (1e9 - age, 1e9 - age))
    run_that_writes(programs, "d-cache", "e-cache", kind="another processor")

    assert names(tmp_path / KIND) == ["b-cache"]
    assert names(tmp_path / "another processor") == ["d-cache", "e-cache"]


def test_a_folder_that_cannot_be_made_is_named_and_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    with CompiledPrograms(tmp_path / "file").lent(KIND, TASKS) as folders:
        assert folders == {}

    error = capsys.readouterr().err
    assert error.startswith(f"stratagem: compiled programs cannot be kept in {tmp_path / 'file'}: ")
    assert error.endswith("With --no-compilation-cache the launcher does not try.\n")


def test_a_folder_that_goes_away_ends_nothing(programs: CompiledPrograms, capsys: pytest.CaptureFixture[str]) -> None:
    with programs.lent(KIND, TASKS) as folders:
        (folders["worker 0"] / "step-cache").write_bytes(PROGRAM)
        shutil.rmtree(programs.folder)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"XDG_CACHE_HOME": "/cache"}, Path("/cache/stratagem/compiled")),
        ({"XDG_CACHE_HOME": "/cache", "JAX_ENABLE_COMPILATION_CACHE": "true"}, Path("/cache/stratagem/compiled")),
        ({"XDG_CACHE_HOME": ""}, Path.home() / ".cache/stratagem/compiled"),
        ({}, Path.home() / ".cache/stratagem/compiled"),
        ({"JAX_COMPILATION_CACHE_DIR": "/own"}, None),
        ({"JAX_ENABLE_COMPILATION_CACHE": "False"}, None),
        ({"JAX_ENABLE_COMPILATION_CACHE": "0"}, None),
    ],
)
def test_what_the_user_says_about_the_cache_comes_first(variables: dict[str, str], expected: Path | None) -> None:
    programs = kept_programs(variables)

    assert (None if programs is None else programs.folder) == expected


def test_variables_of_a_task() -> None:
    assert cache_variables(Path("/run-1/0"), {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "2"}) == {
        "JAX_COMPILATION_CACHE_DIR": "/run-1/0",
        "STRATAGEM_OWN_PROGRAMS": "/run-1/0",
        "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",
    }


def test_processors_differ_by_what_they_can_do(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"

    def described(flags: str, mhz: str) -> str:
        core = f"processor\t: 0\nvendor_id\t: A\nmodel\t\t: 17\ncpu MHz\t\t: {mhz}\nflags\t\t: {flags}\n"
        info.write_text(f"{core}\n{core.replace(mhz, '1')}\n")
        return processor(info)

    assert described("fpu avx2", "2596.1") == described("fpu avx2", "1800.0")
    assert described("fpu avx2", "2596.1") != described("fpu avx2 avx512f", "2596.1")
    assert processor(tmp_path / "missing") != ""


def test_programs_are_of_one_kind_where_workers_have_as_many_cores() -> None:
    def kind(cores: int, workers: int) -> str:
        return kind_of_programs(Machine(cores=tuple(range(cores)), num_cores=cores), workers)

    assert kind(4, 2) == kind(2, 1) == kind(5, 2)
    assert kind(4, 2) != kind(4, 1)
    assert kind(2, 4) == kind(2, 2)
