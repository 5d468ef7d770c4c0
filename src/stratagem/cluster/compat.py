"""The parts of JAX that are not public. Checked with JAX 0.7 to 0.10."""

from __future__ import annotations

import ctypes
import faulthandler
import inspect
import platform
import signal
import tempfile
import threading
import types
from pathlib import Path
from typing import Any, Final, Protocol

import jax
from jax._src import compiler, distributed, xla_bridge

HEARTBEAT_SECONDS: Final = 86400
"""How long a task may be silent before JAX aborts the others. The lifeline is there long before."""

SHUTDOWN_SECONDS: Final = 10
"""How long JAX's exit handler waits for all tasks, which come to it together."""


class CoordinationClient(Protocol):
    """The store and the barriers of JAX's coordination service. Times are in milliseconds."""

    def key_value_set_bytes(self, key: str, value: bytes, allow_overwrite: bool = False) -> None:
        """Set a key."""
        ...

    def key_value_dir_get_bytes(self, key: str) -> list[tuple[str, bytes]]:
        """Return all keys below one that ends with "/", and their values."""
        ...

    def blocking_key_value_get_bytes(self, key: str, timeout_in_ms: int) -> bytes:
        """Return a value, waiting for it to be set."""
        ...

    def key_value_delete(self, key: str) -> None:
        """Delete a key, which need not be there."""
        ...

    def wait_at_barrier(self, barrier_id: str, timeout_in_ms: int) -> None:
        """Wait for all processes."""
        ...


def backends_started() -> bool:
    """Return whether JAX has opened its devices, after which a process cannot join a cluster."""
    return xla_bridge.backends_are_initialized()


def joined_elsewhere() -> bool:
    """Return whether the program itself called `jax.distributed.initialize`."""
    return distributed.global_state.client is not None


def start_distributed(
    coordinator_address: str, bind_address: str, num_processes: int, process_id: int, timeout_seconds: float
) -> CoordinationClient:
    """Start JAX's distributed runtime in this process.

    Args:
        coordinator_address: Where process 0 is reached.
        bind_address: Where process 0 listens.
        num_processes: Number of processes.
        process_id: Which one this is.
        timeout_seconds: When JAX gives up. It then aborts the process.

    Returns:
        The client of the coordination service.
    """
    arguments: dict[str, Any] = {
        "coordinator_address": coordinator_address,
        "coordinator_bind_address": bind_address,
        "num_processes": num_processes,
        "process_id": process_id,
        "initialization_timeout": max(1, round(timeout_seconds)),
        "heartbeat_timeout_seconds": HEARTBEAT_SECONDS,
        "shutdown_timeout_seconds": SHUTDOWN_SECONDS,
        # The cluster is known: without this JAX looks for Slurm and Open MPI to choose GPUs.
        "cluster_detection_method": "deactivate",
    }
    known = inspect.signature(jax.distributed.initialize).parameters
    # JAX's preemption service swallows SIGTERM: neither a scheduler nor a person could end a task politely.
    # JAX 0.7 cannot do without it; there the signal goes back to who had it.
    on_sigterm = signal.getsignal(signal.SIGTERM)
    if hasattr(jax.config, "jax_enable_preemption_service"):
        jax.config.update("jax_enable_preemption_service", False)
    jax.distributed.initialize(**{name: value for name, value in arguments.items() if name in known})
    if threading.current_thread() is threading.main_thread() and on_sigterm is not None:
        signal.signal(signal.SIGTERM, on_sigterm)
    client = distributed.global_state.client
    assert client is not None, "jax.distributed.initialize returned without a client"
    return client


