"""Callback that checks the steps of a `fit`: whether the replicas agree, and all numbers are finite."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NoReturn

import jax
import keras
import numpy as np

from stratagem.cluster.bootstrap import current_peers
from stratagem.core.errors import InputError, UnsupportedError, UsageError
from stratagem.core.log import announce
from stratagem.feed.batch import GlobalBatch
from stratagem.fit import compat
from stratagem.fit.named_variables import shown_names
from stratagem.fit.resuming import Session
from stratagem.fit.step_function import StepFunction
from stratagem.fit.steps import Step
from stratagem.inspection.locating import located, named
from stratagem.inspection.recording import Recorded, Recording
from stratagem.inspection.replaying import first_bad_step
from stratagem.inspection.saving import Digests, digest_of, save_step
from stratagem.inspection.states import Watched, loss_of, number_of
from stratagem.mesh.mesh import Tree
from stratagem.mesh.same_values import Held, PastValues, are_alike, is_held_by_each, tell_of_difference

EACH_STEP_BYTES: Final = 1 << 20
"""Bytes of values whose bits are added up before each step: 0.3 ms, 1.5% of a step of 20 ms. The smallest come first.

Statistics are averaged at the end of a step, and a zero with a flipped bit is flushed. A fault in values that are not
added up before that is found if they have a value at the next look, as weights do.
"""

_NO_DIFFERENCE = (
    "These steps compute finite numbers when they run again from the state before them.",
    "The first run computed something else, because of a fault in the machine or a function that changes from call "
    "to call.",
    "The model has the weights from before these steps. Start the program again from its last backup; if that "
    "happens again, test the memory of the machine (stratagem replay --until-differs runs one step again and again).",
)


class StepInspector(keras.callbacks.Callback):
    """Callback that checks the steps of a `fit`: see `stratagem.callbacks.Inspect`.

    Args:
        every: How many steps it checks together.
        replicas: Whether replicas compare their values.
        nonfinite: What happens at NaN or infinity: "locate" says where it began, "stop" says at which step; None does
            not check.
        folder: Where the step and digests are saved; None means nowhere.

    Raises:
        InputError: An argument cannot be used.
    """

    def __init__(
        self,
        every: int = 50,
        replicas: bool = True,
        nonfinite: Literal["locate", "stop"] | None = "locate",
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        _check(every, nonfinite, folder)
        self.every = every
        self.replicas = replicas
        self.nonfinite = nonfinite
        self.folder = None if folder is None else os.fspath(folder)
        self._looking: Looking | None = None

    # What `fit` asks -----------------------------------------------------------------------------

    def begin_watching(self, session: Session) -> None:
        session.refuse_alone("There are no replicas to compare, and each worker would write the same files.")
        facts = {"every": self.every, "replicas": self.replicas, "nonfinite": str(self.nonfinite)}
        session.strategy.check_agreement("arguments of Inspect", {**facts, "folder": self.folder is not None})
        self._looking = Looking(self, session)
        world = session.strategy.mesh.world
        if world is not None and world.is_catching_up:
            self.meet_new(session.steps)

    def before_step(self, step: Step, values: list[jax.Array], batch: GlobalBatch) -> None:
        if self._looking is not None:
            self._looking.before_step(step, values, batch)

    def after_step(self, step: Step, values: list[jax.Array], logs: Tree) -> None:
        if self._looking is not None:
            self._looking.after_step(values, logs)

    def meet_new(self, steps: int) -> None:
        if self._looking is not None:
            self._looking.meet_new(steps)

    def look(self) -> None:
        if self._looking is not None:
            self._looking.look_at_numbers()

    def end_watching(self) -> None:
        self._looking = None

    # What Keras calls ----------------------------------------------------------------------------

    def on_train_begin(self, logs: Any = None) -> None:
        if self._looking is None:
            raise UsageError(
                "Inspect was made inside the call of fit, and nothing of Stratagem was made before.",
                "That call is Keras's own fit, which does not show its steps.",
                "Write inspect = Inspect(...) on a line before model.fit(..., callbacks=[inspect]).",
            )
        if not isinstance(getattr(self.model, "train_function", None), StepFunction):
            raise UnsupportedError(
                "`fit` was given Inspect under ParameterServerStrategy.",
                "Its workers run steps at the same time, each with the weights of a different moment. So no step can "
                "be compared, or run again.",
                "Leave Inspect out; or train under MultiWorkerMirroredStrategy.",
            )
        if self.folder is not None and self._looking.is_chief and self._looking.steps == 0:
            _begin_digests(self.folder)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.look()

    def on_train_end(self, logs: Any = None) -> None:
        if self._looking is not None:
            self._looking.look_at_all()


class Looking:
    """What is known of a `fit` while it runs.

    Args:
        asked: What to check.
        session: The call of `fit`.
    """

    def __init__(self, asked: StepInspector, session: Session) -> None:
        self._asked = asked
        self._session = session
        self._strategy = session.strategy
        self._compares = asked.replicas and session.strategy.mesh.size > 1 and not session.strategy.mesh.central
        self._watched: Watched | None = None
        self._recording: Recording | None = None
        self._past: PastValues | None = None
        self._held: list[int] = []
        self._before: Recorded | None = None
        self._values: list[jax.Array] = []
        self._losses: list[Any] = []
        self._since: int | None = None
        self._num_begun = 0
        self._leaves_out: int | None = None
        """The step behind so many is not looked at, as it began in another world."""
        # Workers look together, and each sees at another moment that a loss is there.
        self._looks_at_each_step = not session.strategy.mesh.multi_process

    @property
    def steps(self) -> int:
        """Number of steps that are done."""
        return self._session.steps

    @property
    def is_chief(self) -> bool:
        """Whether this worker writes files."""
        return self._strategy.is_chief

    def before_step(self, step: Step, values: list[jax.Array], batch: GlobalBatch) -> None:
        """Record the values that a step is about to be given."""
        self._num_begun = self.steps
        if self._is_left_out:
            return
        if self._watched is None or self._watched.step is not step:
            self._begin(step, values)
        if self._since is None:
            self._since = self.steps
        if self._past is not None:
            self._past.add([values[i] for i in self._held])
        if self._asked.nonfinite is not None:
            if self._recording is None:
                self._recording = Recording(values, self._before)
            self._recording.before_step(self.steps + 1, values, batch)

    def after_step(self, values: list[jax.Array], logs: Tree) -> None:
        """Record what a step returned; check all of it after every few steps."""
        self._values = list(values)
        if self._is_left_out:
            self._begin_again()
            return
        if self._recording is not None:
            self._recording.after_step(values)
            loss = loss_of(logs)
            self._losses += [] if loss is None else [loss]
            if self._looks_at_each_step and self._has_seen_bad_loss():
                self.look_at_numbers(values)
        assert self._since is not None, "a step was begun"
        if self.steps // self._asked.every > self._since // self._asked.every:
            self.look_at_all(values)

    def meet_new(self, steps: int) -> None:
        """Begin again behind the step in which a worker that has come later meets the others: it knows none before.

        Args:
            steps: Number of steps before that one.
        """
        self._leaves_out = steps

    @property
    def _is_left_out(self) -> bool:
        return self._leaves_out is not None and self._num_begun <= self._leaves_out

    def _begin_again(self) -> None:
        self._recording, self._since, self._before, self._losses = None, None, None, []
        if self._past is not None:
            self._past.numbers()

    def look_at_all(self, values: list[jax.Array] | None = None) -> None:
        """Compare the replicas, check the numbers, and begin again. All workers call it at the same point.

        Args:
            values: The step's values, which are replaced where they are not finite; None for the model's variables.
        """
        watched, since = self._watched, self._since
        if watched is None or since is None or since == self.steps:
            return
        held = None
        if self._compares:
            held = Held.now(watched.named(self._values), None if self._past is None else self._past.numbers())
        is_bad = self._recording is not None and self._is_bad_here(watched)
        told = self._strategy.from_all("what was looked at", [is_bad, None if held is None else held.digest])
        if held is not None and not are_alike([digest for _, digest in told]):
            peers = current_peers() if self._strategy.mesh.multi_process else None
            steps = f"between step {since} and {self.steps}"
            tell_of_difference(steps, held, peers, shown_names(self._session.model))
        if any(bad for bad, _ in told):
            self._stop(values)
        if self._asked.folder is not None and self.is_chief:
            self._add_digest(self._asked.folder, watched)
        if self._recording is not None:
            self._before = self._recording.steps[-1]
        self._recording, self._since = None, None

    def look_at_numbers(self, values: list[jax.Array] | None = None) -> None:
        """Make sure that the numbers are finite after the steps since the last check. All workers call it together.

        Args:
            values: The values, as for `look_at_all`.

        Raises:
            InputError: They are not. The model, or `values`, has the state before the first step that caused it.
        """
        if self._recording is None or self._watched is None:
            return
        if any(self._strategy.from_all("numbers that were looked at", self._is_bad_here(self._watched))):
            self._stop(values)

    def _is_bad_here(self, watched: Watched) -> bool:
        """Whether a loss since the last look, or a variable, is not finite, as far as this worker sees."""
        losses, self._losses = self._losses, []
        return not np.isfinite([number_of(loss) for loss in losses]).all() or watched.is_faulty_here(self._values)

    def _stop(self, values: list[jax.Array] | None) -> NoReturn:
        """Find the first step that has left NaN or infinity, put back the state before it, and say so."""
        watched, recording = self._watched, self._recording
        assert watched is not None, "a step has run"
        assert recording is not None, "numbers are looked at"
        count = self.steps - recording.steps[0].first + 1
        announce(
            f"NaN or infinity among the last {count} steps: they are run again, to find the first that computed it"
        )
        put_back = self._put_back(watched, values)
        bad = first_bad_step(watched, recording)
        if bad is None:
            put_back(recording.start)
            raise InputError(
                f"NaN or infinity occurred between step {recording.steps[0].first - 1} and {self.steps}. "
                f"{_NO_DIFFERENCE[0]}",
                *_NO_DIFFERENCE[1:],
            )
        put_back(bad.state)
        finding = located(watched, bad) if self._asked.nonfinite == "locate" else named(bad)
        folder = self._asked.folder
        saved = None if folder is None else save_step(folder, watched, finding, bad.state, bad.batch)
        raise finding.error(saved)

    def _put_back(self, watched: Watched, values: list[jax.Array] | None) -> Callable[[Sequence[jax.Array]], None]:
        """Return a function that gives the model a state, before anything else can fail."""

        def put_back(state: Sequence[jax.Array]) -> None:
            if values is None:
                compat.put_back_state(watched.step.model, watched.step.variables, state)
            else:  # which the step's function gives to the variables when it ends with an exception
                values[:] = state

        return put_back

    def _begin(self, step: Step, values: list[jax.Array]) -> None:
        """Take a step whose variables are known first now."""
        self._watched = watched = Watched(step, values)
        self._recording = None
        self._held = _smallest([i for i in watched.alike if is_held_by_each(values[i])], values)
        if self._compares:
            self._past = PastValues(self._strategy.mesh, [watched.names[i] for i in self._held])

    def _has_seen_bad_loss(self) -> bool:
        """Whether a loss that is at hand is not finite; others are kept."""
        while self._losses and self._losses[0].is_ready():
            if not np.isfinite(number_of(self._losses[0])):
                return True
            self._losses.pop(0)
        return False

    def _add_digest(self, folder: str, watched: Watched) -> None:
        try:
            Digests(folder).add(self.steps, digest_of(watched.named(self._values)))
        except OSError as error:
            announce(f"The digest of step {self.steps} could not be written to {folder}: {error}")


def _smallest(places: Sequence[int], values: Sequence[jax.Array]) -> list[int]:
    """Return the places of the smallest values, which have so many bytes together that a step does not notice."""
    chosen, total = [], 0
    for i in sorted(places, key=lambda i: values[i].nbytes):
        total += values[i].nbytes
        if total > EACH_STEP_BYTES:
            break
        chosen.append(i)
    return sorted(chosen)


def _begin_digests(folder: str) -> None:
    """Begin a file of digests, which shows before any step whether the folder can be written to.

    Raises:
        InputError: It cannot.
    """
    try:
        Digests(folder).begin()
    except OSError as error:
        raise InputError(
            f"The folder of Inspect, {folder!r}, cannot be written to: {error}.",
            "The step that computes NaN could not be saved there.",
            "Name a folder that this process may write to, or leave folder= out.",
        ) from error


def _check(every: object, nonfinite: object, folder: object) -> None:
    if not isinstance(every, int) or isinstance(every, bool) or every < 1:
        raise InputError(
            f"Inspect was given every={every!r}.",
            "It sets how many steps are checked together.",
            "Write a whole number, 1 or more, for example Inspect(every=50).",
        )
    if nonfinite not in ("locate", "stop", None):
        raise InputError(
            f"Inspect was given nonfinite={nonfinite!r}.",
            "It sets what happens if a step computes NaN or infinity.",
            'Write "locate" (report where it began), "stop" (report the step) or None (do not check).',
        )
    if folder is not None and (not isinstance(folder, str | os.PathLike) or not os.fspath(folder)):
        raise InputError(
            f"Inspect was given folder={folder!r}.",
            'Write the path of a folder, for example Inspect(folder="inspect").',
        )
