"""Wrong uses of data, `fit` and its siblings, models, steps of one's own, and what is saved."""

from __future__ import annotations

from typing import Final

from tests.wrong_uses.row import Wrong

_STEP_OF_STATE: Final = """
class Mine(Own):
    def train_step(self, state, data):
        logs, new = super().train_step(state, data)
        {}
own(Mine).fit(x, y, verbose=0)
"""

_STEP_OF_DATA: Final = """
class Mine(Own):
    def train_step(self, data):
        x, y = data
        with stratagem.GradientTape() as tape:
            loss = keras.ops.mean((self(x) - y) ** 2)
        self.optimizer.apply_gradients(zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables))
        {}
own(Mine).fit(x, y, verbose=0)
"""

_GENERATOR: Final = "def batches():\n    yield x[:8], y[:8]\n"

DATA: Final = (
    Wrong("text", 'compiled().fit(np.array(["a", "b"] * 32), y)', "x holds text", "StringLookup"),
    Wrong("classes as text", 'compiled().fit(x, np.array(["cat", "dog"] * 32))', "y holds text", "return_inverse=True"),
    Wrong("arrays of objects", "compiled().fit(x.astype(object), y)", "x holds Python objects", "numpy.asarray(x"),
    Wrong(
        "rows of unequal length",
        "ragged = np.empty(2, object); ragged[:] = [np.ones(2), np.ones(3)]\ncompiled().fit(ragged, np.ones(2))",
        "x holds Python objects",
        "padded first",
    ),
    Wrong(
        "dates",
        'compiled().fit(np.array(["2026-11-23"] * 64, "datetime64[D]"), y)',
        "x holds dates",
        "a number of days",
    ),
    Wrong("text to predict from", 'compiled().predict(np.array(["a", "b"]))', "x holds text", "StringLookup"),
    Wrong("text in `train_on_batch`", 'compiled().train_on_batch(np.array(["a"]), y[:1])', "x holds text", "Lookup"),
    Wrong(
        "text in a dataset",
        'compiled().fit(Dataset.from_tensor_slices((np.array(["a", "b"] * 32), y)).batch(8))',
        "data[0] holds text",
        "dataset.map",
    ),
    Wrong(
        "text from a generator",
        'def batches():\n    yield np.array(["a"] * 8), y[:8]\ncompiled().fit(batches(), shuffle=False)',
        "data[0] holds text",
        "dataset.map",
    ),
    Wrong("lists", "compiled().fit(x.tolist(), y.tolist())", "The data is a builtins.list", "numpy.asarray(values)"),
    Wrong("the name of a file", 'compiled().fit("train.csv")', "The data is a builtins.str", "stratagem.data.Dataset"),
    Wrong("no data", "compiled().fit()", "x is None", "model.fit(x, ...)"),
    Wrong("no rows", "compiled().fit(x[:0], y[:0])", "yields no batch", "filter(), take() and skip()"),
    Wrong("no targets", "compiled().fit(x)", "has no targets", "fit(x, y)"),
    Wrong(
        "no targets in a dataset",
        "compiled().evaluate(Dataset.from_tensor_slices(x).batch(8))",
        "has no targets",
        "a dataset of pairs",
    ),
    Wrong(
        "targets beside a dataset",
        "compiled().fit(Dataset.from_tensor_slices((x, y)).batch(8), y)",
        "`y` was given too",
        "Put `y` into the dataset",
    ),
    Wrong(
        "a label without an output",
        'compiled("sparse_categorical_crossentropy", outputs=3).fit(x, np.full(64, 7))',
        "The labels go from 7 to 7",
        "Number the classes from 0 to 2",
    ),
    Wrong("an unbatched dataset", "compiled().fit(Dataset.from_tensor_slices((x, y)))", "no common batch", ".batch("),
    Wrong(
        "an endless dataset",
        "compiled().fit(Dataset.from_tensor_slices((x, y)).batch(8).repeat())",
        "The dataset has no end",
        "steps_per_epoch=",
    ),
    Wrong(
        "a dataset that a filter leaves empty",
        "compiled().fit(Dataset.from_tensor_slices((x, y)).filter(lambda x, y: False).batch(8))",
        "yields no batch",
        "filter(), take() and skip()",
    ),
    Wrong(
        "elements of two shapes in a batch",
        "list(Dataset.from_generator(lambda: iter([np.ones(4), np.ones(3)])).batch(2))",
        "elements of shapes (3,) and (4,)",
        "Pad or crop",
    ),
    Wrong("`batch(0)`", "Dataset.range(5).batch(0)", "batch_size is 0", "such as 32"),
    Wrong("`shuffle` with a float", "Dataset.range(5).shuffle(1e4)", "buffer_size is 10000.0", "such as 10000"),
    Wrong(
        "arrays of unequal lengths",
        "Dataset.from_tensor_slices((x, y[:3]))",
        "differ in their first dimension",
        "counts the same examples",
    ),
    Wrong(
        "a function for `map` that returns nothing",
        "list(Dataset.range(3).map(lambda x: None))",
        "given to map returned None",
        "Return the new element",
    ),
    Wrong(
        "a generator instead of its function",
        "Dataset.from_generator((i for i in range(3)))",
        "cannot be called",
        "without calling it",
    ),
    Wrong(
        "a generator function instead of a generator",
        _GENERATOR + "compiled().fit(batches, steps_per_epoch=1)",
        "is not a function of one argument",
        "fit(batches())",
    ),
    Wrong(
        "an exhausted generator",
        _GENERATOR + "data = batches(); list(data)\ncompiled().fit(data, shuffle=False)",
        "yields no batch",
        "If a generator was used up, make it again",
    ),
    Wrong(
        "a policy as text",
        'stratagem.data.Options().experimental_distribute.auto_shard_policy = "DATA"',
        "auto_shard_policy is 'DATA'",
        "AutoShardPolicy.AUTO",
    ),
    Wrong("missing files", 'Dataset.list_files("/nowhere/*.csv")', "No file matches", "Correct the pattern"),
    Wrong(
        "distributing arrays", "strategy.experimental_distribute_dataset(x)", "ndarray was given", "from_tensor_slices"
    ),
    Wrong(
        "a dataset distributed twice",
        "once = strategy.experimental_distribute_dataset(Dataset.range(4).batch(2))\n"
        "strategy.experimental_distribute_dataset(once)",
        "distributed already",
        "Give the dataset itself",
    ),
    Wrong(
        "a dataset instead of its function",
        "strategy.distribute_datasets_from_function(Dataset.range(4).batch(2))",
        "is not a function of one argument",
        "def dataset_fn(context)",
    ),
    Wrong(
        "a replication mode as text",
        'stratagem.InputOptions(experimental_replication_mode="PER_REPLICA")',
        "experimental_replication_mode is 'PER_REPLICA'",
        "InputReplicationMode.PER_WORKER",
    ),
    Wrong(
        "a batch that replicas cannot share equally",
        "stratagem.InputContext(num_replicas_in_sync=3).get_per_replica_batch_size(16)",
        "global_batch_size is 16",
        "a multiple of 3",
    ),
)

