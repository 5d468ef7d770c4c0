"""The list of what we stand on: it is complete, each name is there, and means what we think."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from jax import lax
from jax.extend.core import ClosedJaxpr
from jax.sharding import Mesh, PartitionSpec

import stratagem
from stratagem.core import foundations
from stratagem.core.errors import VersionError
from stratagem.core.foundations import ATTRIBUTES, FOUNDATIONS, OPTIONAL, PARAMETERS, TESTED
from stratagem.program.compat import needed_part, parameters, scan_operands

ROOT = Path(stratagem.__file__).parent
PRIVATE = re.compile(r"(jax\._src|jax\.interpreters|jaxlib|keras\.src)\b")

OF_PYTHON = {"_asdict", "_current_frames", "_exit", "_fields", "_inheriting", "_nb_ops", "_replace"}
"""What begins with an underscore and is documented, or is guarded where it is used (`dis._nb_ops`)."""

OF_OTHERS = {"_iterator", "_tuning"}
"""Of grain's iterators, which are asked whether they have one, and of our own options."""


def alternatives(name: str) -> Iterator[str]:
    """Yield each module:attribute that an entry of the list allows."""
    module = ""
    for each in name.split("|"):
        found, colon, path = each.rpartition(":")
        module = found if colon else module
        yield f"{module}:{path}"


def listed() -> set[str]:
    names = {each for foundation in FOUNDATIONS for name in foundation.names for each in alternatives(name)}
    return names | set(OPTIONAL) | set(ATTRIBUTES)


def sources() -> list[tuple[Path, ast.Module]]:
    return [(file, ast.parse(file.read_text())) for file in sorted(ROOT.rglob("*.py"))]


def imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (name in the file, module:attribute) of what is imported from a private module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and PRIVATE.match(node.module or ""):
            for name in node.names:
                yield name.asname or name.name, f"{node.module}:{name.name}"
        elif isinstance(node, ast.Import):
            assert not any(PRIVATE.match(name.name) for name in node.names), "write from module import name"


def is_module(name: str) -> bool:
    try:
        importlib.import_module(name.replace(":", "."))
    except ImportError:
        return False
    return True


@pytest.mark.parametrize("file", sorted(ROOT.rglob("compat.py")), ids=lambda file: str(file.relative_to(ROOT)))
def test_what_a_file_imports_is_listed(file: Path) -> None:
    """Of a module, at least one name; of a class or function, the thing itself, or something of it."""
    names = listed()
    for _, each in imported(ast.parse(file.read_text())):
        inside = f"{each.replace(':', '.')}:" if is_module(each) else each
        assert any(name.startswith((inside, f"{each}.")) for name in names), f"{each} is not in core/foundations.py"


