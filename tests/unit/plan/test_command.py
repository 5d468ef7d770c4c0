"""`stratagem plan` as a command."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import keras
import pytest
from click.testing import CliRunner, Result

from stratagem.plan.__main__ import main


def planned(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_table_verdict_and_advice() -> None:
    # 2 workers on a host: memory. 4 on 2 hosts: two levels. At 1 GB/s and nothing else 100 MB take 2 x 1/2 x 100 ms
    # between hosts; three passes of 0.1 ns a byte and two meetings in memory take 30.1 ms.
    options = ["--workers", "4,2", "--per-host", "2", "--network", "1GB/s,0us"]
    result = planned("--bytes", "100000000", "--step-ms", "300", *options)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0] == "100.0 MB of gradients; a step of one worker alone takes 300.0 ms, give or take 2.0%."
    two, four = (re.split("  +", line.strip()) for line in lines[3:5])
    assert two[:4] == ["2", "1", "memory", "300.0"]
    # 2% of 300 ms, times the expected maximum of 2 and 4 normal values, 0.564 and 1.029. 300 / 436.3 = 69%.
    assert two[4] == "3.4"
    assert four[:8] == ["4", "2", "two levels", "300.0", "6.2", "130.1", "436.3", "69%"]
    assert all(len(line) <= 100 for line in lines)
    said = "At 4 workers on 1GB/s,0us expect 69% efficiency: communication-bound, by bytes."
    assert any(line.startswith(said) for line in lines)
    assert re.search(r"^Try, with the efficiency to expect:\n +\d\d%  ", result.output, re.M)


def test_parameters_are_of_float32() -> None:
    result = planned("--parameters", "2500000", "--step-ms", "50")
    assert result.output.startswith("10.0 MB of gradients;")
    assert [line.split()[0] for line in result.output.splitlines()[3:8]] == ["2", "4", "8", "16", "32"]


def test_widest_table_has_100_columns() -> None:
    result = planned("--bytes", "99999999999", "--step-ms", "99999", "--workers", "1024,100000", "--network", "1gbe")
    assert max(map(len, result.output.splitlines())) <= 100


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("--step-ms", "5"), "MODEL, --parameters or --bytes is missing."),
        (("--bytes", "5"), "MODEL or --step-ms is missing."),
        (("--bytes", "5", "--step-ms", "5", "--workers", "2,x"), "--workers is '2,x'."),
        (("--bytes", "5", "--step-ms", "5", "--workers", "0"), "--workers is '0'."),
        (("--bytes", "5", "--step-ms", "5", "--network", "token"), "--network is 'token'."),
        (("missing.keras",), "MODEL missing.keras: no such file."),
    ],
)
def test_mistakes_are_explained(arguments: tuple[str, ...], found: str) -> None:
    result = planned(*arguments)
    assert result.exit_code == 2
    assert result.output.startswith(f"stratagem: {found}")
    assert "What to do: " in result.output


def test_a_model_is_measured(tmp_path: Path) -> None:
    inputs = keras.Input((8,))
    keras.Model(inputs, keras.layers.Dense(4)(inputs)).save(tmp_path / "model.keras")
    command = [
        sys.executable,
        "-m",
        "stratagem",
        "plan",
        str(tmp_path / "model.keras"),
        "--batch",
        "4",
        "--workers",
        "2",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert re.match(r"0\.0 MB of gradients; a step of one worker alone takes \d+\.\d ms", done.stdout)
    assert re.search(r"^At 2 workers on 10gbe expect \d+% efficiency", done.stdout, re.M)