FIT: Final = (
    Wrong("`batch_size=0`", "compiled().fit(x, y, batch_size=0)", "batch_size is 0", "at least 1"),
    Wrong("`batch_size` as text", 'compiled().fit(x, y, batch_size="16")', "batch_size is '16'", "such as 32"),
    Wrong(
        "`batch_size` beside a dataset",
        "compiled().fit(Dataset.from_tensor_slices((x, y)).batch(8), batch_size=16, verbose=0)",
        "batch_size=16 beside a dataset",
        "leave batch_size out",
        warns=True,
        trains=True,
    ),
    Wrong("`epochs=2.0`", "compiled().fit(x, y, epochs=2.0)", "epochs is 2.0, of type float", "a whole number"),
    Wrong(
        "`steps_per_epoch=len(x) / 16`",
        "compiled().fit(x, y, steps_per_epoch=len(x) / 16)",
        "steps_per_epoch is 4.0",
        "len(x) // batch_size",
    ),
    Wrong("`steps_per_epoch=0`", "compiled().fit(x, y, steps_per_epoch=0)", "steps_per_epoch is 0", "at least 1"),
    Wrong("`steps` as a float", "compiled().evaluate(x, y, steps=2.0)", "steps is 2.0", "a whole number"),
    Wrong("`validation_split=1.5`", "compiled().fit(x, y, validation_split=1.5)", "is 1.5", "such as 0.2"),
    Wrong(
        "validation data without targets",
        "compiled().fit(x, y, validation_data=(x,), verbose=0)",
        "has no targets",
        "validation_data=(x, y)",
        trains=True,
    ),
    Wrong("class weights as a list", "compiled().fit(x, y, class_weight=[1.0, 2.0])", "of type list", "Write a dict"),
    Wrong(
        "class weights with text keys",
        'compiled().fit(x, y, class_weight={"0": 1.0, "1": 2.0})',
        "has the key '0'",
        "as numbers",
    ),
    Wrong(
        "the class of a callback",
        "compiled().fit(x, y, callbacks=[keras.callbacks.EarlyStopping])",
        "the class EarlyStopping",
        "[EarlyStopping(...)]",
    ),
    Wrong("a function as a callback", "compiled().fit(x, y, callbacks=[print])", "print", "LambdaCallback"),
    Wrong(
        "`steps_per_execution=0`",
        "compiled(steps_per_execution=0).fit(x, y)",
        "steps_per_execution=0",
        "1 or more",
    ),
    Wrong(
        "two threads train one model",
        "from tests.wrong_uses.threads import error_of_second\nraise error_of_second(compiled(), x, y)",
        "runs in another thread",
        "a model of its own",
        trains=True,
    ),
    Wrong(
        "one optimizer for two models",
        "with strategy.scope():\n"
        "    optimizer = keras.optimizers.Adam()\n"
        '    one, other = network(), network()\n    one.compile(optimizer, "mse"); other.compile(optimizer, "mse")\n'
        "one.fit(x, y, verbose=0); other.fit(x, y, verbose=0)",
        "was built for 2 variables",
        "an optimizer of its own",
        trains=True,
    ),
    Wrong(
        "a layer frozen after `fit`, not compiled again",
        "model = compiled(); model.fit(x, y, verbose=0)\nmodel.layers[0].trainable = False; model.fit(x, y, verbose=0)",
        "the model trains 0 now",
        "compile again",
        trains=True,
    ),
    Wrong(
        "a layer added after `fit`",
        "model = compiled(); model.fit(x, y, verbose=0)\nmodel.add(keras.layers.Dense(1)); model.fit(x, y, verbose=0)",
        "the model trains 4 now",
        "compile again",
        trains=True,
    ),
)

