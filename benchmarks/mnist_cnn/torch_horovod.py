"""The same network and the same work for each step in PyTorch with Horovod's optimizer over Gloo.

What `horovodrun` would do is done here, as the processes are bound to their cores when they start: worker 0 is also the
place where the workers meet.

https://horovod.readthedocs.io/en/stable/pytorch.html
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time

import horovod  # pyright: ignore[reportMissingImports]
import horovod.torch as hvd  # pyright: ignore[reportMissingImports]
import torch  # pyright: ignore[reportMissingImports]
from horovod.runner.common.util import hosts  # pyright: ignore[reportMissingImports]
from horovod.runner.http import http_server  # pyright: ignore[reportMissingImports]
from torch_training import LEARNING_RATE, network, train_in_turns
from turns import Turns

MEETING_SECONDS = 60.0

tf_config = json.loads(os.environ["TF_CONFIG"])
workers, rank = tf_config["cluster"]["worker"], tf_config["task"]["index"]
host, _, port = workers[0].partition(":")


def open_meeting() -> None:
    """Start the server that `horovodrun` starts."""
    server = http_server.RendezvousHTTPServer((host, int(port)), http_server.RendezvousHandler, 0)
    server.init(hosts.get_host_assignments(hosts.parse_hosts(f"{host}:{len(workers)}"), len(workers)))
    threading.Thread(target=server.serve_forever, daemon=True).start()


def await_meeting() -> None:
    """Wait for it: Horovod itself tries three times, within a second and a half."""
    deadline = time.monotonic() + MEETING_SECONDS
    while time.monotonic() < deadline:
        with socket.socket() as trial:
            if trial.connect_ex((host, int(port))) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"worker 0 did not open {host}:{port} in {MEETING_SECONDS:.0f} s")


turns = Turns(horovod=horovod.__version__, torch=torch.__version__)
if rank == 0:
    open_meeting()
else:
    await_meeting()
size = str(len(workers))
os.environ |= {
    "HOROVOD_CONTROLLER": "gloo",
    "HOROVOD_CPU_OPERATIONS": "gloo",
    "HOROVOD_GLOO_IFACE": "lo",
    "HOROVOD_GLOO_RENDEZVOUS_ADDR": host,
    "HOROVOD_GLOO_RENDEZVOUS_PORT": port,
    "HOROVOD_HOSTNAME": host,
    "HOROVOD_RANK": str(rank),
    "HOROVOD_LOCAL_RANK": str(rank),
    "HOROVOD_CROSS_RANK": "0",  # all are on one host
    "HOROVOD_SIZE": size,
    "HOROVOD_LOCAL_SIZE": size,
    "HOROVOD_CROSS_SIZE": "1",
}
hvd.init()
model = network()
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
train_in_turns(turns, rank, len(workers), model, optimizer, lambda values: hvd.allreduce(values, op=hvd.Sum))
hvd.shutdown()
