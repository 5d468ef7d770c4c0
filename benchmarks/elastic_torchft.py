"""Workers of TorchFT that train on when one of them is killed: what `elastic.py` runs, in PyTorch.

`peers/torchft/.venv/bin/python elastic_torchft.py FOLDER STEPS WORKERS ROWS`: starts its coordinator (the lighthouse)
and the workers, and starts a worker anew that is killed, as `torchrun --max-restarts` does. Each worker notes its steps
in FOLDER. The network is that of `elastic.py`. Its time limits are those of TorchFT's own README.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Final

import torch
from torch import nn
from torch.distributed import TCPStore
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo
from torchft.coordination import LighthouseServer

LIGHTHOUSE: Final = "TORCHFT_LIGHTHOUSE"
"""Where workers find the lighthouse; TorchFT's own variable."""

MOST_STARTS: Final = 10
"""Workers that are started at most: something is wrong where so many end."""


def work(folder: Path, steps: int, rows: int) -> None:
    """Train, and note each step."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    layers = [nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    layers += [nn.Linear(8 * 13 * 13, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10)]
    network = nn.Sequential(*layers)
    adam = torch.optim.Adam(network.parameters(), 1e-3)

    def load(state: dict[str, dict[str, object]]) -> None:
        network.load_state_dict(state["network"])
        adam.load_state_dict(state["optimizer"])

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=timedelta(seconds=5)),
        load_state_dict=load,
        state_dict=lambda: {"network": network.state_dict(), "optimizer": adam.state_dict()},
        min_replica_size=1,
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        timeout=timedelta(seconds=30),
        hostname="127.0.0.1",
    )
    model, optimizer = DistributedDataParallel(manager, network), Optimizer(manager, adam)
    x, y = torch.randn(rows * 50, 1, 28, 28), torch.randint(0, 10, (rows * 50,))
    while (step := manager.current_step()) < steps:
        begin = step * rows % len(x)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[begin : begin + rows]), y[begin : begin + rows]).backward()
        optimizer.step()
        if manager.current_step() > step:
            with (folder / f"steps-{os.getpid()}").open("a") as file:
                file.write(f"{manager.current_step()} {time.time():.4f}\n")
    (folder / f"end-{os.getpid()}.json").write_text("{}")
    os._exit(0)  # its threads would wait for the others


def launch(folder: Path, steps: int, workers: int, rows: int) -> None:
    """Run workers until one has come to the end; start anew what is killed.

    Raises:
        SystemExit: More of them ended than anybody kills here.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the workers end too
    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, quorum_tick_ms=100, join_timeout_ms=10_000)
    command = [sys.executable, __file__, str(folder), str(steps), str(rows)]
    environment = {**os.environ, LIGHTHOUSE: lighthouse.address()}

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, env=environment)

    running, num_started = [start() for _ in range(workers)], workers
    try:
        while not list(folder.glob("end-*")):
            for index, process in enumerate(running):
                if process.poll() is not None:
                    if num_started >= MOST_STARTS:
                        raise SystemExit(f"{num_started} workers of TorchFT were started, and none came to the end")
                    running[index], num_started = start(), num_started + 1
            time.sleep(0.05)
    finally:
        for process in running:
            process.kill()
            process.wait()
        lighthouse.shutdown()


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[2:]]
    if LIGHTHOUSE in os.environ:
        work(Path(sys.argv[1]), *numbers)
    else:
        launch(Path(sys.argv[1]), *numbers)