STEPS: Final = (
    Wrong(
        "`train_step(self, state, data)` that returns nothing",
        _STEP_OF_STATE.format("pass"),
        "Mine.train_step returned NoneType",
        "return logs, state",
    ),
    Wrong(
        "`train_step(self, state, data)` that returns (state, logs)",
        _STEP_OF_STATE.format("return new, logs"),
        "Mine.train_step returned tuple",
        "return logs, state",
    ),
    Wrong(
        "`train_step(self, state, data)` that calls the model itself",
        "class Mine(Own):\n    def train_step(self, state, data):\n"
        '        return {"loss": keras.ops.mean(self(data[0]))}, state\nown(Mine).fit(x, y, verbose=0)',
        "A layer does the same if its variables have no value",
        "self.stateless_call",
    ),
    Wrong(
        "`train_step(self, state, data)` that logs text",
        _STEP_OF_STATE.format('return {**logs, "note": "text"}, new'),
        "is 'text', of type str",
        "numbers or arrays",
    ),
    Wrong(
        "`train_step(self, data)` that returns nothing",
        _STEP_OF_DATA.format("pass"),
        "Mine.train_step returned NoneType",
        'return {"loss": loss}',
    ),
    Wrong(
        "`train_step(self, data)` that returns the loss",
        _STEP_OF_DATA.format("return loss"),
        "Mine.train_step returned",
        'return {"loss": loss}',
    ),
    Wrong(
        "`train_step` with three arguments",
        "class Mine(Own):\n    def train_step(self, x, y, z): pass\nown(Mine).fit(x, y)",
        "takes 3 arguments",
        "train_step(self, data)",
    ),
    Wrong(
        "`tape.gradient` called twice",
        "v = keras.Variable(2.0)\nwith stratagem.GradientTape() as tape: z = v * v\n"
        "tape.gradient(z, v); tape.gradient(z, v)",
        "gradient was called twice",
        "persistent=True",
    ),
    Wrong(
        "a gradient of integers",
        'v = keras.Variable(2, dtype="int32")\nwith stratagem.GradientTape() as tape: z = v * v\ntape.gradient(z, v)',
        "dtype int32",
        "floating-point",
    ),
)

