from __future__ import annotations

import pytest

from stratagem.migrate.findings import Kind
from stratagem.migrate.program import migrate


def found(text: str, *kinds: Kind) -> list[tuple[str, list[tuple[int, ...]]]]:
    """Return what is found of some kinds, with its places."""
    return [(f.what, [tuple(p) for p in f.places]) for f in migrate(text).findings if f.kind in kinds]


def test_each_name_is_found_once_with_all_its_places() -> None:
    program = """\
import tensorflow as tf
from tensorflow.keras import layers
from tensorflow.keras.layers import Dense as D

net = tf.keras.Sequential([layers.Dense(3), D(2), tf.no_such_thing(tf.no_such_thing)])
"""
    assert found(program, Kind.WORKS, Kind.MISSING) == [
        ("tf.no_such_thing", [(5, 51), (5, 68)]),
        ("tf.keras.layers", [(2, 30)]),
        ("tf.keras.layers.Dense", [(3, 37), (5, 28), (5, 45)]),
        ("tf.keras.Sequential", [(5, 7)]),
    ]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("L = tf.keras.layers; L.Nonsense()", "tf.keras.layers.Nonsense"),
        ("K = tf.keras; L = K.layers; L.Nonsense()", "tf.keras.layers.Nonsense"),
        ("def f(tf): return tf.nonsense", None),
        ("class A:\n    tf = 3\n    def f(self): return tf.nonsense", "tf.nonsense"),
        ("x = [tf.nonsense for _ in range(3)]", "tf.nonsense"),
        ("f = lambda tf: tf.nonsense", None),
        ("self.tf.nonsense", None),
        ("x = x.y; x.z", None),
        ("f(tf=3, nonsense=tf)", None),
        ("tf.data.Dataset.range(3).batch(2).nonsense()", "tf.data.Dataset.nonsense"),
        ("d = tf.data.Dataset.range(3)\nd = d.batch(2)\nd.nonsense()", "tf.data.Dataset.nonsense"),
        ("tf.data.Dataset.nonsense", "tf.data.Dataset.nonsense"),
        ("d = tf.data.Dataset.range(3)\nfor d in x: pass\nd.nonsense()", None),
        ("d = pandas.read_csv(x)\nd = tf.data.Dataset.range(3)\nd.nonsense()", None),
        ("d = d.batch(2)\nd.nonsense()", None),
        ("tf.data.Dataset.range(3).reduce(0, f).nonsense()", None),
        ("tf.data.AutoShardPolicy.FILE", None),
        ("tf.distribute.ReduceOp.NONSENSE", "tf.distribute.ReduceOp.NONSENSE"),
        ("tf.distribute.ReduceOp.SUM", None),
    ],
)
def test_names_follow_assignments_and_scopes(line: str, name: str | None) -> None:
    assert [what for what, _ in found(f"import tensorflow as tf\n{line}\n", Kind.MISSING)] == ([name] if name else [])


def test_names_of_version_2_change_as_those_of_tf() -> None:
    program = "import tensorflow.compat.v2 as tf\ntf.keras.layers.Dense(3 / 2), tf.int64\n"
    assert "tf.keras.layers.Dense(int(3 / 2))" in migrate(program).text
    assert [what for what, _ in found(program, Kind.MEANING)] == ["tf.compat.v2.int64"]


