"""Wrong uses of strategies, scopes, `strategy.run` and the values of replicas."""

from __future__ import annotations

from typing import Final

from tests.wrong_uses.row import Wrong

STRATEGIES: Final = (
    Wrong("`MirroredStrategy(2)`", "stratagem.MirroredStrategy(2)", "devices is 2", "a list of names"),
    Wrong("`MirroredStrategy([0, 1])`", "stratagem.MirroredStrategy([0, 1])", "named 0, of type int", '"GPU:0"'),
    Wrong("a device twice", 'stratagem.MirroredStrategy(["CPU:0", "CPU:0"])', "['CPU:0', 'CPU:0']", "each device once"),
    Wrong("no device", "stratagem.MirroredStrategy([])", "devices is []", "leave the argument out"),
    Wrong("a missing GPU", 'stratagem.MirroredStrategy(["/gpu:0"])', "JAX finds no GPU", "jax[cuda12]"),
    Wrong("a device beyond the last", 'stratagem.MirroredStrategy(["CPU:9"])', "has CPU:0", "virtual_devices(10)"),
    Wrong("`OneDeviceStrategy(0)`", "stratagem.OneDeviceStrategy(0)", "named 0, of type int", '"GPU:0"'),
    Wrong("`TPUStrategy()` without a TPU", "stratagem.TPUStrategy()", "JAX sees no TPU", "use MirroredStrategy here"),
    Wrong(
        "`cross_device_ops` as text",
        'stratagem.MirroredStrategy(cross_device_ops="nccl")',
        "cross_device_ops is 'nccl'",
        "NcclAllReduce()",
    ),
    Wrong(
        "communication options as text",
        'stratagem.MultiWorkerMirroredStrategy(communication_options="ring")',
        "communication_options is 'ring'",
        "stratagem.CommunicationOptions(",
    ),
    Wrong(
        "a number as the resolver",
        "stratagem.MultiWorkerMirroredStrategy(2)",
        "cluster_resolver is 2",
        "TFConfigClusterResolver()",
    ),
    Wrong(
        "the class of a resolver",
        "from stratagem.cluster_resolver import TFConfigClusterResolver\n"
        "stratagem.MultiWorkerMirroredStrategy(TFConfigClusterResolver)",
        "cluster_resolver is TFConfigClusterResolver",
        "TFConfigClusterResolver()",
    ),
    Wrong(
        "an address as the resolver of parameter servers",
        'stratagem.ParameterServerStrategy("localhost:2222")',
        "cluster_resolver is 'localhost:2222'",
        "TFConfigClusterResolver()",
    ),
    Wrong("a misspelt name", "stratagem.MirrorredStrategy", "no attribute 'MirrorredStrategy'", "MirroredStrategy?"),
    Wrong("`stratagem.distribute`", "stratagem.distribute", "no attribute 'distribute'", "import stratagem.tf as tf"),
    Wrong(
        "virtual devices too late",
        "jax.devices(); import stratagem.testing\nstratagem.testing.virtual_devices(8)",
        "after JAX had started with 4",
        "at the top of the program",
    ),
    Wrong(
        "a misspelt variable of Stratagem",
        "from stratagem.core import log\nlog._said.clear()\nstratagem.MirroredStrategy()",
        "STRATAGEM_HANGTIMEOUT is set, and nothing reads it",
        "STRATAGEM_HANG_TIMEOUT?",
        warns=True,
        environ={"STRATAGEM_HANGTIMEOUT": "5"},
    ),
    Wrong(
        "a fork after the strategy was made",
        "from tests.wrong_uses.forked import error_in_fork\n"
        "raise error_in_fork(lambda: strategy.run(lambda: jnp.ones(2)))",
        "a fork of it",
        'get_context("spawn")',
    ),
)

