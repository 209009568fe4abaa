"""An etcd as it should be run: TLS, client certificates, and only whom it knows; made by `rankpulse store init`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from certs import Authority

from rankpulse.cli import store_init
from rankpulse.core.settings import Settings, StoreSettings
from rankpulse.store.embedded import EmbeddedEtcd
from rankpulse.store.etcd import EtcdStore
from rankpulse.store.roles import name_of

CLUSTER, NODES = "prod", ("gpu07", "gpu08")


@dataclass(frozen=True)
class Fort:
    """The etcd, and the certificates of everybody."""

    etcd: EmbeddedEtcd
    authority: Authority

    def settings(self, user: str) -> StoreSettings:
        """Of whoever has the certificate with this common name."""
        cert_file, key_file = self.authority.issue(user)
        return StoreSettings(
            endpoints=(self.etcd.endpoint,),
            ca_file=self.authority.ca_file,
            cert_file=cert_file,
            key_file=key_file,
            timeout_s=5.0,
        )

    def part(self, part: str, node: str = "") -> StoreSettings:
        return self.settings(name_of(CLUSTER, part, node))

    @asynccontextmanager
    async def opened(self, settings: StoreSettings) -> AsyncIterator[EtcdStore]:
        store = EtcdStore(settings, progress_s=0.3)
        try:
            yield store
        finally:
            await store.close()


def init(store: StoreSettings, *nodes: str, **asked: Any) -> list[str]:
    """What `rankpulse store init` says."""
    said: list[str] = []
    form = {"nodes_file": None, "password_dir": None, "enable_auth": False, "dry_run": False, **asked}
    asyncio.run(store_init.run(Settings(cluster=CLUSTER, store=store), store_init.Asked(nodes, **form), said.append))
    return said