def test_attributes_of_private_modules_are_listed() -> None:
    """`core.trace_ctx.set_trace`, where `core` was imported, stands in the list with these names."""
    names = listed()
    for file, tree in sources():
        modules = {own: each.replace(":", ".") for own, each in imported(tree) if is_module(each)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
                name = f"{modules[node.value.id]}:{node.attr}"
                parent = name.replace(":", ".")
                found = any(each == name or each.startswith((f"{name}.", f"{parent}:")) for each in names)
                assert found or is_module(name), f"{file.relative_to(ROOT)}: {name} is not in core/foundations.py"


def test_private_attributes_of_others_are_listed() -> None:
    own = OF_PYTHON | OF_OTHERS
    for _, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                own.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                own.update([node.attr] if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls") else [])
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                own.add(node.id)
    known = {name for names in ATTRIBUTES.values() for name in names}
    known |= {part for name in listed() for part in name.rpartition(":")[2].split(".")}
    for file, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                name = node.attr
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
                second = node.args[1]
                is_name = node.func.id in ("getattr", "hasattr", "setattr") and isinstance(second, ast.Constant)
                name = str(second.value) if is_name and isinstance(second, ast.Constant) else ""
            else:
                continue
            if name.startswith("_") and not name.startswith("__") and name not in own:
                assert name in known, f"{file.relative_to(ROOT)}:{node.lineno}: {name} is not in core/foundations.py"


@pytest.mark.parametrize("foundation", FOUNDATIONS, ids=lambda foundation: foundation.user)
def test_nothing_is_listed_that_is_not_used(foundation: foundations.Foundation) -> None:
    """The last name of each stands somewhere in the module or package that is said to use it."""
    module = ROOT.parent / foundation.user.replace(".", "/")
    files = sorted(module.rglob("*.py")) if module.is_dir() else [module.with_suffix(".py")]
    text = "\n".join(file.read_text() for file in files)
    for name in foundation.names:
        words = {each.rpartition(":")[2].rpartition(".")[2] for each in alternatives(name)}
        assert any(re.search(rf"\b{word}\b", text) for word in words), name


def test_everything_is_there() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on a release that is newer than the newest tested
        foundations.require_foundations.__wrapped__()


# What happens when something is not ------------------------------------------------------------------


def test_a_name_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("jax._src.core.get_referent")
    monkeypatch.setattr(jax, "__version__", "0.13.1")
    monkeypatch.setattr(keras, "__version__", "3.15.1")
    with pytest.raises(VersionError) as caught:
        foundations.require_foundations.__wrapped__()
    assert str(caught.value) == (
        "JAX 0.13.1 with Keras 3.15.1 has no jax._src.core:get_referent, for GradientTape outside compiled functions.\n"
        "  Why it matters: Without these, Stratagem would fail in the middle of a program. It was tested with "
        f"JAX {TESTED['jax'].oldest} to {TESTED['jax'].newest} and Keras {TESTED['keras'].oldest} to "
        f"{TESTED['keras'].newest}.\n"
        f'  What to do: pip install "jax{foundations.bounds("jax")}" "keras{foundations.bounds("keras")}", '
        "or install a newer Stratagem."
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("first", ["stratagem.MirroredStrategy", "from stratagem.tf import keras"])
def test_a_program_is_told_once_and_before_all_else(first: str) -> None:
    """No AttributeError from somewhere inside, whatever the program names first."""
    program = f"import jax._src.core as core\ndel core.get_referent\nimport stratagem\n{first}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr.count("Error: ") == 1
    assert "VersionError: JAX " in done.stderr
    assert "has no jax._src.core:get_referent, for GradientTape" in done.stderr


def test_an_attribute_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ATTRIBUTES, "keras:Variable", ("_value", "_never_heard_of"))  # pyright: ignore
    with pytest.raises(VersionError, match=r"has no keras:Variable\._never_heard_of, for models, optimizers and"):
        foundations.require_foundations.__wrapped__()


@pytest.mark.parametrize(("package", "title"), [("jax", "JAX"), ("keras", "Keras")])
def test_a_newer_release_warns(monkeypatch: pytest.MonkeyPatch, package: str, title: str) -> None:
    monkeypatch.setattr(importlib.import_module(package), "__version__", "99.1.0")
    with pytest.warns(UserWarning, match=f"^{title} 99.1.0 is newer than what this Stratagem was tested with: JAX 0.7"):
        foundations.require_foundations.__wrapped__()


@pytest.mark.parametrize(
    ("version", "newer"),
    [("0.12.0.1", False), ("0.12.0.1.dev20261101", False), ("0.12", False), ("0.12.1", True), ("0.13.0rc1", True)],
)
def test_which_release_is_newer(monkeypatch: pytest.MonkeyPatch, version: str, newer: bool) -> None:
    monkeypatch.setitem(TESTED, "jax", foundations.Tested("0.7.2", "0.12.0.1"))  # pyright: ignore
    monkeypatch.setattr(jax, "__version__", version)
    monkeypatch.setattr(keras, "__version__", TESTED["keras"].newest)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        foundations.require_foundations.__wrapped__()
    assert len(seen) == newer


def test_the_bounds_of_the_project_are_those_of_the_list() -> None:
    project = ROOT.parents[1] / "pyproject.toml"
    dependencies = tomllib.loads(project.read_text())["project"]["dependencies"]
    for package in TESTED:
        assert f"{package}{foundations.bounds(package)}" in dependencies


def test_a_parameter_that_is_gone() -> None:
    (equation,) = jax.make_jaxpr(lambda x: lax.cumsum(x))(jnp.ones(3)).eqns
    with pytest.raises(VersionError, match="no parameter 'axes' in its operation 'cumsum'"):
        parameters(equation)["axes"]


# What the parameters mean ------------------------------------------------------------------------------


def on_mesh(function: Any) -> Any:
    mesh = Mesh(jax.devices()[:2], ("replica",))
    spec = PartitionSpec("replica")
    return jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)


def equations(program: Any) -> Iterator[Any]:
    for equation in program.eqns:
        yield equation
        for value in equation.params.values():
            for each in value if isinstance(value, tuple) else (value,):
                inner = getattr(each, "jaxpr", each)
                if hasattr(inner, "eqns"):
                    yield from equations(inner)


TABLE, IMAGES, KERNEL = jnp.ones((5, 3)), jnp.ones((1, 8, 8, 2)), jnp.ones((3, 3, 2, 4))


def looked_up(table: jax.Array) -> jax.Array:
    return jnp.sum(table.at[jnp.array([0, 2])].get(mode="fill") ** 2)


def pooled(x: jax.Array) -> jax.Array:
    return jnp.sum(lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"))


def convolved(x: jax.Array) -> jax.Array:
    return lax.conv_general_dilated(x, KERNEL, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def scanned(x: jax.Array) -> Any:
    return lax.scan(lambda carry, row: (carry + row * 2.0, carry), jnp.zeros(3), x, reverse=True, unroll=2)


PROGRAMS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "all_gather": (
        on_mesh(lambda x: lax.all_gather(x, "replica", axis=1, tiled=True)),
        jnp.ones((2, 3)),
        {"all_gather_dimension": 1, "axis_index_groups": None, "axis_name": ("replica",), "tiled": True},
    ),
    "all_to_all": (
        on_mesh(lambda x: lax.all_to_all(x, "replica", 1, 0)),
        jnp.ones((2, 2)),
        {"axis_name": ("replica",)},
    ),
    "broadcast_in_dim": (
        lambda x: lax.broadcast_in_dim(x, (2, 3), (1,)),
        jnp.ones(3),
        {"broadcast_dimensions": (1,)},
    ),
    "cond": (lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, x), jnp.ones(3), {"branches": [True, True]}),
    "conv_general_dilated": (
        convolved,
        IMAGES,
        {
            "window_strides": (2, 1),
            "padding": ((0, 1), (1, 1)),
            "lhs_dilation": (1, 1),
            "rhs_dilation": (1, 1),
            "dimension_numbers": ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2)),
            "feature_group_count": 1,
            "batch_group_count": 1,
            "precision": None,
            "preferred_element_type": None,
        },
    ),
    "dot_general": (
        lambda x: lax.dot_general(x, IMAGES, (((1, 2), (1, 2)), ((0,), (0,))), "highest", "float32"),
        IMAGES,
        {
            "dimension_numbers": (((1, 2), (1, 2)), ((0,), (0,))),
            "precision": (lax.Precision.HIGHEST, lax.Precision.HIGHEST),
            "preferred_element_type": jnp.float32,
        },
    ),
    "gather": (
        looked_up,
        TABLE,
        {"slice_sizes": (1, 3), "mode": lax.GatherScatterMode.FILL_OR_DROP, "dimension_numbers": ((0,), (0,), ())},
    ),
    "jit|pjit": (jax.jit(jnp.sin), jnp.ones(3), {"jaxpr": True, "name": "sin"}),
    "pmax": (on_mesh(lambda x: lax.pmax(x, "replica")), jnp.ones(2), {"axes": ("replica",), "axis_index_groups": None}),
    "pmin": (on_mesh(lambda x: lax.pmin(x, "replica")), jnp.ones(2), {"axes": ("replica",), "axis_index_groups": None}),
    "ppermute": (
        on_mesh(lambda x: lax.ppermute(x, "replica", [(0, 1), (1, 0)])),
        jnp.ones(2),
        {"axis_name": ("replica",)},
    ),
    "custom_jvp_call": (jax.nn.relu, TABLE, {"call_jaxpr": True}),
    "while": (
        lambda x: lax.while_loop(lambda carry: carry[0, 0] < 3, lambda carry: carry + x, x),
        TABLE,
        {"body_jaxpr": True, "body_nconsts": 1, "cond_jaxpr": True, "cond_nconsts": 0},
    ),
    "psum": (on_mesh(lambda x: lax.psum(x, "replica")), jnp.ones(2), {"axes": ("replica",), "axis_index_groups": None}),
    "random_bits": (lambda x: jax.random.bits(jax.random.key(0), (3,), "uint16"), jnp.ones(3), {"bit_width": 16}),
    "reduce_and": (lambda x: jnp.all(x > 0, axis=1), TABLE, {"axes": (1,)}),
    "reduce_max": (lambda x: jnp.max(x, axis=1), TABLE, {"axes": (1,)}),
    "reduce_min": (lambda x: jnp.min(x, axis=0), TABLE, {"axes": (0,)}),
    "reduce_or": (lambda x: jnp.any(x > 0, axis=1), TABLE, {"axes": (1,)}),
    "reduce_scatter": (
        on_mesh(lambda x: lax.psum_scatter(x, "replica", scatter_dimension=1, tiled=True)),
        jnp.ones((2, 2)),
        {"axis_name": ("replica",), "scatter_dimension": 1, "tiled": True, "axis_index_groups": None},
    ),
    "reduce_sum": (lambda x: jnp.sum(x, axis=1), TABLE, {"axes": (1,)}),
    "scan": (scanned, TABLE, {"jaxpr": True, "length": 5, "reverse": True, "unroll": 2}),
    "scatter-add": (
        jax.grad(looked_up),
        TABLE,
        {"mode": lax.GatherScatterMode.FILL_OR_DROP, "dimension_numbers": ((0,), (0,), ())},
    ),
    "select_and_scatter_add": (
        jax.grad(pooled),
        IMAGES,
        {
            "padding": ((0, 0),) * 4,
            "select_prim": lax.ge_p,
            "window_dimensions": (1, 2, 2, 1),
            "window_strides": (1, 2, 2, 1),
        },
    ),
}


