"""Every operation has a case, or a reason why not."""

from __future__ import annotations

import importlib
import re
from fnmatch import fnmatch
from types import ModuleType
from typing import Any, Final

import pytest
from tests.unit.tf.operations import table

import stratagem.tf as tf

EXCEPTIONS: Final = {
    "Its values are drawn; tests/unit/tf/tensors/test_draws.py has it.": """
        tf.random.* tf.random_*_initializer tf.image.random_* tf.keras.backend.*random*
        tf.keras.backend.truncated_normal
        tf.keras.initializers.Glorot* tf.keras.initializers.glorot_* tf.keras.initializers.He*
        tf.keras.initializers.he_* tf.keras.initializers.Lecun* tf.keras.initializers.lecun_*
        tf.keras.initializers.Random* tf.keras.initializers.random_* tf.keras.initializers.Truncated*
        tf.keras.initializers.truncated_* tf.keras.initializers.Variance* tf.keras.initializers.variance_*
        tf.keras.initializers.Orthogonal* tf.keras.initializers.orthogonal
        tf.compat.v1.*_initializer tf.compat.v1.random_* tf.compat.v1.truncated_normal tf.compat.v1.set_random_seed""",
    "It differentiates in compiled functions; every case does so by a tape.": "tf.gradients",
    "It is a class, a switch or a scope, and no operation.": """
        tf.IndexedSlices tf.RaggedTensor* tf.SparseTensor* tf.sparse.SparseTensor tf.TensorArray tf.TypeSpec
        tf.DeviceSpec
        tf.variable_creator_scope tf.debugging.is_traceback_filtering_enabled
        tf.DType tf.Module tf.TensorSpec tf.UnconnectedGradients tf.Variable* tf.device tf.executing_eagerly
        tf.get_logger tf.init_scope tf.inside_function tf.name_scope tf.control_dependencies tf.GradientTape
        tf.function tf.image.ResizeMethod tf.debugging.disable_* tf.debugging.enable_* tf.debugging.set_*
        tf.keras.*.deserialize tf.keras.*.serialize tf.keras.losses.Loss tf.keras.losses.Reduction
        tf.keras.regularizers.Regularizer tf.keras.constraints.Constraint tf.keras.initializers.Initializer
        tf.keras.backend.backend tf.keras.backend.*floatx tf.keras.backend.*epsilon tf.keras.backend.*data_format
        tf.keras.backend.clear_session tf.keras.backend.get_uid tf.keras.backend.is_float_dtype
        tf.keras.backend.is_int_dtype tf.keras.backend.is_keras_tensor tf.keras.backend.*learning_phase
        tf.keras.backend.manual_variable_initialization tf.keras.backend.result_type
        tf.keras.backend.standardize_dtype""",
    "It hashes text; tests/unit/data/test_fingerprints.py has it.": "tf.strings.to_hash_bucket_fast",
    "It has an effect, and returns nothing that could differ.": """
        tf.print tf.keras.backend.print_tensor tf.keras.backend.batch_*_value tf.keras.backend.*_value
        tf.keras.backend.update* tf.keras.backend.variable""",
    "It reads what another operation gave; tests/unit/tf/keras/test_names.py has it.": """
        tf.keras.backend.eval tf.keras.backend.function""",
    "It takes a function of a step; tests/unit/tf/keras/test_names.py has it.": "tf.keras.backend.rnn",
    "It reads files' bytes; tests/unit/tf/io has it.": """
        tf.image.decode_* tf.image.encode_* tf.image.extract_jpeg_shape tf.image.is_jpeg""",
    "It draws sizes; tests/unit/tf/tensors/test_distorted_boxes.py has it.": "tf.image.*sample_distorted_bounding_box",
    "TensorFlow computes it under XLA alone.": "tf.math.approx_min_k tf.nn.approx_min_k",
    "Keras 3 alone has it, and its numbers.": """
        tf.keras.losses.CTC tf.keras.losses.ctc tf.keras.losses.circle
        tf.keras.losses.CategoricalGeneralizedCrossEntropy tf.keras.losses.SparseCategoricalFocalCrossentropy
        tf.keras.losses.sparse_categorical_focal_crossentropy tf.keras.initializers.STFT*
        tf.keras.initializers.stft""",
}
"""Names, with * for any part, and why they have no case."""

