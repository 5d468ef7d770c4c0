"""Learning rates as functions of the step, against the formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorboardX  # noqa: F401 - sets an environment variable, once; no test should be blamed for it

from stratagem.core.errors import InputError
from stratagem.estimator import (
    decays,
)


def test_decays_are_those_of_the_formulas() -> None:
    for step in (0, 3, 10, 17):
        part = min(step, 10) / 10
        expected = {
            "exponential": (decays.exponential_decay(0.1, step, 10, 0.5), 0.1 * 0.5 ** (step / 10)),
            "natural": (decays.natural_exp_decay(0.1, step, 10, 0.5), 0.1 * math.exp(-0.5 * step / 10)),
            "inverse": (decays.inverse_time_decay(0.1, step, 10, 0.5, True), 0.1 / (1 + 0.5 * (step // 10))),
            "polynomial": (decays.polynomial_decay(0.1, step, 10, 0.02, 2.0), 0.08 * (1 - part) ** 2 + 0.02),
            "cycle": (
                decays.polynomial_decay(0.1, step, 10, 0.02, cycle=True),
                0.08 * (1 - step / (10 * max(1, math.ceil(step / 10)))) + 0.02,
            ),
            "piecewise": (
                decays.piecewise_constant(step, [3, 10], [1.0, 0.5, 0.1]),
                {0: 1, 3: 1, 10: 0.5, 17: 0.1}[step],
            ),
            "cosine": (decays.cosine_decay(0.1, step, 10, 0.2), 0.1 * (0.4 * (1 + math.cos(math.pi * part)) + 0.2)),
            "restarts": (
                decays.cosine_decay_restarts(0.1, step, 4, t_mul=1.0),
                0.05 * (1 + math.cos(math.pi * (step % 4) / 4)),
            ),
            "linear cosine": (
                decays.linear_cosine_decay(0.1, step, 10),
                0.1 * ((1 - part) * 0.5 * (1 + math.cos(math.pi * part)) + 0.001),
            ),
        }
        for name, (found, wanted) in expected.items():
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7, err_msg=f"{name} at {step}")
    grown = decays.cosine_decay_restarts(0.1, 17, 4, t_mul=2.0, m_mul=0.5)  # 4 + 8, then 5 of 16 steps
    np.testing.assert_allclose(grown, 0.1 * 0.25 * 0.5 * (1 + math.cos(math.pi * 5 / 16)), rtol=1e-5)
    with pytest.raises(InputError, match="2 boundaries and 2 values"):
        decays.piecewise_constant(1, [1, 2], [0.1, 0.2])