def of_lookup(name: str, value: Any) -> tuple[Any, ...]:
    """Return which axis the ids of a lookup mean."""
    if name == "gather":
        return value.collapsed_slice_dims, value.start_index_map, value.operand_batching_dims
    return value.inserted_window_dims, value.scatter_dims_to_operand_dims, value.operand_batching_dims


def told(name: str, parameter: str, value: Any) -> Any:
    """Return what a parameter says, in the terms of the table above."""
    if parameter == "branches":
        return [isinstance(each, ClosedJaxpr) for each in value]
    if parameter.endswith("jaxpr"):
        return isinstance(value, ClosedJaxpr)
    if parameter == "axis_name" or (parameter == "axes" and name.startswith("p")):
        return value if isinstance(value, tuple) else (value,)
    if parameter == "dimension_numbers":
        return of_lookup(name, value) if name in ("gather", "scatter-add") else tuple(value)
    return tuple(value) if isinstance(value, list) else value


@pytest.mark.parametrize("names", PARAMETERS)
def test_parameters_mean_what_we_think(names: str) -> None:
    function, argument, expected = PROGRAMS[names]
    found = next(e for e in equations(jax.make_jaxpr(function)(argument).jaxpr) if e.primitive.name in names.split("|"))
    assert {each for each in PARAMETERS[names] if "|" not in each} == set(expected)
    for parameter, meaning in expected.items():
        assert told(names, parameter, parameters(found)[parameter]) == meaning, parameter


