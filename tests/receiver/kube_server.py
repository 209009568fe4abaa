"""A stand-in for an API server of Kubernetes: real HTTPS, and every request held against what the real one demands."""

import json
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from certs import Authority
from receiver_world import KubeWorld

TOKEN = "service-account-token"
PATHS = re.compile(
    r"/api/v1/nodes/[a-z0-9-]+|/apis/(jobset\.x-k8s\.io/v1alpha2/namespaces/train/jobsets"
    r"|trainer\.kubeflow\.org/v1alpha1/namespaces/train/trainjobs"
    r"|kubeflow\.org/v1/namespaces/train/pytorchjobs)/[a-z0-9-]+"
)


class KubeServer:
    """`asked`: (verb, API group, resource) of every request, as RBAC names them."""

    def __init__(self, world: KubeWorld, authority: Authority, folder: Path) -> None:
        self.world, self.asked, self.status = world, set[tuple[str, str, str]](), 0
        self.ca_file, self.token_file = authority.ca_file, str(folder / "token")
        Path(self.token_file).write_text(TOKEN)
        Path(self.token_file).chmod(0o600)
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(*authority.issue("api"))
        self.url = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["KubeServer"]:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self._take)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._tls).start()
            self.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
            yield self
        finally:
            await runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        if self.status:
            return _answer(self.status, {"kind": "Status", "message": "no"})
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return _answer(401, {"kind": "Status", "message": "Unauthorized"})
        assert PATHS.fullmatch(request.path), request.path
        assert not request.query_string
        parts = request.path.split("/")
        group, resource = ("", "nodes") if parts[1] == "api" else (parts[2], parts[-2])
        self.asked.add((request.method.lower(), group, resource))
        if request.method == "GET":
            found = await self.world.get(request.path)
        else:
            assert request.method == "PATCH"
            if request.headers["content-type"] != "application/merge-patch+json":
                return _answer(415, {"message": "unsupported media type"})
            body: dict[str, Any] = await request.json()
            assert set(body) <= {"metadata", "spec"}
            assert set(body["metadata"]) <= {"resourceVersion", "annotations"}
            found = await self.world.patch(request.path, body)
        return _answer(found.status, found.tree)


def _answer(status: int, tree: Any) -> web.Response:
    return web.Response(status=status, body=json.dumps(tree).encode(), content_type="application/json")