def test_a_name_is_missing_only_if_all_imports_of_its_module_lack_it() -> None:
    program = """\
try:
    import tensorflow.compat.v1 as tf
except ImportError:
    import tensorflow as tf
tf.GradientTape, tf.nonsense
"""
    assert found(program, Kind.MISSING) == [("tf.compat.v1.nonsense", [(5, 18)])]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("keras.layers.Conv2D(8, 3, border_mode = 'same')", "keras.layers.Conv2D(8, 3, padding = 'same')"),
        ("tf.keras.optimizers.Adam(lr=0.1)", "tf.keras.optimizers.Adam(lr=0.1)"),
        ("tf.contrib.distribute.MirroredStrategy()", "tf.distribute.MirroredStrategy()"),
        ("keras.utils.np_utils.to_categorical(y)", "keras.utils.to_categorical(y)"),
        ("model.fit_generator(g, 10, 2)", "model.fit(g, steps_per_epoch=10, epochs=2)"),
        ("model.fit_generator(generator=g, workers=4)", "model.fit(x=g, workers=4)"),
        ("model.evaluate_generator(g, 10)", "model.evaluate(g, steps=10)"),
        ("model.predict_generator(\n    g,\n    5,  # all\n)", "model.predict(\n    g,\n    steps=5,  # all\n)"),
        ("strategy.experimental_run_v2(step, args=(x,))", "strategy.run(step, args=(x,))"),
        ("tf.keras.layers.Dense(width / 2, use_bias=False)", "tf.keras.layers.Dense(int(width / 2), use_bias=False)"),
        (
            "half = n / 2\ntf.keras.layers.LSTM(units=half * 3)",
            "half = n / 2\ntf.keras.layers.LSTM(units=int(half * 3))",
        ),
        (
            "self.dim = 128 / 2\ntf.keras.layers.Conv2D(self.dim, 3)",
            "self.dim = 128 / 2\ntf.keras.layers.Conv2D(int(self.dim), 3)",
        ),
        ("size = np.prod(s)\ntf.keras.layers.Dense(size)", "size = np.prod(s)\ntf.keras.layers.Dense(int(size))"),
        (
            "tf.keras.layers.Dense(tf.math.reduce_prod(s).numpy())",
            "tf.keras.layers.Dense(int(tf.math.reduce_prod(s).numpy()))",
        ),
        ("n = n + 1\ntf.keras.layers.Dense(n // 2 + n)", "n = n + 1\ntf.keras.layers.Dense(n // 2 + n)"),
        ("tf.keras.layers.Dropout(1 / 10)", "tf.keras.layers.Dropout(1 / 10)"),
        ("model.fit(x, nb_epoch=2)", "model.fit(x, epochs=2)"),
        ("m.compile(\n    'sgd',\n    sample_weight_mode=None,\n)", "m.compile(\n    'sgd',\n)"),
        ("m.compile(sample_weight_mode=None, loss='mse')", "m.compile(loss='mse')"),
        ("m.compile('sgd',\n  sample_weight_mode=None)  # all", "m.compile('sgd')  # all"),
        (
            "m.compile(\n  'sgd',\n  sample_weight_mode=m,  # all\n)",
            "m.compile(\n  'sgd',\n  sample_weight_mode=m,  # all\n)",
        ),
        ("model.fit_generator(*args, **options)", "model.fit(*args, **options)"),
        ("os.environ['KERAS_BACKEND'] = 'tensorflow'", "os.environ['KERAS_BACKEND'] = 'jax'"),
        ('os.environ.setdefault("KERAS_BACKEND", "torch")', 'os.environ.setdefault("KERAS_BACKEND", "jax")'),
        ("model.fit(x, y, epochs=3)  # as it is", "model.fit(x, y, epochs=3)  # as it is"),
        ("tf.keras.layers.BatchNormalization(fused=True)", "tf.keras.layers.BatchNormalization()"),
        ("y = tf.where(m, g, g.dtype.max)", "y = tf.where(m, g, tf.as_dtype(g.dtype).max)"),
        ("d = g[0].dtype\ny = (d.min, d.name)", "d = g[0].dtype\ny = (tf.as_dtype(d).min, d.name)"),
        ("if f(x).dtype.is_floating: pass", "if tf.as_dtype(f(x).dtype).is_floating: pass"),
        ("y = tf.float32.max, x.dtype.name, x.max()", "y = tf.float32.max, x.dtype.name, x.max()"),
        ("b, h = x.shape.as_list()[:2]", "b, h = list(x.shape)[:2]"),
        ("s = x.shape\ny = s.as_list(), s.rank", "s = x.shape\ny = list(s), len(s)"),
        ("y = x.get_shape().as_list()", "y = x.get_shape().as_list()"),
        ("y = x.shape.ndims + tf.rank(x.shape.dims)", "y = len(x.shape) + tf.rank(x.shape.dims)"),
    ],
)
def test_calls_are_rewritten_once(old: str, new: str) -> None:
    head, new_head = (
        "import os, tensorflow as tf, keras\n",
        "import os, stratagem.tf as tf, stratagem.tf.keras as keras\n",
    )
    assert migrate(f"{head}{old}\n").text == f"{new_head}{new}\n"
    assert migrate(f"{new_head}{new}\n").text == f"{new_head}{new}\n"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("tf.keras.layers.LSTM(3, time_major=True)", "tf.keras.layers.LSTM(time_major=)"),
        ("tf.keras.Input((3,), ragged=True)", "tf.keras.Input(ragged=)"),
        ("dataset.make_one_shot_iterator()", ".make_one_shot_iterator()"),
        ("strategy.experimental_make_numpy_dataset(x)", ".experimental_make_numpy_dataset()"),
    ],
)
def test_what_is_gone_from_calls(line: str, what: str) -> None:
    assert [name for name, _ in found(f"import tensorflow as tf\n{line}\n", Kind.MISSING)] == [what]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("tf.distribute.MirroredStrategy()", ["tf.distribute.MirroredStrategy"]),
        ("tf.data.Dataset.range(8).shuffle(8)", ["tf.data.Dataset.shuffle"]),
        ("tf.keras.layers.LSTM(3, stateful=True)", ["tf.keras.layers.LSTM(stateful=)"]),
        ("tf.keras.layers.LSTM(3, stateful=False)", []),
        ("model.compile('sgd', run_eagerly=True)", ["compile(run_eagerly=)"]),
        ("self.model.save('/tmp/model')", ["self.model.save('/tmp/model')"]),
        ("model.save('a.keras'); model.save('a.h5'); model.save(path); image.save('a')", []),
    ],
)
def test_what_means_something_else(line: str, what: list[str]) -> None:
    assert [name for name, _ in found(f"import tensorflow as tf\n{line}\n", Kind.MEANING)] == what


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("import tensorflow_datasets as tfds", "tensorflow_datasets"),
        ("getattr(tf.keras.layers, name)", "getattr(tf.keras.layers, ...)"),
        ("importlib.import_module('tensorflow.keras')", "importlib.import_module('tensorflow.keras')"),
    ],
)
def test_what_the_text_does_not_tell(line: str, what: str) -> None:
    assert [name for name, _ in found(f"import tensorflow as tf\n{line}\n", Kind.UNKNOWN)] == [what]


