"""Names of devices in parts, as TensorFlow 2.21 reads and writes them."""

from __future__ import annotations

import jax
import pytest

import stratagem.tf as tf
from stratagem.errors import InputError

read = tf.DeviceSpec.from_string


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("/job:worker/replica:1/task:2/gpu:3", "/job:worker/replica:1/task:2/device:GPU:3"),
        ("/device:gpu:1", "/device:GPU:1"),
        ("cpu:1", "/device:CPU:1"),
        ("/job:x/cpu", "/job:x/device:CPU:*"),
        ("/device:FOO:1", "/device:FOO:1"),
        ("/job:w/task:1/job:v", "/job:v/task:1"),
        ("", ""),
    ],
)
def test_a_name_is_read_and_written(given: str, written: str) -> None:
    assert read(given).to_string() == written
    assert tf.DeviceSpec().parse_from_string(given) == read(given)


def test_parts() -> None:
    spec = tf.DeviceSpec(job="a", task="3", device_type="CPU", device_index="2")
    assert (spec.job, spec.replica, spec.task, spec.device_type, spec.device_index) == ("a", None, 3, "CPU", 2)
    assert repr(spec) == "<DeviceSpec(job=a, replica=None, task=3, device_type=CPU, device_index=2)>"
    assert {spec: 1}[read("/job:a/task:3/cpu:2")] == 1
    assert spec != "/job:a/task:3/device:CPU:2"
    with pytest.raises(AttributeError):
        spec.job = "b"


def test_parts_are_merged_and_replaced() -> None:
    assert read("/job:ps/task:1").make_merged_spec(read("/task:2/device:GPU:*")).to_string() == (
        "/job:ps/task:2/device:GPU:*"
    )
    assert read("/job:ps/cpu:0").replace(job="x", device_index=None).to_string() == "/job:x/device:CPU:*"


def test_a_device_of_a_tensor() -> None:
    assert read(jax.devices()[-1]).to_string() == f"/device:CPU:{jax.devices()[-1].id}"
    assert read(tf.constant(1).device).device_type == "CPU"


@pytest.mark.parametrize("wrong", ["/foo:1", "/gpu:1:2:3", "/device:GPU", "/job:a:b", "/cpu:0/gpu:0", "/task:x", 3])
def test_what_is_no_name(wrong: str) -> None:
    with pytest.raises(InputError, match="device"):
        read(wrong)
