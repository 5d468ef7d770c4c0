"""Names of JAX and Keras on which Stratagem stands and which are private, or change between releases.

One list: what is used is named here with what it is for, and nothing that is not named here is used
(`tests/unit/core/test_foundations.py` compares the list with the sources, and holds each name to what we think it
means). Names are looked up before the first module that uses them is loaded, so that a release of JAX or Keras without
one of them gives one message, and no AttributeError somewhere inside.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import itertools
import re
import types
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from stratagem.core.errors import VersionError


class Tested(NamedTuple):
    """The oldest and the newest release of a package that the whole suite has passed on."""

    oldest: str
    newest: str


TESTED: Final[Mapping[str, Tested]] = {
    "jax": Tested("0.7.2", "0.12.0.1"),
    "keras": Tested("3.14.0", "3.16.0"),  # 3.16 as its nightly build of 2026-10-27
}
"""As the bounds in pyproject.toml say, and the table in docs/versions.md shows."""


class Foundation(NamedTuple):
    """Names that one part of Stratagem stands on.

    Attributes:
        user: The module that uses them.
        purpose: What would not work without them.
        names: Each as module:attribute; where releases differ, the newest first: "a:b|c".
    """

    user: str
    purpose: str
    names: tuple[str, ...]


FOUNDATIONS: Final = (
    Foundation(
        "stratagem.cluster.compat",
        "workers on several hosts (MultiWorkerMirroredStrategy, parameter servers)",
        (
            "jax._src.distributed:global_state.client",
            "jax._src.distributed:global_state.service",
            "jax._src.distributed:global_state.num_processes",
            "jax._src.xla_bridge:backends_are_initialized",
            "jax._src.compiler:config.compilation_cache_dir.value",
            "jax._src.compiler:_cache_write",
        ),
    ),
    Foundation(
        "stratagem.program.compat",
        "programs of several replicas (strategy.run, fit)",
        (
            "jax.interpreters.partial_eval:dce_jaxpr",
            "jax.extend.core:get_opaque_trace_state|jax.core:get_opaque_trace_state",
            "jax.extend.source_info_util:user_context",
            "jax._src.core:trace_ctx.trace",
            "keras.src.backend.common.stateless_scope:get_stateless_scope",
        ),
    ),
    Foundation(
        "stratagem.program",
        "reading and rewriting programs that JAX has traced",
        (
            "jax.core:Tracer",
            "jax.extend.core:ClosedJaxpr",
            "jax.extend.core:Jaxpr",
            "jax.extend.core:JaxprEqn",
            "jax.extend.core:Literal",
            "jax.extend.core:Var",
            "jax.extend.core:jaxpr_as_fun",
        ),
    ),
    Foundation(
        "stratagem.strategy.first_arrays",
        "first values of variables that are drawn at random",
        ("jax.extend.random:define_prng_impl",),
    ),
    Foundation(
        "stratagem.loop.compat",
        "GradientTape outside compiled functions",
        (
            "jax._src.core:Trace",
            "jax._src.core:full_lower",
            "jax._src.core:get_referent",
            "jax._src.core:set_current_trace",
            "jax._src.core:to_concrete_value",
            "jax._src.core:trace_ctx.set_trace",
            "jax._src.core:trace_ctx.trace",
            "jax._src.array:ArrayImpl",
            "jax._src.dtypes:canonicalize_value_handlers",
            "jax._src.interpreters.pxla:shard_arg_handlers",
            "keras.src.backend.common.global_state:get_global_attribute",
            "keras.src.backend.common.global_state:set_global_attribute",
        ),
    ),
    Foundation(
        "stratagem.loop.partial",
        "gradients by tensors in the midst of a compiled function",
        ("jax.extend.core:Primitive",),
    ),
    Foundation(
        "stratagem.feed.compat",
        "the input of fit, evaluate and predict",
        (
            "keras.src.trainers.data_adapters.array_data_adapter:ArrayDataAdapter",
            "keras.src.trainers.data_adapters.array_data_adapter:can_convert_arrays",
            "keras.src.trainers.data_adapters.array_slicing:convert_to_sliceable",
            "keras.src.trainers.data_adapters.data_adapter:DataAdapter",
            "keras.src.trainers.data_adapters.data_adapter_utils:class_weight_to_sample_weights",
            "keras.src.trainers.data_adapters.data_adapter_utils:unpack_x_y_sample_weight",
        ),
    ),
    Foundation(
        "stratagem.fit.compat",
        "fit, evaluate and predict under a strategy",
        (
            "keras.src.backend:compute_output_spec",
            "keras.src.backend.common.masking:get_keras_mask",
            "keras.src.backend.common.masking:set_keras_mask",
            "keras.src.trainers.trainer:BaseTrainer._symbolic_build|Trainer._symbolic_build",
        ),
    ),
    Foundation(
        "stratagem.fit.bind",
        "BatchNormalization(synchronized=True)",
        ("keras.src.layers.normalization.batch_normalization:BatchNormalization._moments",),
    ),
    Foundation(
        "stratagem.core.patches",
        "fit, evaluate and predict under a strategy",
        (
            "keras.src.backend:device_scope",
            "keras.src.backend:ops.nn.moments|nn.moments",
            "keras.src.backend.jax.trainer:JAXEpochIterator._get_iterator",
            "keras.src.backend.jax.trainer:Trainer.state_sync|JAXTrainer.jax_state_sync",
            "keras.src.losses.loss:apply_mask",
            "keras.src.losses.loss:reduce_values",
            "jax._src.numpy.indexing:rewriting_take",
            "keras.src.trainers.data_adapters:get_data_adapter",
            "keras.src.trainers.epoch_iterator:EpochIterator._enumerate_iterator",
        ),
    ),
    Foundation(
        "stratagem.plan.compat",
        "stratagem plan --on",
        ("jax.experimental.topologies:get_topology_desc",),
    ),
    Foundation(
        "stratagem.tf.config.compat",
        "tf.config.list_physical_devices('TPU')",
        ("jax._src.hardware_utils:num_available_tpu_chips_and_device_id",),
    ),
    Foundation(
        "stratagem.tf.keras.layers.compat",
        "add_loss and lookups of a functional model of tf.keras, and build of models",
        (
            "keras.src.backend:compute_output_spec",
            *(f"keras.src.models.functional:{name}" for name in ("Functional", "operation_fn")),
        ),
    ),
    Foundation(
        "stratagem.tf.keras.compat",
        "what tf.keras adds to Keras's classes",
        (
            *(
                f"keras.src.legacy.preprocessing.image:{name}"
                for name in (
                    *("DirectoryIterator", "ImageDataGenerator", "Iterator", "NumpyArrayIterator"),
                    *("apply_affine_transform", "apply_brightness_shift", "apply_channel_shift", "random_brightness"),
                    *("random_channel_shift", "random_rotation", "random_shear", "random_shift", "random_zoom"),
                )
            ),
            *(
                f"keras.src.legacy.preprocessing.sequence:{name}"
                for name in ("TimeseriesGenerator", "make_sampling_table", "skipgrams")
            ),
            *(
                f"keras.src.legacy.preprocessing.text:{name}"
                for name in ("Tokenizer", "hashing_trick", "one_hot", "text_to_word_sequence", "tokenizer_from_json")
            ),
            "keras.src.backend:rnn",
            "keras.src.legacy.saving.legacy_h5_format:save_weights_to_hdf5_group",
        ),
    ),
    Foundation(
        "stratagem.tf.keras.derivatives.compat",
        "TensorFlow's derivatives in Keras's losses and activations, under stratagem.tf.keras",
        (
            *(
                f"keras.src.backend.jax:ops.{name}|{name}"
                for name in (
                    *("core.stop_gradient", "math.rsqrt", "nn.categorical_crossentropy", "nn.elu", "nn.leaky_relu"),
                    *("nn.max_pool", "nn.selu", "nn.softsign", "numpy.absolute", "numpy.clip", "numpy.maximum"),
                    *("numpy.minimum", "numpy.power", "numpy.sign", "numpy.sqrt"),
                )
            ),
        ),
    ),
)

ATTRIBUTES: Final[Mapping[str, tuple[str, ...]]] = {
    "keras:Variable": (
        *("_aggregation", "_autocast", "_constraint", "_convert_to_tensor", "_deferred_initialize", "_dtype"),
        *("_initializer", "_name", "_ndim", "_path", "_regularizer", "_shape", "_trainable", "_value"),
    ),
    "keras:Operation": ("_outbound_nodes",),
    "keras.src.ops.node:Node": ("_keras_history",),
    "keras:Layer": (
        *("_allow_non_tensor_positional_args", "_convert_input_args", "_loss_ids", "_losses", "_losses_override"),
        "_tracker",
    ),
    "keras:Model": (
        *("_compile_config", "_compile_loss", "_compile_metrics", "_dtype_policy", "_eval_epoch_iterator"),
        *("_flatten_layers", "_initial_epoch", "_jax_state", "_jax_state_synced", "_layers", "_loss_tracker"),
        *("_metrics", "_non_trainable_variables", "_trainable", "_trainable_variables"),
    ),
    "keras:optimizers.Optimizer": (
        *("_accumulated_gradients", "_clip_gradients", "_exclude_from_weight_decay"),
        *("_exclude_from_weight_decay_pattern", "_get_variable_index", "_iterations", "_learning_rate"),
        *("_trainable_variables", "_trainable_variables_indices", "_variables"),
    ),
    "keras.src.ops.function:Function": (
        *("_inputs_struct", "_nodes", "_nodes_by_depth", "_operations", "_operations_by_depth", "_outputs"),
        "_outputs_struct",
    ),
    "keras:Sequential": ("_functional",),
    "keras:StatelessScope": ("original_scope", "state_mapping"),
    "keras.src.trainers.epoch_iterator:EpochIterator": ("_num_batches", "_steps_seen"),
    "keras.src.trainers.data_adapters.array_data_adapter:ArrayDataAdapter": ("_inputs",),
    "keras:callbacks.CallbackList": ("_async_predict", "_async_test", "_async_train", "_flush_futures"),
    "keras:callbacks.ProgbarLogger": ("_maybe_init_progbar",),
    "jax._src.core:Tracer": ("_trace",),
    "jax._src.interpreters.partial_eval:DynamicJaxprTracer": ("parent", "val"),
}
"""Attributes of Keras's and JAX's objects: methods, or what some method of the class sets."""

OPTIONAL: Final[Mapping[str, str]] = {
    "keras.src.backend.jax.trainer:Trainer._maybe_symbolic_build": "since 3.16: it builds a model from a batch",
}
"""Names that only some releases have; elsewhere they are done without."""

PARAMETERS: Final[Mapping[str, tuple[str, ...]]] = {
    "all_gather": ("all_gather_dimension", "axis_index_groups", "axis_name", "tiled"),
    "all_to_all": ("axis_name",),
    "broadcast_in_dim": ("broadcast_dimensions",),
    "cond": ("branches",),
    "conv_general_dilated": (
        *("batch_group_count", "dimension_numbers", "feature_group_count", "lhs_dilation", "padding"),
        *("precision", "preferred_element_type", "rhs_dilation", "window_strides"),
    ),
    "custom_jvp_call": ("call_jaxpr",),
    "dot_general": ("dimension_numbers", "precision", "preferred_element_type"),
    "gather": ("dimension_numbers", "mode", "slice_sizes"),
    "jit|pjit": ("jaxpr", "name"),
    "pmax": ("axes", "axis_index_groups"),
    "pmin": ("axes", "axis_index_groups"),
    "ppermute": ("axis_name",),
    "psum": ("axes", "axis_index_groups"),
    "random_bits": ("bit_width",),
    "reduce_and": ("axes",),
    "reduce_max": ("axes",),
    "reduce_min": ("axes",),
    "reduce_or": ("axes",),
    "reduce_scatter": ("axis_index_groups", "axis_name", "scatter_dimension", "tiled"),
    "reduce_sum": ("axes",),
    "scan": ("ft_in|num_carry|num_consts", "jaxpr", "length", "reverse", "unroll"),
    "scatter-add": ("dimension_numbers", "mode"),
    "select_and_scatter_add": ("padding", "select_prim", "window_dimensions", "window_strides"),
    "while": ("body_jaxpr", "body_nconsts", "cond_jaxpr", "cond_nconsts"),
}
"""The parameters that we read of JAX's primitives, by the primitive; `program.compat.parameters` gives these alone."""


