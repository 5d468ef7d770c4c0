"""Methods of `tf.Variable` that all variables have."""

from __future__ import annotations

import numpy as np
import pytest

import stratagem.tf as tf


def test_a_variable_is_true_or_false() -> None:
    assert [bool(tf.Variable(value)) for value in (True, False, 0.0, [1.0])] == [True, False, False, True]
    with pytest.raises(ValueError, match="more than one element is ambiguous"):
        bool(tf.Variable([1.0, 2.0]))
    strategy = tf.distribute.ParameterServerStrategy()
    with strategy.scope():
        flag = tf.Variable(False)
    assert not flag
    flag.assign(True)
    assert flag
    strategy.close()


def test_arrays_of_numpy_stand_before_variables_in_compiled_functions() -> None:
    variable = tf.Variable([1.0, 2.0])
    assert (np.float32(3.0) * variable).tolist() == [3.0, 6.0]
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    assert strategy.run(lambda: np.float32(3.0) - variable).tolist() == [2.0, 1.0]
    assert strategy.run(lambda: np.ones(2, "float32") / variable).tolist() == [1.0, 0.5]
