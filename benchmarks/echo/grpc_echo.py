"""gRPC: a server gives back the bytes that a client sends, one message each way."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor

import grpc  # pyright: ignore[reportMissingImports]
from model import BYTES
from turns import Turns

cluster, task = (json.loads(os.environ["TF_CONFIG"])[part] for part in ("cluster", "task"))
(address,) = cluster["ps"]
options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
if task["type"] == "ps":
    server = grpc.server(ThreadPoolExecutor(4), options=options)
    handler = grpc.unary_unary_rpc_method_handler(lambda request, _: request)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Echo", {"echo": handler}),))
    server.add_insecure_port(address)
    server.start()
    server.wait_for_termination()

turns = Turns(grpcio=grpc.__version__)
content = os.urandom(BYTES)
with grpc.insecure_channel(address, options=options) as channel:
    echo = channel.unary_unary("/Echo/echo")
    echo(content, wait_for_ready=True, timeout=60)
    while True:
        for _ in range(turns.steps):
            assert len(echo(content)) == BYTES
        if not turns.finish(0.0):
            break