def start_with_stand_ins(number: int) -> None:
    """Start JAX's distributed runtime for this process alone, with devices that stand for those of other processes.

    JAX compiles programs for all these devices and runs this process's part. No other process is connected: whatever
    crosses between them must go by other means than XLA's collectives. So other processes may come and go, and a mesh
    may have any number of them, while JAX's devices, arrays and programs stay.

    The runtime's first process collects a description of each process's devices from its store; here it finds those
    of processes that never come. (`BuildGlobalTopology` in XLA's `pjrt/distributed/topology_util.cc`.)

    Args:
        number: How many other devices.
    """
    with tempfile.TemporaryDirectory(prefix="stratagem-") as folder:  # the socket's name need not stay
        address = f"unix:{folder}/jax"
        client = start_distributed(address, address, 1, 0, 60)
    boot = Path("/proc/sys/kernel/random/boot_id")
    host = boot.read_text().strip() if boot.exists() else platform.node()
    for process in range(1, number + 1):
        key = f"cpu:local_topology/cpu/{process}"
        client.key_value_set_bytes(key, _topology(process, host))
    distributed.global_state.num_processes = number + 1


def _topology(process: int, host: str) -> bytes:
    """Return XLA's description (`LocalTopologyProto`) of a process with one CPU device."""
    number = process << _DEVICE_BITS
    name = f"CpuDevice(id={number})"
    device = [_number(4, number), _bytes(8, b"cpu"), _bytes(9, name.encode()), _bytes(10, f"cpu:{number}".encode())]
    return b"".join([_number(1, process), _bytes(2, host.encode()), _bytes(3, b"".join(device))])


_DEVICE_BITS: Final = 11
"""Bits of a CPU device's number that count within its process (`kMaxCpuDevicesPerProcess`)."""


def _number(field: int, value: int) -> bytes:
    """Return a number as Protocol Buffers write it."""
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    """Return bytes as Protocol Buffers write them."""
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    groups = []
    while True:
        value, group = value >> 7, value & 0x7F
        groups.append(group | (0x80 if value else 0))
        if not value:
            return bytes(groups)


def keep_programs(folder: str) -> None:
    """Let this process write the programs that it compiles to a folder of its own, whichever process it is.

    JAX lets process 0 alone write, because all were to write to one folder. On CPUs that leaves the others without any:
    what a program is found by contains the place in the cluster of the process that compiled it (seen with JAX 0.10).

    Args:
        folder: What JAX's setting for this must name. Elsewhere JAX's own rule holds.
    """
    write = getattr(compiler, "_cache_write", None)
    if not inspect.isfunction(write) or write.__closure__ or "distributed" not in write.__code__.co_names:
        return  # a later JAX, which does it otherwise: programs are compiled anew, as without a folder
    as_process_0 = types.SimpleNamespace(global_state=types.SimpleNamespace(process_id=0))
    # The same function, but for what it takes for the number of this process.
    write_here = types.FunctionType(write.__code__, {**vars(compiler), "distributed": as_process_0})

    def write_if_own(*args: Any) -> None:
        (write_here if compiler.config.compilation_cache_dir.value == folder else write)(*args)

    compiler._cache_write = write_if_own


def delay_abort() -> None:
    """Give this process six seconds between an abort and its end, in which the lifeline can say what happened.

    When process 0 is killed, JAX's coordination client aborts the others within 30 to 100 ms; its own callback for
    that case cannot be replaced from Python (`std::bad_cast`, seen with jaxlib 0.10). So an aborting process sleeps
    first: the handler of SIGABRT is the C function `sleep`, which takes the number of the signal, 6, for seconds.
    """
    has_stacks = faulthandler.is_enabled()
    faulthandler.disable()
    libc = ctypes.CDLL(None)
    libc.signal(signal.SIGABRT, ctypes.cast(libc.sleep, ctypes.c_void_p))
    if has_stacks:
        faulthandler.enable()  # again, and first: it hands on to the handler that it finds


def abandon() -> None:
    """Let this process end without JAX's barrier at exit, where the missing tasks will never come.

    With a task dead, the barrier held the others for 100 s, the heartbeat time (measured with JAX 0.10).
    """
    state = distributed.global_state
    for part in (state.client, state.service):
        # Never deleted, also not when Python ends: a client that outlives its service aborts the process.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(part))
    state.client = state.service = None


def is_abandoned() -> bool:
    """Return whether this process will end without JAX's barrier."""
    return distributed.global_state.client is None