SAVED: Final = (
    Wrong(
        "a checkpoint below a file",
        'folder = pathlib.Path(tempfile.mkdtemp()); (folder / "file").write_text("")\n'
        'stratagem.train.Checkpoint(model=compiled()).save(str(folder / "file" / "ckpt"))',
        "could not be written",
        "a folder that this process may write to",
    ),
    Wrong(
        "a missing checkpoint",
        'stratagem.train.Checkpoint(model=compiled()).restore("/nowhere/ckpt-1")',
        "There is no checkpoint",
        "latest_checkpoint(folder)",
    ),
    Wrong(
        "a checkpoint of another model",
        'path = stratagem.train.Checkpoint(model=compiled()).save(tempfile.mkdtemp() + "/ckpt")\n'
        "stratagem.train.Checkpoint(model=compiled(outputs=7)).restore(path)",
        "does not fit the program",
        "as they were made when",
    ),
    Wrong('`Checkpoint("folder")`', 'stratagem.train.Checkpoint("folder")', "'folder' of type str", "model=model"),
    Wrong(
        "a manager with its arguments swapped",
        'stratagem.train.CheckpointManager("folder", stratagem.train.Checkpoint(), max_to_keep=3)',
        "was given a str and a Checkpoint",
        "CheckpointManager(Checkpoint(model=model), folder",
    ),
    Wrong(
        "a model given to a manager",
        'stratagem.train.CheckpointManager(compiled(), "folder", max_to_keep=3)',
        "was given a Sequential and a str",
        "Checkpoint(model=model)",
    ),
    Wrong(
        "two managers in one folder",
        "folder = tempfile.mkdtemp()\n"
        "one, other = [stratagem.train.CheckpointManager(stratagem.train.Checkpoint(), folder, 1) for _ in range(2)]\n"
        "one.save(); other.save()",
        "another CheckpointManager saved",
        "a folder of its own",
        warns=True,
    ),
    Wrong(
        "a backup without a folder",
        "stratagem.callbacks.BackupAndRestore(None)",
        "backup_dir=None",
        "the path of a folder",
    ),
    Wrong(
        "a text as `save_freq`",
        'stratagem.callbacks.BackupAndRestore("backup", save_freq="batch")',
        "save_freq='batch'",
        "a number of batches",
    ),
    Wrong(
        "two backups in one `fit`",
        "backups = [stratagem.callbacks.BackupAndRestore(tempfile.mkdtemp()) for _ in range(2)]\n"
        "compiled().fit(x, y, callbacks=backups)",
        "2 BackupAndRestore callbacks",
        "Give it one",
    ),
)
