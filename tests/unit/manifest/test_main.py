"""`stratagem manifest`, as one types it."""

from __future__ import annotations

import subprocess
import sys

from click.testing import CliRunner
from tests.schemas import kubernetes_documents

from stratagem.manifest.__main__ import main


def test_what_follows_the_program_is_the_program_s() -> None:
    done = CliRunner().invoke(main, ["--for", "jobset", "--image", "a:1", "-m", "pkg.train", "--workers", "7"])
    assert done.exit_code == 0
    document = kubernetes_documents(done.stdout)[-1]
    assert document["metadata"]["name"] == "train"
    job = document["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert job["completions"] == 2
    command = job["template"]["spec"]["containers"][0]["command"]
    assert command == ["python", "-m", "pkg.train", "--workers", "7"]


def test_parameter_servers_have_a_long_name_too() -> None:
    done = CliRunner().invoke(main, ["--for", "compose", "--parameter-servers", "1", "train.py"])
    assert "  chief-0:\n" in done.stdout


def test_what_cannot_be_written_is_said() -> None:
    done = CliRunner().invoke(main, ["--for", "trainjob", "train.py"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        "stratagem: --for trainjob was asked for without --image.\n"
        "  What to do: Name an image that has the program, Keras and Stratagem; deploy/Dockerfile builds one.\n"
    )


def test_the_command_needs_neither_jax_nor_yaml() -> None:
    program = (
        "import runpy, sys\n"
        "sys.argv = ['x', '--for', 'slurm', 'train.py']\n"
        "try:\n"
        "    runpy.run_module('stratagem.manifest', run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    assert not end.code\n"
        "print(sorted({'jax', 'keras', 'numpy', 'yaml'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "#!/bin/bash"
    assert done.stdout.splitlines()[-1] == "[]"
