"""Time of a pull and a push: a model of 11 MB from a parameter server and back, beside an echo of the same bytes.

    python benchmarks/pull_push.py [--rounds 10] [--steps 20] [--write]

The server has one core, the client another. All contenders take turns, as in step_time.py. Linux only.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pages import page, save
from processes import Contender, ContenderError
from rounds import Result, in_turns, say

from stratagem.transport.keys import make_keys

TASKS = ("ps", "chief")
OURS = "echo/stratagem_servers.py"
REFERENCE = Contender("grpc", "gRPC, echo", "echo/grpc_echo.py", TASKS, peer="grpc")
CONTENDERS = (
    REFERENCE,
    Contender("tcp", "a bare TCP connection, echo", "echo/bare_socket.py", TASKS),
    Contender("open", "Stratagem, no keys", OURS, TASKS),
    Contender("keys", "Stratagem, keys", OURS, TASKS, arguments=("keys",)),
    Contender("apply", "Stratagem, keys, gradients applied", OURS, TASKS, arguments=("keys", "apply")),
    Contender("open-sockets", "Stratagem, no keys, through sockets", OURS, TASKS, arguments=("sockets",)),
    Contender("keys-sockets", "Stratagem, keys, through sockets", OURS, TASKS, arguments=("keys", "sockets")),
)


def table(results: Sequence[Result]) -> str:
    """Return the results as a Markdown table."""
    reference = next((result for result in results if result.contender is REFERENCE), results[0])
    columns = "contender | ms | quartiles | times as fast | others | versions"
    lines = [f"| {columns} |", "| --- " * len(columns.split("|")) + "|"]
    for result in results:
        low, high = result.quartiles
        cells = [
            result.contender.title,
            f"{result.ms:.1f}",
            f"{low:.1f}-{high:.1f}",
            f"{reference.ratio_to(result):.2f}",
            f"{statistics.median(turn.others for turn in result.turns):.1%}",
            ", ".join(f"{name} {version}" for name, version in result.versions.items()),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Run the benchmark; return 1 if a contender failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="turns of each contender that count")
    parser.add_argument("--steps", type=int, default=20, help="pulls and pushes in a turn")
    parser.add_argument("--only", nargs="+", choices=[each.name for each in CONTENDERS], help="leave out the others")
    parser.add_argument("--write", action="store_true", help="save the page in benchmarks/results")
    arguments = parser.parse_args()
    contenders = [each for each in CONTENDERS if not arguments.only or each.name in arguments.only]
    with tempfile.TemporaryDirectory() as name:
        keys = Path(name) / "keys.json"
        keys.write_text(json.dumps({role: key.as_text() for role, key in make_keys(1).items()}))
        try:
            results = in_turns(contenders, arguments.rounds, arguments.steps, Path(name), keys)
        except ContenderError as error:
            say(str(error))
            return 1
    facts = [f"{arguments.rounds} rounds of {arguments.steps}; the model: the network of mnist_cnn, float32"]
    text = page("A pull and a push of 11 MB", facts, table(results))
    print(text)
    if arguments.write:
        say(f"written: {save('pull_push', text)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
