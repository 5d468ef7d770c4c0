"""Wrong uses of TF_CONFIG, parameter servers, Estimators, `stratagem.tf`, the command line and several workers."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from tests.wrong_uses.row import Wrong

_TWO: Final = ["localhost:12345", "localhost:23456"]
_FIRST: Final = {"type": "worker", "index": 0}


def _tf_config(use: str, config: Any, found: str, remedy: str) -> Wrong:
    text = config if isinstance(config, str) else json.dumps(config)
    return Wrong(use, "stratagem.MultiWorkerMirroredStrategy()", found, remedy, environ={"TF_CONFIG": text})


def _addresses(use: str, addresses: Any, found: str, remedy: str) -> Wrong:
    return _tf_config(use, {"cluster": {"worker": addresses}, "task": _FIRST}, found, remedy)


def _task(use: str, task: Any, found: str, remedy: str) -> Wrong:
    return _tf_config(use, {"cluster": {"worker": _TWO}, "task": task}, found, remedy)


TF_CONFIG: Final = (
    _tf_config("text that is not JSON", "{cluster: worker}", "TF_CONFIG is not JSON", "json.dumps"),
    _tf_config("a Python dict", str({"cluster": {}}), "TF_CONFIG is not JSON", "double quotes"),
    _tf_config("a list", "[1, 2]", "is not a JSON object", '"cluster"'),
    _tf_config("a misspelt key", {"clusters": {"worker": _TWO}, "task": _FIRST}, 'and no "cluster"', 'Write "cluster"'),
    _tf_config("no task", {"cluster": {"worker": _TWO}}, "no task", '"type": "worker", "index": 0'),
    _task("an index beyond the last", {"type": "worker", "index": 2}, "has no task 2", "Use one of the indices"),
    _task("an index below 0", {"type": "worker", "index": -1}, "-1", "a whole number from 0"),
    _task("an index in words", {"type": "worker", "index": "zero"}, "zero", "a whole number from 0"),
    _task("an unknown type", {"type": "master2", "index": 0}, "master2", "chief, worker, ps, evaluator"),
    _task("a type that the cluster lacks", {"type": "chief", "index": 0}, "chief", "Add 'chief' to the cluster"),
    _addresses("one address as text", _TWO[0], "localhost:12345", "a list of addresses"),
    _addresses("no address", [], "worker", "leave the job out"),
    _addresses("one address twice", [_TWO[0], _TWO[0]], "localhost:12345", "an address of its own"),
    _addresses("a port beyond 65535", ["localhost:99999", _TWO[1]], "99999", '"host:port"'),
    _addresses("a port in words", ["localhost:abc", _TWO[1]], "abc", '"host:port"'),
    _addresses("URLs", ["http://localhost:1", "http://localhost:2"], "http://", '"host:port"'),
    _tf_config(
        "two chiefs",
        {"cluster": {"chief": _TWO, "worker": ["localhost:4"]}, "task": {"type": "chief", "index": 0}},
        "chief",
        "Keep one chief",
    ),
    _tf_config(
        "a parameter server among synchronous workers",
        {"cluster": {"worker": _TWO, "ps": ["localhost:5"]}, "task": {"type": "ps", "index": 0}},
        "a parameter server",
        "Use ParameterServerStrategy",
    ),
    Wrong(
        "parameter servers without a server",
        "stratagem.ParameterServerStrategy()",
        "The cluster has no ps",
        "at least one task of each",
        environ={
            "TF_CONFIG": json.dumps(
                {"cluster": {"worker": _TWO, "chief": ["localhost:7"]}, "task": {"type": "chief", "index": 0}}
            )
        },
    ),
    Wrong(
        "a timeout in words",
        "stratagem.MultiWorkerMirroredStrategy()",
        "STRATAGEM_STARTUP_TIMEOUT is 'soon'",
        "a positive number of seconds",
        environ={
            "TF_CONFIG": json.dumps({"cluster": {"worker": _TWO}, "task": _FIRST}),
            "STRATAGEM_STARTUP_TIMEOUT": "soon",
        },
    ),
)

_SERVERS: Final = """
servers = stratagem.ParameterServerStrategy()
coordinator = stratagem.coordinator.ClusterCoordinator(servers)
try:
    {}
finally:
    servers.close()
