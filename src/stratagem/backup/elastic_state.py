"""`ElasticState`: a training loop of the program's own goes on when a worker dies or joins.

The idea, and `commit`, are those of Horovod's elastic training
(https://horovod.readthedocs.io/en/stable/elastic_include.html). Workers give each other the state from memory, as `fit`
does (`mesh.changing`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from stratagem.backup.commit import Commit, PlainData, commit_of, copied, is_plain, stateful_in, taken
from stratagem.checkpoint import objects
from stratagem.core.errors import InputError, UnsupportedError, UsageError, name_some
from stratagem.core.log import announce
from stratagem.elastic.leaving import leaves_at_sigterm
from stratagem.mesh.changing import ChangingWorld
from stratagem.mesh.given import Given, ResizedError
from stratagem.mesh.kept_shards import Shard, shards_among
from stratagem.mesh.mesh import ReplicaMesh
from stratagem.program.tracing import current_tracing
from stratagem.replica.context import StrategyLike, inside_step

Result = TypeVar("Result")

_SHOWN = 5

_loops = itertools.count(1)


class _StartsAgainError(Exception):
    """Unwinds a loop, which starts again from the last commit: a worker has taken the place of another."""


class ElasticState(objects.Holder):
    """The state of a training loop, from which the loop starts again when workers change.

    With `stratagem run --spares` or `--elastic`, the loop continues in memory when a worker dies, freezes or joins, as
    `fit` does. The loop is a function of the state. `run` calls it. When the workers change, all of them take the state
    of the last `commit`, which new workers get from the others, and call the function again. Without these options
    `run` calls the function once, and `commit` does nothing.

    Every worker commits at the same points: after each step, or after several. What happened since the last commit is
    undone and computed again, from the same batches.

    A checkpoint holds all of it, also the plain data: `stratagem.train.Checkpoint(state=state)`.

    Args:
        strategy: The strategy that runs the steps.
        objects: By name, what the loop changes. They become attributes, which the loop reads and sets. They may be
            Keras models, layers, optimizers and metrics, which must be built; variables, seed generators, iterators of
            distributed datasets, and tuples of these; and plain data: numbers, strings, None, arrays, and lists,
            tuples, sets and dictionaries of these.

    Raises:
        InputError: An object has no state that can be taken, or is not built yet.
        UnsupportedError: A variable has another value on each replica.

    Example:
        >>> import stratagem
        >>> from stratagem import keras
        >>> strategy = stratagem.MirroredStrategy(["cpu:0"])
        >>> dataset = stratagem.data.Dataset.range(6).batch(2)
        >>> batches = strategy.experimental_distribute_dataset(dataset)
        >>> with strategy.scope():
        ...     total = keras.Variable(0.0, trainable=False)
        >>> state = stratagem.ElasticState(strategy, total=total, batches=iter(batches), epoch=0)
        >>> def train(state):
        ...     while state.epoch < 2:
        ...         for batch in state.batches:
        ...             strategy.run(lambda rows: total.assign_add(rows.sum()), args=(batch,))
        ...             state.commit()
        ...         state.epoch += 1
        ...         state.batches = iter(batches)
        >>> state.run(train)
        >>> float(total), state.epoch
        (30.0, 2)
    """

    def __init__(self, strategy: StrategyLike, **objects: Any) -> None:
        self._strategy = strategy
        self._held: Commit | None = None
        self._loop: _Loop | None = None
        self._save: Callable[[], object] | None = None
        self._plain_data = PlainData(self._plain, self.set_plain)
        for name, value in objects.items():
            if name.startswith("_") or hasattr(type(self), name):
                raise InputError(
                    f"ElasticState was given an object under the name {name!r}.",
                    "The name is reserved: it begins with an underscore, or is the name of a method.",
                    "Choose another name.",
                )
            setattr(self, name, value)
        stateful_in(self._objects(), strategy.mesh)

    def run(self, loop: Callable[[ElasticState], Result], save: Callable[[], object] | None = None) -> Result:
        """Run a loop to its end, however often its workers change.

        Args:
            loop: Called with this state, and again from the last commit when workers have changed. Let it make what
                depends on the number of workers.
            save: Called by all workers after the last commit, if the run ends before the loop does: because all
                workers were told to leave (SIGTERM), or because too few were left for too long. Usually the `save` of a
                `CheckpointManager`. Where workers cannot change it is never called.

        Returns:
            What the loop returned.

        Raises:
            UsageError: It is called inside another loop, or in `strategy.run`.
            UnsupportedError: A new worker came to another loop than the others, or has other objects.
        """
        _refuse_in_a_program("run")
        world = self._strategy.mesh.world
        if world is None:
            return loop(self)
        if world.loop is not None:
            raise UsageError(
                "ElasticState.run was called inside the loop of an ElasticState.",
                "The inner loop could not start again alone.",
                "Run one loop after the other, or give all objects to one ElasticState.",
            )
        world.loop = running = _Loop(self, world, self._strategy.mesh, next(_loops))
        self._save = save
        try:
            with leaves_at_sigterm(world.membership):
                return self._run(world, running, loop)
        finally:
            world.loop = self._loop = None

    def commit(self) -> None:
        """Let the loop start again from here. All workers call it at the same points.

        Raises:
            UsageError: It is called in `strategy.run`, or in a function that is being compiled.
            InputError: An attribute was set to something whose state cannot be taken.
        """
        _refuse_in_a_program("commit")
        if self._loop is not None:
            self._loop.check_world()
            commit = self._commit()
            self._loop.end_step(commit)
            self._held = commit
            if self._save is not None and self._loop.ends_here:
                self._save()
                announce("Saved behind the last step")

    def _run(self, world: ChangingWorld, running: _Loop, loop: Callable[[ElasticState], Result]) -> Result:
        given = world.catch_up() if running.came_later else None
        self._loop = running
        self.hold()
        while True:
            self._strategy.follow_workers()
            world.made_for = world.layout
            self._go_back()
            try:
                if given is not None:
                    running.take(given)
                    given = None
                world.enter(running)
                result = loop(self)
                self.commit()  # programs that come behind it belong to no step
            except ResizedError as error:
                given = error.given
            except Exception as error:
                if not (isinstance(error, _StartsAgainError) or world.is_over(error) or world.is_forming):
                    raise
            else:
                world.has_trained()
                return result
            running.forget_step()

    # State -------------------------------------------------------------------------------------------

    def checkpoint_parts(self) -> dict[str, Any]:
        """Return what a checkpoint holds, by name: the objects with state, and the plain data."""
        return {**self._objects(), "plain data": self._plain_data}

    @property
    def held(self) -> Commit:
        """The state at the last commit."""
        assert self._held is not None, "a loop begins with one"
        return self._held

    def hold(self) -> None:
        """Keep the state as it is now."""
        self._held = self._commit()

    def _commit(self) -> Commit:
        return commit_of(self._public(), self._strategy.mesh, self._held)

    def set_plain(self, plain: dict[str, Any]) -> None:
        """Set the attributes that are plain data.

        Args:
            plain: Their values, which are copied.
        """
        for name, value in plain.items():
            setattr(self, name, copied(value))

    def _go_back(self) -> None:
        """Set everything to what it was at the last commit."""
        held = self.held
        for name in self._public().keys() - held.plain.keys() - held.given.keys():
            delattr(self, name)
        for name, value in held.given.items():
            setattr(self, name, value)
        held.put_back(self._strategy.mesh)
        self.set_plain(held.plain)

    def _objects(self) -> dict[str, Any]:
        return {name: value for name, value in self._public().items() if not is_plain(value)}

    def _plain(self) -> dict[str, Any]:
        return {name: value for name, value in self._public().items() if is_plain(value)}

    def _public(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


class _Loop:
    """A loop that runs: its steps (`mesh.changing.Loop`), and its state (`mesh.given.StateOfStep`).

    Args:
        state: The state.
        world: The workers.
        mesh: Where variables lie.
        number: Which loop of the program it is, from 1.

    Attributes:
        came_later: Whether this worker came when the others had begun.
    """

    def __init__(self, state: ElasticState, world: ChangingWorld, mesh: ReplicaMesh, number: int) -> None:
        self._state = state
        self._world = world
        self._mesh = mesh
        self._number = number
        self._has_begun = False
        self.came_later = world.is_catching_up

    def begin_program(self) -> None:
        """Begin a step with its first program."""
        if not self._has_begun:
            self._has_begun = True
            if not self._world.begin_step(self):
                raise _StartsAgainError

    def check_world(self) -> None:
        """Start the loop again where the workers have met anew since the step began: what it computed may not count."""
        if self._world.is_forming:
            raise _StartsAgainError

    def end_step(self, commit: Commit) -> None:
        """End the step, if one has begun.

        Args:
            commit: The state behind it.
        """
        if self._has_begun:
            self._world.end_step(shards_among(commit.values))
            self._has_begun = False

    @property
    def ends_here(self) -> bool:
        """Whether the run ends behind the step that has just ended."""
        return self._world.membership.ends_here

    def forget_step(self) -> None:
        """Take back the step that has begun."""
        self._has_begun = False

    def check_placed(self, variables: Sequence[Any]) -> None:
        """Refuse variables that the state does not hold, on a worker that came later.

        Args:
            variables: Those that programs need elsewhere.
        """
        held = {id(variable) for variable in self._state.held.stateful.variables.values()}
        others = [variable.path for variable in variables if id(variable) not in held]
        if others and self.came_later:
            raise UnsupportedError(
                f"A new worker came to a step that uses variables which the ElasticState does not hold: "
                f"{name_some(others, _SHOWN)}.",
                "It would use its own values, and the other workers others.",
                "Give these variables, or the model, optimizer or metric that has them, to ElasticState.",
            )

    def give(self) -> Given:
        """Return the state at the last commit."""
        said, arrays = self._state.held.as_given()
        return Given({**said, "loop": self._number}, arrays)

    def take(self, given: Given) -> None:
        """Take the state of another worker, and hold it as the last commit."""
        number = given.said.get("loop")
        if number != self._number:
            where = "`fit`" if number is None else f"loop {number}"
            raise UnsupportedError(
                f"A new worker came to loop {self._number} of its program, in ElasticState.run; the others are in "
                f"{where}.",
                "It would continue as if the loop were theirs.",
                "Let one loop, or one `fit`, be what the program trains with; or leave --spares and --elastic out.",
            )
        self._state.set_plain(taken(given, self._state.held, self._mesh))
        self._state.hold()

    def shards(self) -> list[Shard]:
        """Return what this worker has of values in shards, at the last commit."""
        return shards_among(self._state.held.values)

    def put_back(self) -> None:
        """Do nothing: the loop starts again from the last commit."""

    def meet_new(self) -> None:
        """Do nothing: all workers start again from the last commit."""


def _refuse_in_a_program(method: str) -> None:
    if inside_step() or current_tracing() is not None:
        raise UsageError(
            f"ElasticState.{method} was called in a function that is being compiled.",
            "It would run once, while the function is compiled.",
            "Call it outside strategy.run and stratagem.function.",
        )