SCOPES: Final = (
    Wrong("`with strategy:`", "with strategy: pass", "`with` was given a MirroredStrategy itself", "strategy.scope():"),
    Wrong(
        "the scope of one strategy inside another",
        'other = stratagem.MirroredStrategy(["CPU:2"])\nwith strategy.scope():\n    with other.scope(): network()',
        "inside the scope of MirroredStrategy",
        "Use one strategy",
    ),
    Wrong(
        "`experimental_set_strategy` of text",
        'stratagem.experimental_set_strategy("mirrored")',
        "was given 'mirrored'",
        "stratagem.MirroredStrategy()",
    ),
    Wrong(
        "a model of one strategy, compiled under another",
        'other = stratagem.MirroredStrategy(["CPU:2", "CPU:3"])\n'
        'with strategy.scope(): model = network()\nwith other.scope(): model.compile("sgd", "mse")',
        "was made under MirroredStrategy and is compiled under",
        "in one scope",
    ),
    Wrong(
        "everything made outside the scope",
        'model = network(); model.compile("sgd", "mse"); model.fit(x, y, verbose=0)',
        "made and compiled outside the scope",
        "with strategy.scope():",
        warns=True,
        trains=True,
    ),
    Wrong(
        "`keras.distribution` beside a strategy",
        'try:\n    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=["cpu:0", "cpu:1"]))\n'
        "    compiled()\nfinally:\n    keras.distribution.set_distribution(None)",
        "set_distribution set a DataParallel",
        "Use one of the two",
    ),
)

RUN: Final = (
    Wrong("`strategy.run(3)`", "strategy.run(3)", "is 3, of type int", "strategy.run(step, args=(batch,))"),
    Wrong("`strategy.run(step())`", "strategy.run(print())", "is None, of type NoneType", "Give it a function"),
    Wrong("args without the comma", "strategy.run(lambda x: x, args=(3))", "args=3 of type int", "with the comma"),
    Wrong("kwargs as a list", "strategy.run(lambda x: x, kwargs=[1])", "kwargs=[1] of type list", "Write a dict"),
    Wrong("a step that returns text", 'strategy.run(lambda: "done")', "is 'done', of type str", "keep text"),
    Wrong(
        "an array of text as an argument",
        'strategy.run(lambda x: x, args=(np.array(["a", "b"]),))',
        "an array of dtype <U1",
        "outside, or in dataset.map",
    ),
    Wrong(
        "`run` inside `run`",
        "strategy.run(lambda: strategy.run(lambda: 1))",
        "inside a function that strategy.run is running",
        "Call the inner function directly",
    ),
    Wrong(
        "a scope inside `run`",
        "def step():\n    with strategy.scope(): return jnp.ones(2)\nstrategy.run(step)",
        "The scope of MirroredStrategy was entered inside",
        "outside",
    ),
    Wrong(
        "`fit` inside `run`",
        "model = compiled()\nstrategy.run(lambda: model.fit(x, y, verbose=0))",
        "model.fit of",
        "inside, call the model",
    ),
    Wrong(
        "`predict` inside `run`",
        "model = compiled()\nstrategy.run(lambda: model.predict(x))",
        "model.predict of",
        "model(x, training=True)",
    ),
    Wrong(
        "`break` after an `if` on a tensor",
        "def step(x):\n    while True:\n        if x > 0: break\nstrategy.run(step, args=(jnp.ones(()),))",
        "asks whether a tensor is true",
        "keras.ops.cond",
    ),
    Wrong(
        "a layer made in the step",
        "strategy.run(lambda: keras.layers.Dense(2)(jnp.ones((1, 2))))",
        "makes a variable each time it runs",
        "outside the function",
    ),
    Wrong(
        "a distributed dataset as an argument",
        "data = strategy.experimental_distribute_dataset(Dataset.range(4).batch(2))\n"
        "strategy.run(lambda batch: batch, args=(data,))",
        "was given a DistributedDataset",
        "for batch in dataset:",
    ),
    Wrong(
        "`next(iterator)` inside the step",
        "data = iter(strategy.experimental_distribute_dataset(Dataset.range(4).batch(2)))\n"
        "strategy.run(lambda: next(data))",
        "A distributed dataset was read inside a function that strategy.run is running",
        "strategy.run(replica_fn, args=(next(iterator),))",
    ),
    Wrong(
        "a Keras loss with its default reduction",
        "loss = keras.losses.MeanSquaredError()\nstrategy.run(lambda: loss(jnp.ones((2, 1)), jnp.ones((2, 1))))",
        "reduction='sum_over_batch_size'",
        "compute_average_loss",
    ),
    Wrong(
        "a mean given to `compute_average_loss`",
        "stratagem.nn.compute_average_loss(jnp.ones(()), global_batch_size=8)",
        "was given a scalar",
        'reduction="none"',
    ),
    Wrong(
        "a batch size as text",
        'stratagem.nn.compute_average_loss(jnp.ones(4), global_batch_size="8")',
        "global_batch_size is '8'",
        "an integer",
    ),
    Wrong("`stratagem.function(3)`", "stratagem.function(3)", "was given 3", "above a function"),
    Wrong(
        "dates in a compiled function",
        'stratagem.function(lambda date: date)(np.array("2026-11-26", "datetime64[D]"))',
        "an array of dtype datetime64[D]",
        "outside, or in dataset.map",
    ),
)