"""


def _with_servers(use: str, line: str, found: str, remedy: str) -> Wrong:
    return Wrong(use, _SERVERS.format(line), found, remedy)


SERVERS: Final = (
    Wrong(
        "a coordinator with another strategy",
        "stratagem.coordinator.ClusterCoordinator(strategy)",
        "was given a MirroredStrategy",
        "stratagem.ParameterServerStrategy",
    ),
    _with_servers(
        "the result of a call instead of a function", "coordinator.schedule(3)", "was given 3", "args=(iterator,)"
    ),
    _with_servers("args without the comma", "coordinator.schedule(print, args=(3))", "args of type int", "the comma"),
    _with_servers(
        "a distributed dataset read on the chief",
        "iter(servers.experimental_distribute_dataset(stratagem.data.Dataset.range(3)))",
        "was iterated over on the chief",
        "coordinator.create_per_worker_dataset(dataset)",
    ),
    _with_servers(
        "a function that cannot be sent",
        "coordinator.schedule(threading.Lock().acquire)",
        "cannot be sent to workers",
        "on the worker",
    ),
    _with_servers(
        "a number instead of a dataset",
        "coordinator.create_per_worker_dataset(3)",
        "create_per_worker_dataset was given 3",
        "a function that returns a dataset",
    ),
    _with_servers(
        "`next` on the chief",
        "next(iter(coordinator.create_per_worker_dataset(lambda: Dataset.range(4).batch(2))))",
        "next() was called on a per-worker iterator",
        "coordinator.schedule(step, args=(iterator,))",
    ),
    _with_servers(
        "work after `close()`",
        "servers.close(); coordinator.schedule(print)",
        "The strategy was closed",
        "before strategy.close()",
    ),
    Wrong(
        "a staleness below 0",
        "stratagem.ParameterServerStrategy(max_staleness=-1)",
        "max_staleness=-1",
        "max_staleness=4",
    ),
)

_ESTIMATOR: Final = """
from stratagem import estimator
def train(model_fn, input_fn=lambda: Dataset.from_tensor_slices(({{"x": x}}, y)).batch(8), **how):
    estimator.Estimator(model_fn, model_dir=tempfile.mkdtemp()).train(input_fn, **how)
{}
"""


def _with_estimator(use: str, line: str, found: str, remedy: str) -> Wrong:
    return Wrong(use, _ESTIMATOR.format(line), found, remedy)


ESTIMATORS: Final = (
    _with_estimator("no `model_fn`", "estimator.Estimator(None)", "model_fn=None", "model_fn(features, labels, mode)"),
    _with_estimator(
        "a `model_fn` without `return`",
        "train(lambda features, labels, mode: None, steps=1)",
        "model_fn returned NoneType",
        "Return stratagem.estimator.EstimatorSpec",
    ),
    _with_estimator(
        "a spec without a loss",
        "train(lambda features, labels, mode: estimator.EstimatorSpec(mode), steps=1)",
        "has no loss",
        "loss=loss",
    ),
    _with_estimator(
        "a dataset instead of `input_fn`",
        "train(lambda features, labels, mode: None, Dataset.range(3))",
        "input_fn is a Dataset",
        "input_fn=lambda: dataset",
    ),
    _with_estimator("steps below 0", "train(lambda features, labels, mode: None, steps=-1)", "steps is -1", "positive"),
    _with_estimator(
        "a strategy as text",
        'estimator.RunConfig(train_distribute="mirrored")',
        "train_distribute='mirrored'",
        "with the parentheses",
    ),
)


def _with_tf(use: str, line: str, found: str, remedy: str, *, warns: bool = False) -> Wrong:
    return Wrong(use, f"import stratagem.tf as tf\n{line}", found, remedy, warns=warns)


TENSORFLOW: Final = (
    _with_tf("a misspelt name", "tf.distribute.MirorredStrategy", "is not in stratagem.tf", "MirroredStrategy?"),
    _with_tf("a session", "tf.compat.v1.Session()", "tf.compat.v1.Session is not", "there is no graph"),
    _with_tf(
        "`.numpy()` in a step",
        "strategy.run(lambda tensor: tensor.numpy(), args=(tf.ones(2),))",
        ".numpy() was called on a tensor",
        "Return the tensor",
    ),
    _with_tf(
        "strings in `tf.function`",
        'def lengths(text):\n    return tf.strings.length(text)\ntf.function(lengths)(tf.constant("abc"))',
        "lengths was given text",
        "outside, or in dataset.map",
        warns=True,
    ),
)


@dataclass(frozen=True)
class Command:
    """A wrong command, or a program that is wrong on several workers.

    Args:
        use: What is wrong, as the page has it.
        command: What follows `python`; `{program}` stands for the file with the program.
        found: What is shown of the cause.
        remedy: What is shown of the remedy.
        program: The program, if there is one.
        code: The exit code.
        seconds: How long it may take.
        environ: Variables of the environment.
    """

    use: str
    command: str
    found: str
    remedy: str
    program: str = "print('trained')"
    code: int = 2
    seconds: float = 30.0
    environ: dict[str, str] = field(default_factory=dict)


TWO_FREE_PORTS: Final = "the first of two workers, at ports that are free"
"""Stands for a TF_CONFIG that the test makes."""

_RUN: Final = "-m stratagem run"
_WORKERS: Final = """
import sys, keras, numpy as np, stratagem
x, y = np.arange(256, dtype="float32").reshape(64, 4), np.ones((64, 1), "float32")
strategy = stratagem.MultiWorkerMirroredStrategy()
worker = strategy.cluster_resolver.task_id
with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
"""

COMMANDS: Final = (
    Command("no script", _RUN, "Missing argument", "--help"),
    Command("a missing script", f"{_RUN} nowhere.py", "There is no file 'nowhere.py'", "Name a Python file"),
    Command("`--workers 0`", f"{_RUN} --workers 0 {{program}}", "--workers is 0", "--workers 1 or more"),
    Command("workers in words", f"{_RUN} --workers two {{program}}", "'two' is not a valid integer", "--workers"),
    Command("`-n 2`", f"{_RUN} -n 2 {{program}}", "No such option '-n'", "--workers"),
    Command("a misspelt option", f"{_RUN} --wrokers 2 {{program}}", "--wrokers", "--workers"),
    Command("a misspelt command", "-m stratagem rum", "No such command 'rum'", "'run'"),
    Command(
        "options after the script",
        f"{_RUN} {{program}} --workers 2",
        "--workers stands after the script",
        "before the script",
        code=0,
    ),
    Command(
        "a launcher inside a cluster",
        f"{_RUN} {{program}}",
        "TF_CONFIG is set in this shell",
        "without stratagem run",
        code=0,
        environ={"TF_CONFIG": json.dumps({"cluster": {"worker": _TWO}, "task": _FIRST})},
    ),
    Command(
        "a misspelt variable of Stratagem",
        f"{_RUN} {{program}}",
        "STRATAGEM_HANGTIMEOUT is set, and nothing reads it",
        "STRATAGEM_HANG_TIMEOUT?",
        code=0,
        environ={"STRATAGEM_HANGTIMEOUT": "5"},
    ),
    Command(
        "several workers and no strategy",
        f"{_RUN} --workers 2 {{program}}",
        "2 workers",
        "MultiWorkerMirroredStrategy",
        program="import stratagem\nprint('trained')",
        code=0,
    ),
    Command(
        "another backend",
        "{program}",
        "KERAS_BACKEND=tensorflow",
        "KERAS_BACKEND=jax",
        program="import stratagem",
        code=1,
        environ={"KERAS_BACKEND": "tensorflow"},
    ),
    Command(
        "a platform that JAX lacks",
        "{program}",
        "JAX_PLATFORMS is 'cuda'",
        "JAX_PLATFORMS=cpu",
        program="import stratagem\nstratagem.MirroredStrategy()",
        code=1,
        environ={"JAX_PLATFORMS": "cuda"},
    ),
    Command(
        "only one task of two is started",
        "{program}",
        "1 of 2 tasks did not reach worker 0 within 3 s: worker 1",
        "STRATAGEM_STARTUP_TIMEOUT",
        program=_WORKERS,
        code=43,
        environ={"STRATAGEM_STARTUP_TIMEOUT": "3", "TF_CONFIG": TWO_FREE_PORTS},
    ),
)

WORKERS: Final = (
    Command(
        "`fit` on the chief alone",
        f"{_RUN} --workers 2 --hang-timeout 15 {{program}}",
        "because of worker 1",
        "`if strategy.is_chief`?",
        program=_WORKERS + "if strategy.is_chief: model.fit(x, y)",
        code=43,
        seconds=90.0,
    ),
    Command(
        "`reduce` on the chief alone",
        f"{_RUN} --workers 2 --hang-timeout 15 {{program}}",
        "because of worker 1",
        "`if strategy.is_chief`?",
        program=_WORKERS
        + "value = strategy.run(lambda: keras.ops.ones(2))\n"
        + "if strategy.is_chief: strategy.reduce('SUM', value, axis=None)",
        code=43,
        seconds=90.0,
    ),
    Command(
        "each worker selects its own rows",
        f"{_RUN} --workers 2 {{program}}",
        "The tasks differ at agreement 'what fit runs'",
        "the same arguments and data",
        program=_WORKERS + "model.fit(x[worker::2], y[worker::2])",
        code=1,
        seconds=60.0,
    ),
    Command(
        "generators that differ between workers",
        f"{_RUN} --workers 2 {{program}}",
        "is not the same on all workers",
        "with the same seed",
        program=_WORKERS + "model.fit(((x[i:i+8] + worker, y[i:i+8]) for i in range(4)), shuffle=False)",
        code=1,
        seconds=60.0,
    ),
)