OLD_ONLY: Final = """
    OpError FixedLen* VarLen* Graph* *Proto *Options add_to_collection dimension_at_index disable_* enable_*
    get_collection get_variable global_variables group matching_files parse_* decode_csv read_file write_file
    executing_eagerly_outside_functions reset_default_graph serialize_tensor trainable_variables variable_scope
"""
"""Names of `tf.compat.v1` that are no operations: scopes, files, settings."""


def found(name: str) -> Any:
    """Return what a name such as tf.math.abs stands for."""
    value: Any = tf
    for part in name.split(".")[1:]:
        value = getattr(value, part)
    return value


def used() -> tuple[set[str], set[int]]:
    """Return the names that cases have, and the identities of what they stand for."""
    texts = [text for area in table.areas() for case in table.cases(area) for text in [case.expression]]
    names = {match.group() for text in texts for match in re.finditer(r"\btf(\.\w+)+", text)}
    values = set()
    for name in names:
        try:
            values.add(id(found(name)))
        except AttributeError:  # of what is refused
            continue
    return names, values


def is_excepted(name: str) -> bool:
    """Whether a name stands among the exceptions; one of `tf.compat.v1` also as one of `tf`."""
    patterns = [pattern for text in EXCEPTIONS.values() for pattern in text.split()]
    patterns += [f"tf.compat.v1.{pattern}" for pattern in OLD_ONLY.split()]
    spellings = [name, name.replace("tf.compat.v1.", "tf.", 1), name.replace("tf.compat.v1.", "tf.debugging.", 1)]
    return any(
        re.fullmatch(re.escape(pattern).replace(r"\*", r"\w*"), spelling)
        for pattern in patterns
        for spelling in spellings
    )


@pytest.mark.parametrize("namespace", table.NAMESPACES)
def test_every_operation_has_a_case_or_a_reason(namespace: str) -> None:
    names, values = used()
    module = importlib.import_module(f"stratagem.{namespace}")
    without = []
    for short in dir(module):
        name = f"{namespace}.{short}"
        value = None if short.startswith("_") else getattr(module, short)
        if value is None or isinstance(value, ModuleType) or not callable(value):
            continue
        if name not in names and id(value) not in values and not is_excepted(name):
            without.append(name)
    assert without == []


OTHERWISE: Final = {
    "None and this are one.": """
        tf.norm tf.shape tf.size tf.math.count_nonzero tf.nn.avg_pool?d tf.nn.max_pool?d tf.nn.conv?d_transpose
        tf.nn.convolution tf.linalg.norm tf.nn.local_response_normalization tf.nn.lrn""",
    "Only in its signature does TensorFlow take it without.": """
        tf.cond tf.custom_gradient tf.numpy_function tf.py_function tf.nn.sigmoid_cross_entropy_with_logits
        tf.group tf.meshgrid tf.print tf.keras.backend.clear_session""",
    "The rest is not there, and refused.": """
        tf.keras.backend.function tf.image.decode_* tf.matmul tf.linalg.matmul tf.debugging.*numerics""",
}
"""Functions whose parameters are written otherwise, and why that is as good."""


def recorded() -> list[tuple[str, list[str]]]:
    """Return TensorFlow's functions that are here, and their parameters."""
    lines = (table.FOLDER / "goldens" / "parameters.txt").read_text(encoding="utf-8").splitlines()
    return [(name, text.split()) for name, _, text in (line.partition(": ") for line in lines)]


def differs(theirs: str, ours: str) -> bool:
    """Whether a parameter has another name or default; one that text cannot say is taken for equal."""
    return theirs != ours and ("=..." not in theirs + ours or theirs.partition("=")[0] != ours.partition("=")[0])


@pytest.mark.parametrize("namespace", table.WITH_PARAMETERS)
def test_parameters_are_those_of_tensorflow(namespace: str) -> None:
    otherwise = [pattern for text in OTHERWISE.values() for pattern in text.split()]
    found = []
    for name, theirs in recorded():
        module = importlib.import_module(f"stratagem.{namespace}")
        home, _, short = name.rpartition(".")
        if home != namespace or short not in dir(module) or any(fnmatch(name, pattern) for pattern in otherwise):
            continue
        try:
            ours = table.parameters(getattr(module, short)).split()
        except (TypeError, ValueError):  # a class, or nothing of Python's
            continue
        others = [parameter for parameter in theirs if not parameter.startswith("name=")]
        mine = [parameter for parameter in ours if not parameter.startswith("name=")]
        if not any(part.startswith("*") for part in mine) and any(map(differs, others, [*mine, *[""] * len(others)])):
            found.append(f"{name}: {' '.join(others)}; here: {' '.join(mine)}")
    assert found == []
