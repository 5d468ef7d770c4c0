"""Python functions that compiled programs call, with the addresses of arrays: targets of XLA's foreign functions.

XLA publishes its interface for foreign functions as C structures (`xla/ffi/api/c_api.h`, which JAX installs in
`jax.ffi.include_dir()`). This module declares them for `ctypes`, so nothing has to be compiled. A call costs 10 us,
while `jax.pure_callback` makes new arrays of all operands and results.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, Structure, c_int, c_int64, c_size_t, c_void_p
from typing import Any, Final

import jax

Target = Callable[[int, list[int], list[int]], None]
"""Function of (the attribute `site`, addresses of the operands, addresses of the results). If it raises an exception,
the program that called it fails with the message of the exception."""

_EXTENSION: Final = [("struct_size", c_size_t), ("extension", c_void_p)]
_LIST: Final = [*_EXTENSION, ("size", c_int64), ("types", c_void_p)]
_METADATA: Final = 1
_ABORTED: Final = 10


class _Version(Structure):
    _fields_ = [*_EXTENSION, ("major", c_int), ("minor", c_int)]


class _Metadata(Structure):
    _fields_ = [("struct_size", c_size_t), ("version", _Version), ("traits", ctypes.c_uint32)]


class _Extension(Structure):
    _fields_ = [("struct_size", c_size_t), ("kind", c_int), ("next", c_void_p), ("metadata", POINTER(_Metadata))]


class _Buffer(Structure):
    _fields_ = [*_EXTENSION, ("dtype", c_int), ("data", c_void_p), ("rank", c_int64), ("dims", POINTER(c_int64))]


class _Buffers(Structure):
    _fields_ = [*_LIST, ("buffers", POINTER(POINTER(_Buffer)))]


class _Scalar(Structure):
    _fields_ = [("dtype", c_int), ("value", POINTER(c_int64))]


class _Attributes(Structure):
    _fields_ = [*_LIST, ("names", c_void_p), ("values", POINTER(POINTER(_Scalar)))]


class _Error(Structure):
    _fields_ = [*_EXTENSION, ("message", ctypes.c_char_p), ("code", c_int)]


_MakeError = ctypes.CFUNCTYPE(c_void_p, POINTER(_Error))


class _Api(Structure):
    _fields_ = [*_EXTENSION, ("version", _Version), ("internal", c_void_p), ("make_error", _MakeError)]


class _Frame(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("extension", POINTER(_Extension)),
        ("api", POINTER(_Api)),
        ("context", c_void_p),
        ("stage", c_int),
        ("operands", _Buffers),
        ("results", _Buffers),
        ("attributes", _Attributes),
    ]


_Handler = ctypes.CFUNCTYPE(c_void_p, POINTER(_Frame))
_handlers: dict[str, Any] = {}


def register(name: str, target: Target) -> None:
    """Let programs on CPUs call a function as `jax.ffi.ffi_call(name, ...)(*operands, site=number)`.

    Args:
        name: Its name in the program. It may be registered once.
        target: The function.
    """

    def handle(frame: Any) -> int | None:
        call = frame.contents
        if call.extension and call.extension.contents.kind == _METADATA:
            _answer(call)
            return None
        try:
            site = call.attributes.values[0].contents.value[0]
            target(site, _addresses(call.operands), _addresses(call.results))
        except BaseException as error:  # into XLA, written in C++, it must not go
            return _failure(call, error)
        return None

    handler = _Handler(handle)
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(handler), platform="cpu")
    _handlers[name] = handler  # lives as long as XLA may call it


def _answer(call: _Frame) -> None:
    """Say which version of the interface this is: the one that asks, of which only the oldest part is used."""
    version = call.extension.contents.metadata.contents.version
    version.major = call.api.contents.version.major if call.api else 0
    version.minor = call.api.contents.version.minor if call.api else 1


def _addresses(arrays: _Buffers) -> list[int]:
    buffers = arrays.buffers
    return [buffers[i].contents.data for i in range(arrays.size)]


def _failure(call: _Frame, error: BaseException) -> int | None:
    message = str(error).encode() or type(error).__name__.encode()
    arguments = _Error(_Error.code.offset + _Error.code.size, None, message, _ABORTED)
    return call.api.contents.make_error(ctypes.byref(arguments))