def test_operands_of_a_scan() -> None:
    factor = jnp.array(3.0)

    def body(carry: tuple[Any, Any], row: Any) -> Any:
        return (carry[0] + row * factor, carry[1] * 2.0), row

    program = jax.make_jaxpr(lambda x: lax.scan(body, (jnp.zeros(2), jnp.ones(3)), x))(jnp.ones((4, 2)))
    (equation,) = [each for each in program.jaxpr.eqns if each.primitive.name == "scan"]
    fixed, carried, rows = scan_operands(equation, [variable.aval.shape for variable in equation.invars])
    assert (fixed, carried, rows) == ([()], [(2,), (3,)], [(4, 2)])


# What the attributes mean ------------------------------------------------------------------------------


def test_attributes_of_a_variable() -> None:
    variable = keras.Variable(np.arange(3.0), trainable=False, name="own", dtype="float32")
    assert np.asarray(variable._value).tolist() == [0.0, 1.0, 2.0]
    assert (variable._dtype, variable._name, variable._path) == ("float32", "own", "own")
    assert (tuple(variable._shape), variable._ndim, variable._trainable) == ((3,), 1, False)
    assert (variable._aggregation, variable._autocast, variable._initializer) == ("none", True, None)
    assert (variable._constraint, variable._regularizer) == (None, None)
    variable._value = jnp.array([4.0, 5.0, 6.0])
    assert np.asarray(variable).tolist() == [4.0, 5.0, 6.0]


