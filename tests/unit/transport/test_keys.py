"""Keys of a run: whose key is whose, and what stands in the environment of a task."""

from __future__ import annotations

import pytest
import zmq
from zmq.utils import z85

from stratagem.core import environment
from stratagem.core.errors import ClusterError
from stratagem.transport.keys import Role, keys_of_environment, make_keys

KEYS = make_keys(workers=2)


def test_each_worker_has_its_own_key() -> None:
    assert sorted(KEYS) == ["chief", "ps", "worker 0", "worker 1"]
    assert len({keys.secret for keys in KEYS.values()}) == 4
    for holder, keys in KEYS.items():
        own = z85.decode(zmq.curve_public(keys.secret))
        assert KEYS[Role.PS].holder_of(own) == holder
    assert KEYS[Role.PS].holder_of(z85.decode(zmq.curve_keypair()[0])) is None


def test_keys_come_from_the_environment() -> None:
    text = KEYS["worker 0"].as_text()
    assert keys_of_environment({environment.KEYS: text}) == KEYS["worker 0"]
    assert keys_of_environment({}) is None
    for damaged in ("{", "{}", text.replace('"worker 0", "secret"', '"worker 1", "secret"'), text.replace("ps", "sp")):
        with pytest.raises(ClusterError, match="cannot be used"):
            keys_of_environment({environment.KEYS: damaged})
    secret = KEYS["worker 0"].secret.decode()
    assert secret not in repr(KEYS["worker 0"])
    assert secret not in KEYS[Role.CHIEF].as_text()
