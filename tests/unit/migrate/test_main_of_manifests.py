"""`stratagem migrate --manifest`, as one types it."""

from __future__ import annotations

from pathlib import Path

import yaml
from click.testing import CliRunner
from tests.unit.migrate import tfjobs

from stratagem.migrate.__main__ import main


def test_a_job_set_goes_to_stdout_and_what_is_different_to_stderr(tmp_path: Path) -> None:
    file = tmp_path / "tfjob.yaml"
    file.write_text(tfjobs.WORKERS)
    done = CliRunner().invoke(main, ["--manifest", str(file)])
    assert (done.exit_code, [document["kind"] for document in yaml.safe_load_all(done.stdout)]) == (0, ["JobSet"])
    assert f"{file}: Secret multi-worker-secret: create it before you start the job" in done.stderr
    assert file.read_text() == tfjobs.WORKERS


def test_a_file_is_written_beside_the_old_one_and_over_none(tmp_path: Path) -> None:
    file, new = tmp_path / "tfjob.yaml", tmp_path / "tfjob.trainjob.yaml"
    file.write_text(tfjobs.WORKERS)
    arguments = ["--manifest", "--write", "--for", "trainjob", str(file)]
    done = CliRunner().invoke(main, arguments)
    assert (done.exit_code, done.stdout) == (0, f"{file}: written to {new}\n")
    assert [document["kind"] for document in yaml.safe_load_all(new.read_text())] == ["TrainingRuntime", "TrainJob"]
    assert file.read_text() == tfjobs.WORKERS
    new.write_text("kept")
    done = CliRunner().invoke(main, arguments)
    assert (done.exit_code, done.stdout, new.read_text()) == (2, "", "kept")
    assert f"There is a file {new} already." in done.stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == ["tfjob.trainjob.yaml", "tfjob.yaml"]


def test_one_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(tfjobs.OLDEST)
    bad.write_text("a: b: c")
    done = CliRunner().invoke(main, ["--manifest", str(bad), str(tmp_path / "none.yaml"), str(good)])
    assert done.exit_code == 2
    assert f"stratagem: {bad}: The file is not valid YAML: line 1, column 5" in done.stderr
    assert "No such file" in done.stderr
    assert [document["kind"] for document in yaml.safe_load_all(done.stdout)] == ["JobSet"]


def test_options_that_do_not_go_together() -> None:
    for options in (["--for", "jobset", "a"], ["--manifest", "--check", "a"]):
        assert CliRunner().invoke(main, options).exit_code == 2
