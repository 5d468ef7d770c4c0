from __future__ import annotations

import re
from pathlib import Path

import pytest

from stratagem.launch.cli import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "0", "SCRIPT"], "stratagem: --workers is 0.\n  Why it matters: No task could be started."),
        (["--nodes", "2", "SCRIPT"], "stratagem: --nodes is 2, and no --coordinator is given."),
        (["--node-rank", "3", "SCRIPT"], "stratagem: --node-rank is 3, --nodes is 1."),
        (["no_such.py"], "stratagem: There is no file 'no_such.py' in "),
        (["--wrkers", "2", "SCRIPT"], "No such option"),
        (["--grace", "-1", "SCRIPT"], "Invalid value for '--grace'"),
        ([], "Missing argument 'SCRIPT'"),
    ],
)
def test_wrong_command_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.touch()

    assert main(["run", *(str(script) if argument == "SCRIPT" else argument for argument in arguments)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--elastic", "3"], "--elastic is '3'.*Write for instance --elastic 2:4"),
        (["--elastic", "4:2"], "--elastic is '4:2'"),
        (["--elastic", "0:2"], "--elastic is '0:2'"),
        (["--elastic", "1:3", "--nodes", "2"], "--elastic is '1:3', --nodes is 2.*Write a multiple of 2"),
        (["--elastic", "2:4", "--nodes", "2", "--workers", "4"], "--workers is 4, --elastic is '2:4', --nodes is 2"),
        (["--elastic", "2:4", "--workers", "3"], "--workers is 3, --elastic is '2:4'.*Leave --workers out"),
        (["--spares", "1", "--backoff", "2"], "--backoff was given with --spares or --elastic"),
        (["--ps", "1", "--spares", "1"], "--spares was given with --ps.*Write --elastic MIN:MAX instead"),
        (["--elastic", "1:2", "--min-workers", "1"], "--min-workers was given.*--elastic MIN:MAX says how few"),
    ],
    ids=str,
)
def test_options_that_do_not_go_together(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.touch()
    assert main(["run", *options, str(script)]) == 2
    assert re.search(message, capsys.readouterr().err, re.DOTALL)


@pytest.mark.parametrize("option", ["-n", "-np", "--np", "--nproc_per_node", "--nproc-per-node"])
def test_options_of_other_launchers_name_ours(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", option, "2", __file__]) == 2
    assert "Did you mean --workers?" in capsys.readouterr().err.replace("'", "")


def test_log_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.touch()

    assert main(["run", "--log-dir", str(script / "logs"), str(script)]) == 2
    assert "What to do: Name another folder with --log-dir." in capsys.readouterr().err


def test_dry_run_prints_each_task_and_starts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit(1)")
    options = ["--workers", "2", "--coordinator", "10.0.0.5:7000", "--devices-per-worker", "3"]

    assert main(["run", *options, "--dry-run", str(script), "--epochs", "3", "two words"]) == 0
    first, second = capsys.readouterr().out.split("\n\n")
    assert first.startswith("# worker 0")
    assert (
        "TF_CONFIG='{"
        '"cluster": {"worker": ["10.0.0.5:7000", "10.0.0.5:7001"]}, "task": {"type": "worker", "index": 1}}'
        "' \\\n"
    ) in second
    assert "JAX_NUM_CPU_DEVICES=3 \\\n" in second
    assert second.endswith(f"{script} --epochs 3 'two words'\n")


def test_options_after_the_script_belong_to_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.touch()

    assert main(["run", "--dry-run", str(script), "--workers", "5", "--help"]) == 0
    shown = capsys.readouterr()
    assert shown.out.endswith(f"{script} --workers 5 --help\n")
    assert shown.err.startswith("stratagem: --workers stands after the script and goes to it; one worker is started.")

    assert main(["run", "--workers", "2", "--dry-run", str(script), "--workers=5"]) == 0
    assert capsys.readouterr().err == ""


def test_module_needs_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--dry-run", "-m", "package.train", "-x"]) == 0
    assert capsys.readouterr().out.endswith(" -m package.train -x\n")


def test_help_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help"]) == 0
    assert "--devices-per-worker" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        ("run", "  On one machine:\n      stratagem run --workers 2 train.py --epochs 3\n"),
        ("doctor", "  Workers on this machine:\n      stratagem doctor --workers 2 --backup-dir backup\n"),
        ("plan", "  A function of a program:\n      stratagem plan train.py:make_model --workers 4,8 --per-host 4\n"),
        ("migrate", "  See what would change:\n      stratagem migrate train.py\n"),
    ],
)
def test_examples_in_the_help_keep_their_lines(command: str, lines: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert lines in capfd.readouterr().out


@pytest.mark.parametrize("command", ["plan", "migrate"])
def test_a_command_of_its_own_module_reads_all_that_follows(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--no-such-option", "--", "--help"]) == 2
    assert f"Usage: stratagem {command}" in (shown := capfd.readouterr().err)
    assert re.search("No such option:? '?--no-such-option", shown)


def test_another_backend_in_the_shell_is_overridden_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.touch()
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")

    assert main(["run", "--dry-run", str(script)]) == 0
    shown = capsys.readouterr()
    assert shown.err == ("stratagem: KERAS_BACKEND=tensorflow in this shell; the tasks run with KERAS_BACKEND=jax\n")
    assert "KERAS_BACKEND=jax \\\n" in shown.out


def test_nothing_is_said_about_the_right_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.touch()
    monkeypatch.delenv("KERAS_BACKEND")

    assert main(["run", "--dry-run", str(script)]) == 0
    assert capsys.readouterr().err == ""
