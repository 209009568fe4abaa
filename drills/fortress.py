"""The demo's etcd as production should have it: TLS, client certificates, users, and nothing that lasts.

Made by `rankpulse store init` itself. The monitor proves itself by user and password, for tokens that live five seconds
and that no use prolongs; agents by certificates, which are renewed in their files every few seconds.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rankpulse.core.settings import Settings, StoreSettings
from rankpulse.drills.authority import Authority
from rankpulse.store.embedded import EmbeddedEtcd, ServerTls
from rankpulse.store.roles import ROOT, name_of

TOKEN_S: Final = 5
RENEW_EVERY_S: Final = 7.0


class Fortress:
    """Certificates, passwords and keys in `directory`."""

    def __init__(self, directory: Path, cluster: str, nodes: Sequence[str]) -> None:
        self._folder, self._cluster, self._nodes = directory, cluster, tuple(nodes)
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._authority = Authority(directory, "demo")
        self._passwords = directory / "passwords"
        self.renewed = 0

    def etcd(self) -> EmbeddedEtcd:
        """Not started yet, and open to everybody who has a certificate until `closed`."""
        tls = ServerTls(*self._authority.issue("server"), self._authority.ca_file)
        return EmbeddedEtcd(tls=tls, extra=["--auth-token", self._jwt()])

    async def closed(self, endpoint: str) -> None:
        """`rankpulse store init --enable-auth` for the nodes known so far."""
        await self._init(endpoint, enable_auth=True)

    async def admit(self, node: str, endpoint: str) -> None:
        """The same command once more for a node that comes later: without a user it would be refused."""
        if node not in self._nodes:
            self._nodes = (*self._nodes, node)
            await self._init(endpoint, enable_auth=False)

    async def _init(self, endpoint: str, *, enable_auth: bool) -> None:
        from rankpulse.cli import store_init

        asked = store_init.Asked(self._nodes, None, str(self._passwords), enable_auth, False)
        await store_init.run(Settings(cluster=self._cluster, store=self.root(endpoint)), asked, lambda line: None)

    def root(self, endpoint: str) -> StoreSettings:
        files = self._files(ROOT)
        return StoreSettings(
            endpoints=(endpoint,),
            ca_file=self._authority.ca_file,
            cert_file=files["cert_file"],
            key_file=files["key_file"],
        )

    def of(self, part: str) -> str:
        """Lines of the table [store], for the monitor or the agent of a node."""
        return "".join(f'{name} = "{value}"\n' for name, value in self._said(part).items())

    async def keep_renewing(self) -> None:
        """Until cancelled: every certificate that somebody uses, one after the other."""
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            for part in ("monitor", *self._nodes):
                self._files(self._name(part))
            self.renewed += 1

    def _said(self, part: str) -> dict[str, str]:
        said = {"ca_file": self._authority.ca_file, **self._files(self._name(part))}
        if part == "monitor":
            user = name_of(self._cluster, "monitor")
            said |= {"user": user, "password_file": str(self._passwords / user)}
        return said

    def _name(self, part: str) -> str:
        """The common name. The monitor's certificate is nobody's: its password says who it is."""
        return "nobody" if part == "monitor" else name_of(self._cluster, "agent", part)

    def _files(self, name: str) -> dict[str, str]:
        """A new certificate, put where the old one was in two moves: between them the pair does not fit, as in life."""
        made = dict(zip(("cert_file", "key_file"), self._authority.issue(f"{name}.next", cn=name), strict=True))
        there = {kind: path.replace(".next.", ".") for kind, path in made.items()}
        for kind, path in made.items():
            Path(path).replace(there[kind])
        return there

    def _jwt(self) -> str:
        from cryptography.hazmat.primitives import serialization as form
        from cryptography.hazmat.primitives.asymmetric import rsa

        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        private: Any = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
        public: Any = key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo)
        paths = self._folder / "jwt.pub", self._folder / "jwt.key"
        for path, data in zip(paths, (public, private), strict=True):
            path.write_bytes(data)
        return f"jwt,pub-key={paths[0]},priv-key={paths[1]},sign-method=RS256,ttl={TOKEN_S}s"
