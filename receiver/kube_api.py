"""Plain HTTPS to an API server of Kubernetes: two verbs, a service account's token, its CA. No client library."""

import asyncio
import json
import os
import ssl
from collections.abc import Mapping
from typing import Any, Final

import aiohttp

from rankpulse.receiver.acting import Answer, Later
from rankpulse.receiver.settings import KubernetesSettings
from rankpulse.store.api import StoreError
from rankpulse.store.secret import read_lines

ANSWER_MAX: Final = 4_194_304
MERGE: Final = "application/merge-patch+json"


class KubeApi:
    """`Api` over the network. The token is read at each request: it is renewed in its file every hour or so."""

    def __init__(self, settings: KubernetesSettings, environ: Mapping[str, str] = os.environ) -> None:
        self._settings, self._base = settings, settings.url.rstrip("/") or _in_cluster(environ)

    async def get(self, path: str) -> Answer:
        return await self._ask("GET", path)

    async def patch(self, path: str, body: Mapping[str, object]) -> Answer:
        return await self._ask("PATCH", path, json.dumps(body).encode(), {"content-type": MERGE})

    async def _ask(
        self, verb: str, path: str, data: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        where = f"{verb} {path}"
        if not self._base:
            raise Later(f"{where}: we run in no cluster; set kubernetes.url")
        try:
            token = "".join(read_lines(self._settings.token_file, "kubernetes.token_file")).strip()
            trust = ssl.create_default_context(cafile=self._settings.ca_file or None)
            sent = {"authorization": f"Bearer {token}", "accept": "application/json", **(headers or {})}
            async with asyncio.timeout(self._settings.timeout_s), aiohttp.ClientSession() as session:
                request = session.request(
                    verb, self._base + path, data=data, headers=sent, ssl=trust, allow_redirects=False
                )
                async with request as response:
                    return Answer(response.status, _tree(await _bounded(response)))
        except TimeoutError:
            raise Later(f"{where}: no answer within {self._settings.timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError, StoreError) as error:
            raise Later(f"{where}: {type(error).__name__}: {str(error)[:200]}") from None


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    kept = bytearray()
    async for chunk in response.content.iter_chunked(65_536):
        kept += chunk
        if len(kept) > ANSWER_MAX:
            raise ValueError("an answer without end")
    return bytes(kept)


def _tree(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("an answer that is no JSON") from None
    return found if isinstance(found, dict) else {}


def _in_cluster(environ: Mapping[str, str]) -> str:
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT_HTTPS", "443")
    return f"https://{f'[{host}]' if ':' in host else host}:{port}" if host else ""
