from __future__ import annotations

import pytest

from stratagem.migrate.program import migrate

KERAS = "stratagem.tf.keras"


def test_private_names_that_nothing_uses_are_left_out() -> None:
    private = "from tensorflow.python.ops.gen_math_ops import Add\n"
    program = "import tensorflow as tf\n" + private + "print(tf.ones(2))\n"
    migrated = migrate(program)
    assert migrated.text == "import stratagem.tf as tf\nprint(tf.ones(2))\n"
    said = f"{private.strip()} -> (nothing)"
    assert [(each.what, each.text) for each in migrated.findings if "gen_math_ops" in each.what] == [
        (said, "The program uses nothing from it.")
    ]
    alone = f"import tensorflow as tf\nif True:\n    {private}"
    assert migrate(alone).text == "import stratagem.tf as tf\nif True:\n    pass\n"
    for used in (program + "Add(1, 2)\n", program.replace(private, private.strip() + " as a\n") + "a.b\n"):
        assert "gen_math_ops" in migrate(used).text
        assert migrate(used).findings[0].what == "tf.python.ops.gen_math_ops.Add"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("import tensorflow as tf", "import stratagem.tf as tf"),
        ("import tensorflow", "import stratagem.tf as tensorflow"),
        ("import os, tensorflow as tf  # all", "import os, stratagem.tf as tf  # all"),
        ("import tensorflow.compat.v1 as tf", "import stratagem.tf.compat.v1 as tf"),
        ("import tensorflow.compat.v2 as tf", "import stratagem.tf.compat.v2 as tf"),
        ("import tensorflow.keras", "import stratagem.tf as tensorflow"),
        ("import tensorflow.keras.backend as K", f"import {KERAS}.backend as K"),
        ("from tensorflow import keras", "from stratagem.tf import keras"),
        ("from tensorflow import data, distribute as d", "from stratagem.tf import data, distribute as d"),
        ("from tensorflow.keras.layers import (\n  ReLU,  # 1\n)", f"from {KERAS}.layers import (\n  ReLU,  # 1\n)"),
        ("from tensorflow.python.framework import ops", "from stratagem.tf.python.framework import ops"),
        ("from tensorflow.python.keras.layers import Dense", f"from {KERAS}.layers import Dense"),
        ("from tensorflow.contrib import distribute", "from stratagem.tf import distribute"),
        ("from tensorflow.contrib.distribute import ReduceOp", "from stratagem.tf.distribute import ReduceOp"),
        (
            "from keras.layers.core import Dense\nimport tf_keras as k",
            f"from {KERAS}.layers import Dense\nimport {KERAS} as k",
        ),
        ("import tf_keras", f"import {KERAS} as tf_keras"),
        ("import tf_keras as keras", f"import {KERAS} as keras"),
        ("import tensorflow as tf, keras", f"import stratagem.tf as tf, {KERAS} as keras"),
        ("import keras\nimport tensorflow", f"import {KERAS} as keras\nimport stratagem.tf as tensorflow"),
        ("import tf_keras as k\nfrom keras import Model", f"import {KERAS} as k\nfrom {KERAS} import Model"),
        ("try:\n  import tensorflow as tf\nexcept: pass", "try:\n  import stratagem.tf as tf\nexcept: pass"),
        ("import tensorflow._api.v2.compat.v1 as tf1", "import stratagem.tf.compat.v1 as tf1"),
        ("from tensorflow._api.v2.keras import Model", f"from {KERAS} import Model"),
        ("from tensorflow.keras.layers import *\nDense(1)", f"from {KERAS}.layers import Dense\nDense(1)"),
    ],
)
def test_imports_are_rewritten_once(old: str, new: str) -> None:
    assert migrate(old).text == new
    assert migrate(new).text == new


@pytest.mark.parametrize(
    "program",
    [
        "import keras\nkeras.Model().fit_generator(x)",
        "import torch, tensorboard, tensorflow_datasets",
        "from . import tensorflow",
        "from .tensorflow import keras",
        "import tensorflow.lite",
        "from tensorflow.python.autograph import converters\nconverters.asserts",
        "from tensorflow.contrib import slim",
        "text = 'import tensorflow as tf'",
        "import numpy as tf\ntf.Session()",
        "",
    ],
)
def test_other_imports_stay(program: str) -> None:
    assert migrate(program).text == program