def test_packages_on_keras_come_after_stratagem() -> None:
    assert found("import keras_hub\nimport tensorflow as tf\n", Kind.UNKNOWN) == [("keras_hub", [(1, 8)])]
    assert found("import tensorflow as tf\nimport keras_hub\n", Kind.UNKNOWN) == []


def test_star_import_that_nothing_is_used_of_imports_the_module() -> None:
    program = "import tensorflow as tf\nfrom tensorflow.keras.layers import *\nfrom tensorflow.lite import *\n"
    assert found(program, Kind.MISSING) == [("tf.lite", [(3, 1)])]
    assert migrate(program).text.splitlines()[1:] == [
        "import stratagem.tf.keras.layers",
        "from tensorflow.lite import *",
    ]


CONTROL_FLOW = """\
import tensorflow as tf

@tf.function
def compiled(x, n, training, axis=0):
    if x > 0: raise ValueError
    if training and axis == 0: pass
    if x is None or isinstance(x, list) or n == "text": pass
    if x.shape[0] > 3 or len(x) > 3 or x.dtype == tf.int32: pass
    while n < 10: raise ValueError
    big = tf.reduce_sum(x) > 3
    if not big: x.y = 1
    assert tf.reduce_all(x == x)
    return x if tf.equal(n, 3) else n

def replica_step(batch):
    loss = tf.reduce_mean(batch)
    if tf.math.is_nan(loss): loss += 1
    for i in range(3):
        if i > 1: pass

    for i in tf.range(10): pass
    for i in tf.range(batch):
        if loss > i: x.y = i

def plain(x):
    if x > 0: pass

class Layer(tf.keras.layers.Layer):
    def call(self, x, training, scale=1):
        if training or scale > 1 or self.size > 1: raise ValueError
        return x if tf.reduce_any(x) else -x

    def build(self, shape):
        if shape > 1: pass

class Other:
    def call(self, x):
        if x > 1: pass

strategy.run(replica_step, args=(1,))
"""


def test_control_flow_on_tensors_of_compiled_functions() -> None:
    """Those that have something in them which is not rewritten."""
    assert found(CONTROL_FLOW, Kind.UNKNOWN) == [
        ("if x > 0", [(5, 8)]),
        ("while n < 10", [(9, 11)]),
        ("if not big", [(11, 8)]),
        ("for tf.range(batch)", [(22, 14)]),
        ("if loss > i", [(23, 12)]),
    ]
    texts = [f.text for f in migrate(CONTROL_FLOW).findings if f.kind is Kind.UNKNOWN]
    assert texts[0].startswith(
        "If `x > 0` is a tensor, this cannot be compiled, because it contains a raise or an assignment to an attribute"
    )
    assert texts[0].endswith("or write:\n    value = tf.cond(x > 0, lambda: ..., lambda: ...)")


def test_a_dtype_needs_a_name_of_tensorflow() -> None:
    assert "tensorflow_.as_dtype(x.dtype).max" in migrate("import tensorflow as tensorflow_\ny = x.dtype.max\n").text
    inside = "def f(x):\n    import tensorflow as tf\n    return x.dtype.min\n"
    assert "tf.as_dtype(x.dtype).min" in migrate(inside).text
    text = "from tensorflow import keras\ny = x.dtype.max\n"
    program = migrate(text)
    assert "y = x.dtype.max" in program.text
    (finding,) = [each for each in program.findings if each.what == "x.dtype.max"]
    assert finding.kind is Kind.MISSING
    assert finding.text.startswith("Write tf.as_dtype(x.dtype).max, with `import stratagem.tf as tf`.")
