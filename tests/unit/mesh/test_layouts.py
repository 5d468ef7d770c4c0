from __future__ import annotations

import keras
import pytest
from jax.sharding import PartitionSpec

from stratagem.core.errors import InputError, UnsupportedError
from stratagem.mesh.layouts import Layouts, layouts_of


def found(path: str, shape: tuple[int, ...], devices: int = 2, taken: int | None = None) -> int | None:
    return Layouts(devices, None).axis_of(path, shape, min_size=1, taken=taken)


def given(devices: int = 2, **axes: tuple[str | None, ...]) -> Layouts:
    layouts = layouts_of({name.replace("_", "/"): each for name, each in axes.items()}, devices)
    assert layouts is not None
    return layouts


@pytest.mark.parametrize(
    ("path", "shape", "axis"),
    [
        ("gpt/embedding/embeddings", (512, 64), 0),
        ("gpt/embedding/embeddings", (511, 64), 1),
        ("up/kernel", (64, 256), 1),
        ("square/kernel", (64, 64), 1),
        ("down/kernel", (256, 64), 0),
        ("attention/query/kernel", (64, 4, 16), 1),  # Keras: features, heads, size of a head
        ("attention/query/kernel", (4, 64, 16), 0),  # KerasHub's Gemma: heads first
        ("attention/value/kernel", (64, 1, 16), None),  # one head for all queries
        ("attention/attention_output/kernel", (4, 16, 64), 0),
        ("moe/expert_weights", (4, 64, 256), 0),
        ("conv/kernel", (3, 3, 16, 32), 3),
        ("up/bias", (256,), None),
        ("up/kernel", (63, 255), None),
    ],
)
def test_auto_divides_by_what_a_weight_is(path: str, shape: tuple[int, ...], axis: int | None) -> None:
    assert found(path, shape) == axis


def test_auto_leaves_small_weights_whole_and_the_axis_of_replicas_free() -> None:
    assert Layouts(2, None).axis_of("up/kernel", (64, 256), min_size=64 * 256 + 1) is None
    assert found("down/kernel", (256, 64), taken=0) == 1
    assert found("down/kernel", (256, 63), taken=0) is None


def test_a_map_says_it_by_patterns_of_whole_paths() -> None:
    layouts = layouts_of({".*dense/kernel": ("model", None), "up.*": (None, "model")}, 4)
    assert layouts is not None
    assert layouts.axis_of("a/dense/kernel", (8, 3), min_size=10**9) == 0
    assert layouts.axis_of("up/kernel", (3, 8), min_size=1) == 1
    assert layouts.axis_of("a/dense/kernel/more", (8, 3), min_size=1) is None
    assert layouts.axis_of_shape((8, 3)) == 0
    assert layouts.axis_of_shape((7, 7)) is None


def test_a_map_of_keras_names_its_axes_itself() -> None:
    mesh = keras.distribution.DeviceMesh((1, 2), ("batch", "columns"), ["cpu:0", "cpu:1"])
    layout_map = keras.distribution.LayoutMap(mesh)
    layout_map["kernel"] = (None, "columns")
    layout_map["head/output"] = ("batch", "columns")
    layouts = Layouts(2, layout_map)
    assert layouts.axis_of("kernel", (3, 4), min_size=1) == 1
    assert layouts.output_spec("head/output") == PartitionSpec(None, "model")
    assert layouts.output_spec("tail/output") is None
    layout_map["bias"] = ("batch",)
    del layout_map["head/output"]
    by_map = layouts_of(layout_map, None)
    assert by_map is not None
    assert by_map.devices == 2
    with pytest.raises(InputError, match=r"(?s)'batch' is the axis of batches.*shard=\"parameters\""):
        layouts.axis_of("bias", (4,), min_size=1)
    with pytest.raises(InputError, match="model_parallel is 4, and the mesh of the layout map has 2 devices"):
        layouts_of(layout_map, 4)


def test_outputs_need_a_newer_jax_than_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stratagem.mesh.layouts._JAX_WITH_OUTPUTS", (99,))
    with pytest.raises(UnsupportedError, match=r"(?s)'up/output', for outputs of layers.*install JAX"):
        layouts_of({"up/kernel": (None, "model"), "up/output": (None, "model")}, 2)
    assert layouts_of({"up/kernel": (None, "model")}, 2) is not None


def test_patterns_that_match_nothing_are_found() -> None:
    layout_map = keras.distribution.LayoutMap(None)
    layout_map.update({"up/kernel": (None, "model"), "down/kernel": ("model", None), "up/output": (None, "model")})
    layouts = Layouts(2, layout_map)
    assert layouts.unmatched(["up/kernel", "up/bias"]) == ["down/kernel"]
    assert Layouts(2, None).unmatched(["up/kernel"]) == []


@pytest.mark.parametrize(
    ("axes", "shape", "said"),
    [
        ((None, "model"), (4,), "2 entries for 1 axes"),
        ((None, "model"), (4, 7), "7 does not divide among 2 devices"),
        ((None, "modle"), (4, 8), "lie on one axis, 'model'"),
        (("model", "model"), (4, 8), "lie on one axis, 'model'"),
    ],
)
def test_a_layout_that_does_not_fit_its_weight_says_so(
    axes: tuple[str | None, ...], shape: tuple[int, ...], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        given(up_kernel=axes).axis_of("up/kernel", shape, min_size=1)


def test_several_patterns_for_one_weight_say_so() -> None:
    layouts = layouts_of({"up.*": ("model",), ".*bias": ("model",)}, 2)
    assert layouts is not None
    with pytest.raises(InputError, match="several patterns for up/bias"):
        layouts.axis_of("up/bias", (4,), min_size=1)


def test_arguments_that_contradict_each_other_say_so() -> None:
    assert layouts_of(None, None) is None
    assert layouts_of("auto", 1) is None
    with pytest.raises(InputError, match="without model_parallel"):
        layouts_of("auto", None)
    with pytest.raises(InputError, match="model_parallel is 0"):
        layouts_of("auto", 0)
    with pytest.raises(InputError, match="layout_map is 3, of type int"):
        layouts_of(3, 2)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="layout_map is 'rows'"):
        layouts_of("rows", 2)
