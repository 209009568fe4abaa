"""Fixtures for all rooms: one real etcd per test run, and a cluster name of its own for each test."""

import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# tests are no package; this is what makes `from support import ...` work from every folder
sys.path.insert(0, str(Path(__file__).parent))

# a shell has what it starts in the background ignore SIGINT, and so would every program that a test starts
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# a shared machine is slow at times; that says nothing about the code
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")


@pytest.fixture(scope="session")
def etcd() -> Iterator[str]:
    """`host:port` of an etcd that all tests share. It stays up: a test that breaks etcd starts its own."""
    from rankpulse.store.embedded import EmbeddedEtcd

    with EmbeddedEtcd() as server:
        yield server.endpoint


@pytest.fixture
def cluster() -> str:
    """A cluster name that no other test uses."""
    return f"t{uuid.uuid4().hex[:12]}"
