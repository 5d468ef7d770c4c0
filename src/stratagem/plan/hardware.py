"""Devices that programs are planned for, with their published figures.

Sources: NVIDIA's data sheets of V100, T4, A100, L4, H100 and H200 (peaks without sparsity, NVLink in one direction);
Google Cloud's pages of TPU v5e, v5p and v6e (half of the bidirectional bandwidth between chips). The facts
that XLA's compiler needs about a GPU come from its own descriptions of these cards (openxla/xla,
`xla/backends/gpu/target_config/specs`); those of L4 and T4 come from NVIDIA's architecture papers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Platform = Literal["gpu", "tpu", "cpu"]

_GIB: Final = 2.0**30


@dataclass(frozen=True)
class Chip:
    """Facts of an NVIDIA GPU that XLA's compiler needs.

    Args:
        capability: Major and minor number of its compute capability.
        cores: Streaming multiprocessors.
        units: Float32 units of each multiprocessor.
        clock_ghz: Its highest clock.
        cache: Bytes of the second level's cache.
        shared: Bytes of shared memory of a multiprocessor.
        shared_of_block: Bytes of it that a block may ask for.
        threads: Number of threads that a multiprocessor holds at once.
    """

    capability: tuple[int, int]
    cores: int
    units: int
    clock_ghz: float
    cache: int
    shared: int
    shared_of_block: int
    threads: int = 2048


@dataclass(frozen=True)
class Hardware:
    """One kind of device.

    Args:
        name: Its name in `--on`.
        title: Its name in reports.
        platform: Its platform in JAX.
        memory: Bytes of its memory.
        bandwidth: Bytes a second from and to its memory.
        flops: Greatest number of floating-point operations a second of matrix products, by dtype.
            JAX computes those of float32 arrays with the units for shorter numbers where there are some
            (TF32, bfloat16), unless the program asks for more.
        link: Bytes a second that a device sends to others of its host, or of its slice.
        chip: Facts of an NVIDIA GPU.
    """

    name: str
    title: str
    platform: Platform
    memory: float = 0.0
    bandwidth: float = 0.0
    flops: tuple[tuple[str, float], ...] = ()
    link: float = 0.0
    chip: Chip | None = None

    def peak(self, dtype: str) -> float:
        """Return the greatest number of operations a second for products of arrays of a dtype; 0 if it is not known."""
        peaks = dict(self.flops)
        return peaks.get(dtype, peaks.get("float32", 0.0))


def _gpu(
    name: str, title: str, memory: int, bandwidth: float, tera: dict[str, float], link: float, chip: Chip
) -> Hardware:
    flops = tuple((dtype, peak * 1e12) for dtype, peak in tera.items())
    return Hardware(name, title, "gpu", memory, bandwidth, flops, link, chip)


def _tpu(name: str, title: str, gib: int, bandwidth: float, tera: float, link: float) -> Hardware:
    flops = (("bfloat16", tera * 1e12), ("float32", tera * 1e12))
    return Hardware(name, title, "tpu", gib * _GIB, bandwidth, flops, link)


_HOPPER: Final = {"bfloat16": 989.0, "float16": 989.0, "float32": 494.0}
_AMPERE: Final = {"bfloat16": 312.0, "float16": 312.0, "float32": 156.0}
_OF_HOPPER: Final = Chip((9, 0), 132, 128, 1.98, 52428800, 233472, 232448)
_OF_AMPERE: Final = Chip((8, 0), 108, 64, 1.41, 41943040, 167936, 166912)

CPU: Final = Hardware("cpu", "CPU device", "cpu")
"""A virtual device of this machine's processor, whose peaks are not known."""

_ALL: Final = (
    _gpu("h200", "NVIDIA H200 141GB HBM3e", 151397597184, 4.8e12, _HOPPER, 450e9, _OF_HOPPER),
    _gpu("h100", "NVIDIA H100 80GB HBM3", 84942979072, 3.352e12, _HOPPER, 450e9, _OF_HOPPER),
    _gpu("a100", "NVIDIA A100-SXM4-80GB", 85100068864, 2.039e12, _AMPERE, 300e9, _OF_AMPERE),
    _gpu("a100-40gb", "NVIDIA A100-SXM4-40GB", 42331013120, 1.555e12, _AMPERE, 300e9, _OF_AMPERE),
    _gpu(
        "l4",
        "NVIDIA L4",
        24152899584,
        0.3e12,
        {"bfloat16": 121.0, "float16": 121.0, "float32": 60.0},
        32e9,
        Chip((8, 9), 58, 128, 2.04, 50331648, 102400, 101376, 1536),
    ),
    _gpu(
        "t4",
        "Tesla T4",
        15828320256,
        0.32e12,
        {"float16": 65.0, "float32": 8.1},
        16e9,
        Chip((7, 5), 40, 64, 1.59, 4194304, 65536, 65536, 1024),
    ),
    _gpu(
        "v100",
        "Tesla V100-SXM2-16GB",
        16935682048,
        0.898e12,
        {"float16": 125.0, "float32": 15.7},
        150e9,
        Chip((7, 0), 80, 64, 1.53, 6291456, 98304, 98304),
    ),
    _tpu("v5e", "TPU v5e", 16, 0.819e12, 197.0, 200e9),
    _tpu("v5p", "TPU v5p", 95, 2.765e12, 459.0, 600e9),
    _tpu("v6e", "TPU v6e", 32, 1.64e12, 918.0, 400e9),
    CPU,
)

KNOWN: Final = {hardware.name: hardware for hardware in _ALL}
"""All kinds of devices, by name."""


def target_config(hardware: Hardware) -> str:
    """Return the description of a GPU that XLA reads (`stream_executor.GpuTargetConfigProto`, as text)."""
    chip = hardware.chip
    assert chip is not None
    major, minor = chip.capability
    return f"""
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {chip.shared}
  shared_memory_per_block_optin: {chip.shared_of_block}
  threads_per_core_limit: {chip.threads}
  core_count: {chip.cores}
  fpus_per_core: {chip.units}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {hardware.bandwidth:.0f}
  l2_cache_size: {chip.cache}
  clock_rate_ghz: {chip.clock_ghz}
  device_memory_size: {hardware.memory:.0f}
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 8 }}
device_description_str: "{hardware.title}"
"""