def test_attributes_of_an_optimizer() -> None:
    weights = [keras.Variable([1.0, 2.0])]
    optimizer: Any = keras.optimizers.Adam(0.5, clipnorm=1.0, gradient_accumulation_steps=2)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    optimizer.build(weights)
    assert optimizer._trainable_variables == weights
    assert optimizer.variables[0] is optimizer._iterations
    assert optimizer.variables[1] is optimizer._learning_rate
    assert list(optimizer._variables) == list(optimizer.variables)
    assert [variable.shape for variable in optimizer._accumulated_gradients] == [(2,)]
    assert optimizer._get_variable_index(weights[0]) == 0
    np.testing.assert_allclose(optimizer._clip_gradients([jnp.array([3.0, 4.0])])[0], [0.6, 0.8], rtol=1e-6)


def test_attributes_of_a_model() -> None:
    model: Any = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    model._initial_epoch = 1
    history = model.fit(np.ones((4, 2)), np.ones((4, 1)), epochs=3, verbose=0)
    assert history.epoch == [1, 2]
    assert model._jax_state_synced
    assert {layer.name for layer in model._flatten_layers()} > {layer.name for layer in model.layers}
    assert model._compile_metrics.built
    assert model._loss_tracker.name == "loss"
    assert model._compile_config.config["loss"] == "mse"


def test_the_iterator_of_a_validation() -> None:
    """`fit` keeps one for all epochs, and tells `evaluate` to use it; where it is gone it makes another."""
    model: Any = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    seen = []

    class Sees(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            seen.append(self.model._eval_epoch_iterator)
            if epoch == 1:
                self.model._eval_epoch_iterator = None

    x, y = np.ones((4, 2)), np.ones((4, 1))
    losses = model.fit(x, y, epochs=3, verbose=0, validation_data=(x, y), callbacks=[Sees()]).history["val_loss"]
    assert seen[0] is seen[1]
    assert seen[2] not in (None, seen[0])
    assert model.evaluate(x, y, verbose=0) == losses[-1]
    with pytest.raises(AttributeError, match="_eval_epoch_iterator"):
        model.evaluate(x, y, verbose=0, _use_cached_eval_dataset=True)


def test_a_trace_that_is_current() -> None:
    """What the tape does: take the place of the current trace, and give it back."""
    from jax._src import core

    before = core.trace_ctx.trace
    seen: list[str] = []

    class Noting(core.Trace):
        def process_primitive(self, primitive: Any, tracers: Any, params: Any, /) -> Any:
            seen.append(primitive.name)
            with core.set_current_trace(before):
                return primitive.bind(*tracers, **params)

    core.trace_ctx.set_trace(Noting())
    try:
        result = lax.add(jnp.float32(1.0), lax.sin(np.float32(0.0)))
    finally:
        core.trace_ctx.set_trace(before)
    assert float(result) == 1.0
    assert seen[-2:] == ["sin", "add"]


def test_needed_part_of_a_program() -> None:
    program = jax.make_jaxpr(lambda x, y: (jnp.sin(x), jnp.cos(y)))(1.0, 2.0).jaxpr
    needed, used = needed_part(program, [False, True])
    assert [equation.primitive.name for equation in needed.eqns] == ["cos"]
    assert list(used) == [False, True]
