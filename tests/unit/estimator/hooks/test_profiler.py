"""The hook that records what devices do."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.unit.estimator.hooks.models import dataset, estimator

from stratagem.core.errors import InputError
from stratagem.estimator import (
    ProfilerHook,
)


def test_profiles_of_steps(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "stratagem"):
        hook = ProfilerHook(save_steps=2, output_dir=tmp_path / "profiles")
        estimator(tmp_path / "model").train(dataset, hooks=[hook])
    lines = [line for line in caplog.messages if line.startswith("Saved the profile")]
    assert lines == [f"Saved the profile of step 3 into {tmp_path}/profiles."]
    assert len(list(tmp_path.glob("profiles/plugins/profile/*/*.xplane.pb"))) == 1
    with pytest.raises(InputError, match="either seconds or steps"):
        ProfilerHook()