@functools.cache
def require_foundations() -> None:
    """Check that JAX and Keras have what Stratagem stands on, and warn where they are newer than what was tested.

    Raises:
        VersionError: They lack something.
    """
    missing: dict[str, list[str]] = {}
    for name, purpose in _missing():
        missing.setdefault(purpose, []).append(name)
    if missing:
        found = "; ".join(f"{', '.join(names)}, for {purpose}" for purpose, names in missing.items())
        raise VersionError(
            f"JAX {_version('jax')} with Keras {_version('keras')} has no {found}.",
            f"Without these, Stratagem would fail in the middle of a program. It was tested with {_tested()}.",
            f"pip install {_wanted()}, or install a newer Stratagem.",
        )
    newer = [package for package, tested in TESTED.items() if _release(_version(package)) > _release(tested.newest)]
    if newer:
        names = " and ".join(f"{_TITLES[package]} {_version(package)}" for package in newer)
        warnings.warn(
            f"{names} is newer than what this Stratagem was tested with: {_tested()}. Everything that Stratagem needs "
            f"there is present. If something fails: pip install {_wanted()}, or install a newer Stratagem.",
            stacklevel=2,
        )


def look_up(name: str) -> Any:
    """Return what a name of the list means.

    Args:
        name: As module:attribute; alternatives after "|", with or without a module of their own.

    Raises:
        AttributeError: None of the alternatives is there.
    """
    home = ""
    for each in name.split("|"):
        module, found, path = each.rpartition(":")
        home = module if found else home
        try:
            return functools.reduce(getattr, path.split("."), importlib.import_module(home))
        except (AttributeError, ImportError):
            continue
    raise AttributeError(name)


