"""The etcd of this folder's tests, and the way to what they share."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from certs import Authority
from fort import NODES, Fort, init

from rankpulse.store.embedded import EmbeddedEtcd, ServerTls


@pytest.fixture(scope="session")
def fort(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fort]:
    authority = Authority(tmp_path_factory.mktemp("fort"), "fort")
    with EmbeddedEtcd(tls=ServerTls(*authority.issue("server"), authority.ca_file)) as etcd:
        made = Fort(etcd, authority)
        init(made.settings("root"), *NODES, enable_auth=True)
        yield made