REPLICAS: Final = (
    Wrong(
        "`float()` of a per-replica value", "float(per_replica())", "float() was asked", "experimental_local_results"
    ),
    Wrong("`.numpy()` of a per-replica value", "per_replica().numpy()", "numpy() was asked", "strategy.reduce("),
    Wrong(
        "`np.asarray` of a per-replica value", "np.asarray(per_replica())", "one array was asked", "strategy.reduce("
    ),
    Wrong("arithmetic with a per-replica value", "per_replica() + 1", "arithmetic or a comparison", "strategy.reduce("),
    Wrong("a per-replica value in a format string", 'f"{per_replica():.3f}"', "a format, '.3f'", "strategy.reduce("),
    Wrong(
        "a per-replica value given to a layer",
        "keras.ops.mean(per_replica())",
        "one array was asked",
        "strategy.reduce(",
    ),
    Wrong("a misspelt reduction", 'strategy.reduce("AVG", per_replica(), axis=None)', "reduce_op is 'AVG'", "MEAN"),
    Wrong("op and value swapped", 'strategy.reduce(per_replica(), "SUM", axis=None)', "reduce_op is PerReplica", "SUM"),
    Wrong("a missing axis", 'strategy.reduce("SUM", per_replica(), axis=5)', "axis=5", "axis=None"),
    Wrong("an axis as text", 'strategy.reduce("SUM", per_replica(), axis="0")', "axis='0'", "axis=None"),
    Wrong(
        "reducing a step without `return`",
        'strategy.reduce("SUM", strategy.run(lambda: None), axis=None)',
        "strategy.reduce was given None",
        "Return a value",
    ),
    Wrong("summing a plain value", 'strategy.reduce("SUM", 3.0, axis=None)', "was given 3.0", "result of strategy.run"),
    Wrong("gathering scalars", "strategy.gather(per_replica(), axis=0)", "per-replica scalars", "value[None]"),
    Wrong(
        "`reduce` inside `run`",
        'strategy.run(lambda: strategy.reduce("SUM", jnp.ones(2), axis=None))',
        "strategy.reduce was called inside",
        "get_replica_context().all_reduce",
    ),
    Wrong(
        "a replica context kept after the step",
        "kept = []\nstrategy.run(lambda: kept.append(stratagem.get_replica_context()))\n"
        'kept[0].all_reduce("SUM", jnp.ones(2))',
        "after the step that it belongs to",
        "strategy.reduce or strategy.gather",
    ),
    Wrong(
        "reducing text",
        'strategy.run(lambda: stratagem.get_replica_context().all_reduce("SUM", "text"))',
        "all_reduce does not support str: it was given 'text'",
        "numbers or arrays",
    ),
    Wrong(
        "`merge_call` without a function",
        "strategy.run(lambda: stratagem.get_replica_context().merge_call(3))",
        "merge_call was given 3",
        "a function of (strategy, *values)",
    ),
    Wrong(
        "`merge_call` with args that are not a tuple",
        "strategy.run(lambda: stratagem.get_replica_context().merge_call(lambda s, v: v, args=jnp.ones(2)))",
        "merge_call was given args of type",
        "with the comma",
    ),
    Wrong(
        "distributed values without a function",
        "strategy.experimental_distribute_values_from_function(jnp.ones(2))",
        "was given Array",
        "a function of a ValueContext",
    ),
)