def parameters_of(primitive: str) -> frozenset[str]:
    """Return the names of the parameters that we read of one of JAX's primitives, in all releases."""
    return _PARAMETERS_BY_NAME.get(primitive, frozenset())


def lacking(primitive: str, parameter: str) -> VersionError:
    """Return the error of a primitive that has not a parameter that we read."""
    return VersionError(
        f"JAX {_version('jax')} has no parameter {parameter!r} in its operation {primitive!r}.",
        f"Stratagem reads it in the programs of replicas. It was tested with {_tested()}.",
        f"pip install {_wanted()}, or install a newer Stratagem.",
    )


def has_attribute(kind: type, name: str) -> bool:
    """Whether objects of a class have an attribute: the class has it, or a method of it or its bases sets it."""
    return hasattr(kind, name) or any(name in _names_in(owner) for owner in kind.__mro__)


@functools.cache
def _names_in(owner: type) -> frozenset[str]:
    members = [getattr(member, "fget", member) for member in vars(owner).values()]
    functions = [member.__wrapped__ if hasattr(member, "__wrapped__") else member for member in members]
    codes = [function.__code__ for function in functions if isinstance(function, types.FunctionType)]
    return frozenset(itertools.chain.from_iterable((*code.co_names, *code.co_consts) for code in codes if code)) - {
        None
    }


