"""`torch.utils.data.DataLoader`: one order on all workers, and a resumed pass that decodes nothing twice."""

from __future__ import annotations

import base64
import contextlib
import copy
import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from stratagem.core.errors import InputError
from stratagem.data.batches import State
from stratagem.feed.kinds.again import Peekable, ReadAgain
from stratagem.feed.kinds.base import ChiefSeed, Input, Pass, telling_of_death
from stratagem.mesh.mesh import Tree


class TorchInput(Input):
    """A torch loader of a map-style dataset.

    Where a sampler has no generator torch draws its order from the global random numbers, so that each worker
    would have its own. Here such a sampler gets a generator made of one seed and the number of the pass. A
    generator of the user's is used as it is, and its state stored. Batches that were read before a restart are passed
    over by their indices. The loader itself is left as it was.

    Args:
        loader: The user's.
        chief_seed: Makes the workers agree on a seed.
    """

    alike = (
        "Draw the order only from the sampler's generator, as shuffle=True does. Draw random changes of the examples "
        "from the index, or from torch's random numbers in a loader with num_workers."
    )

    def __init__(self, loader: Any, chief_seed: ChiefSeed) -> None:
        self._torch = sys.modules["torch"]
        # One draw, as torch makes for each pass: the order follows torch.manual_seed.
        drawn = int(self._torch.empty((), dtype=self._torch.int64).random_())
        self._seed = chief_seed("order of a torch DataLoader", drawn)
        self._user_loader = loader
        self._order = _Order(loader.batch_sampler if loader.batch_sampler is not None else loader.sampler)
        self._loader = self._copy()
        self.num_batches = len(loader)
        given = [g for g in (*self._order.given, loader.generator) if g is not None]
        self._generators = list({id(g): g for g in given}.values())
        self._states: list[str] = []  # of the user's generators, where the present pass began
        self._recalled: list[str] = []
        self._opened: Peekable | None = None

    def begin(self, earlier: Sequence[int], first: int) -> Pass:
        batches, self._opened = self._open(len(earlier), first), None
        return batches

    def sample(self, earlier: Sequence[int], first: int) -> Tree:
        # Resumed at the very end of a pass there is no batch left to look at: the one before it is read once more.
        before = min(first, max(len(self._user_loader) - 1, 0))
        self._opened = self._open(len(earlier), before)
        if before == first:
            return self._opened.peek()
        return next(self._opened)

    def note(self, *, in_pass: bool) -> State:
        begun = in_pass or self._opened is not None
        states = self._states if begun else (self._recalled or self._now())
        return {"seed": self._seed, "generators": states}

    def recall(self, note: State) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None
        self._seed, self._recalled = note["seed"], list(note["generators"])

    def close(self) -> None:
        self._opened = None
        self._loader = self._copy()  # the processes of persistent workers end with the loader that started them

    def _copy(self) -> Any:
        loader = _spawning(self._user_loader)
        name = "sampler" if loader.batch_sampler is None else "batch_sampler"
        vars(loader)[name] = self._order  # by assignment torch refuses it
        return loader

    def _open(self, number: int, first: int) -> Peekable:
        if self._opened is None:
            for generator, state in zip(self._generators, self._recalled, strict=bool(self._recalled)):
                generator.set_state(self._torch.frombuffer(bytearray(base64.b64decode(state)), dtype=self._torch.uint8))
            self._recalled = []
            self._states = self._now()
            bits = np.random.SeedSequence(self._seed & (2**64 - 1), spawn_key=(number,)).generate_state(1, np.uint64)
            generator = self._torch.Generator().manual_seed(int(bits[0] >> 1))
            self._order.begin(generator, first)
            if self._user_loader.generator is None:
                self._loader.generator = generator  # seeds the processes that read
            self._opened = Peekable(telling_of_death(iter(self._loader), "torch DataLoader"))
        return self._opened

    def _now(self) -> list[str]:
        return [base64.b64encode(bytes(g.get_state().tolist())).decode() for g in self._generators]


class _Order:
    """Takes the place of a loader's sampler, and gives the same indices, from one of them on.

    Args:
        sampler: A sampler of indices or of batches of them.
    """

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        nested = [sampler, getattr(sampler, "sampler", None)]
        self._unseeded = [s for s in nested if hasattr(s, "generator") and s.generator is None]
        self.given = [s.generator for s in nested if hasattr(s, "generator")]
        self._generator: Any = None
        self._first = 0

    def begin(self, generator: Any, first: int) -> None:
        """Set what the next iteration gives."""
        self._generator, self._first = generator, first

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        generator, first = self._generator, self._first
        with self._seeded(generator):
            indices = iter(self._sampler)
        for number in itertools.count():
            with self._seeded(generator):
                index = next(indices, None)
            if index is None:
                return
            if number >= first:
                yield index

    @contextlib.contextmanager
    def _seeded(self, generator: Any) -> Iterator[None]:
        """Give the samplers a generator while they draw: they are the user's, who may go on with them elsewhere."""
        for sampler in self._unseeded:
            sampler.generator = generator
        try:
            yield
        finally:
            for sampler in self._unseeded:
                sampler.generator = None


def torch_input(loader: Any, chief_seed: ChiefSeed, worker_count: int) -> Input:
    """Return how a torch loader is read.

    Args:
        loader: The user's.
        chief_seed: Makes the workers agree on a seed.
        worker_count: How many workers read the same.

    Raises:
        InputError: Each worker would read a part of the data, or an order of its own.
    """
    _check_order(loader, worker_count)
    if not isinstance(loader.dataset, sys.modules["torch.utils.data"].IterableDataset):
        return TorchInput(loader, chief_seed)
    count = len(loader) if hasattr(loader.dataset, "__len__") else None
    read = _spawning(loader)
    return ReadAgain(
        loader,
        begin_pass=lambda: telling_of_death(iter(read), "torch DataLoader"),
        num_batches=count,
        may_end=count is None,
        alike="Let the IterableDataset yield the same examples on every worker, from the same seed.",
    )


def _spawning(loader: Any) -> Any:
    """Return a copy of a loader that has no process yet, and forks none."""
    loader = copy.copy(loader)
    vars(loader)["_iterator"] = None
    if loader.num_workers and loader.multiprocessing_context is None:
        loader.multiprocessing_context = "spawn"  # a fork hangs sooner or later, beside the threads of JAX
    return loader


def _check_order(loader: Any, worker_count: int) -> None:
    if worker_count == 1:
        return
    if not getattr(loader, "in_order", True):
        raise InputError(
            f"The torch DataLoader of {worker_count} workers has in_order=False.",
            "Its batches come as they are ready, in an order of their own on every worker.",
            "Leave in_order out.",
        )
    if getattr(loader.sampler, "num_replicas", 1) > 1:
        raise InputError(
            f"The torch DataLoader of {worker_count} workers has a {type(loader.sampler).__name__}.",
            "This sampler already gives each worker a part of the data, and the worker would then take only a part "
            "of that part.",
            "Leave the sampler out, with shuffle=True and the global batch size: Stratagem gives each worker its rows.",
        )