def _missing() -> Iterator[tuple[str, str]]:
    for foundation in FOUNDATIONS:
        for name in foundation.names:
            try:
                look_up(name)
            except AttributeError:
                yield name, foundation.purpose
    for kind, names in ATTRIBUTES.items():
        try:
            owner = look_up(kind)
        except AttributeError:
            yield kind, "models, optimizers and variables under a strategy"
            continue
        for name in names:
            if not has_attribute(owner, name):
                yield f"{kind}.{name}", "models, optimizers and variables under a strategy"


_PARAMETERS_BY_NAME: Final = {
    primitive: frozenset(itertools.chain.from_iterable(name.split("|") for name in names))
    for primitives, names in PARAMETERS.items()
    for primitive in primitives.split("|")
}

_TITLES: Final[Mapping[str, str]] = {"jax": "JAX", "keras": "Keras"}


def _tested() -> str:
    return " and ".join(f"{_TITLES[package]} {each.oldest} to {each.newest}" for package, each in TESTED.items())


def _wanted() -> str:
    return " ".join(f'"{package}{bounds(package)}"' for package in TESTED)


def bounds(package: str) -> str:
    """Return the bounds on a package, as pip takes them: from the oldest release to the last of the newest's kind.

    Example:
        >>> bounds("jax")
        '>=0.7.2,<0.13'
    """
    tested = TESTED[package]
    major, minor = _release(tested.newest)[:2]
    return f">={tested.oldest.removesuffix('.0')},<{major}.{minor + 1}"


def _version(package: str) -> str:
    return str(importlib.import_module(package).__version__)


def _release(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, without what marks a build before it: those of a nightly are the release's."""
    match = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(number) for number in match.group().split(".")] if match else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
