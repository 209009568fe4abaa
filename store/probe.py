"""Why a connection did not come about. gRPC's own words are vague; one plain look at the port says what is wrong."""

import asyncio
import socket
import ssl
from typing import Final

from rankpulse.core.addresses import Endpoint
from rankpulse.store.api import Denied, StoreError, Unreachable
from rankpulse.store.channel import Certificates

# What an HTTP/2 client says first: the preface and an empty SETTINGS frame. A gRPC server answers with SETTINGS.
_HELLO: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS: Final = 4
_TLS_ALERT: Final = 21


async def explain(endpoint: Endpoint, certificates: Certificates, timeout_s: float) -> StoreError:
    """Look at the port and say why it is no use: `Denied` for certificates, else `Unreachable`."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _look(endpoint, certificates)
    except TimeoutError:
        return Unreachable(f"{endpoint} does not answer: check the address, the firewall and that etcd runs")
    except StoreError as error:
        return error


async def _look(endpoint: Endpoint, certificates: Certificates) -> StoreError:
    context = certificates.context() if endpoint.tls else None
    try:
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context)
    except ssl.SSLCertVerificationError as error:
        return _untrusted(endpoint, error)
    except (ssl.SSLError, ConnectionResetError, EOFError) as error:
        return _no_tls(endpoint, error)
    except socket.gaierror as error:
        return Unreachable(f"the name {endpoint.host} cannot be resolved ({error.strerror}): check store.endpoints")
    except OSError as error:
        return _closed(endpoint, error)
    try:
        writer.write(_HELLO)
        answer = await reader.read(4096)
    except ssl.SSLError as error:
        return _refused_us(endpoint, error)
    except OSError:
        answer = b""
    finally:
        writer.transport.abort()
    if not answer and not endpoint.tls and await _speaks_tls(endpoint):
        answer = bytes([_TLS_ALERT])
    return _judge(endpoint, answer)


async def _speaks_tls(endpoint: Endpoint) -> bool:
    """Only whether: nothing is sent over it, so its certificate does not matter."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        _, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context)
    except OSError:
        return False
    writer.transport.abort()
    return True


def _closed(endpoint: Endpoint, error: OSError) -> StoreError:
    if isinstance(error, ConnectionRefusedError) or "Connect call failed" in str(error):
        return Unreachable(f"nothing listens at {endpoint}: start etcd, or correct store.endpoints")
    return Unreachable(f"{endpoint} cannot be reached ({error.strerror or error}): check store.endpoints")


def _untrusted(endpoint: Endpoint, error: ssl.SSLCertVerificationError) -> StoreError:
    what = error.verify_message.rstrip(".")
    if "expired" in what or "not yet valid" in what:
        return Denied(f"the certificate of {endpoint} is not valid now ({what}): renew it, or set this machine's clock")
    if "match" in what or "mismatch" in what:
        return Denied(f"the certificate of {endpoint} is for another name ({what}): use a name it was issued for")
    return Denied(
        f"the certificate of {endpoint} is not trusted ({what}): store.ca_file must hold the CA that signed it"
    )


def _no_tls(endpoint: Endpoint, error: Exception) -> StoreError:
    reason = getattr(error, "reason", None) or ""
    if "ALERT" in reason:
        return _refused_us(endpoint, error)
    plain = str(endpoint).replace("https://", "http://")
    if not reason:  # no word of TLS came back
        said = f"{endpoint} ended the TLS handshake: the path to it is cut, or it does not speak TLS"
        return Unreachable(f"{said} (then use {plain} without store.ca_file)")
    return Unreachable(f"{endpoint} does not speak TLS: use {plain} without store.ca_file, or enable TLS in etcd")


def _refused_us(endpoint: Endpoint, error: Exception) -> StoreError:
    reason = str(getattr(error, "reason", None) or error).lower().replace("_", " ")
    return Denied(f"{endpoint} refused our certificate ({reason}): store.cert_file must be signed by the CA it trusts")


def _judge(endpoint: Endpoint, answer: bytes) -> StoreError:
    if len(answer) > 3 and answer[3] == _SETTINGS and not answer.startswith(b"HTTP"):
        return Unreachable(f"{endpoint} broke the connection but answers again now: try again")
    if b"HTTPS" in answer or (answer[:1] == bytes([_TLS_ALERT]) and not endpoint.tls):
        secure = str(endpoint).replace("http://", "https://")
        return Unreachable(f"{endpoint} speaks TLS: use {secure} and set store.ca_file")
    if answer.startswith(b"HTTP/") or b"<html" in answer.lower():  # without a status line: it does not know HTTP/2
        return Unreachable(f"at {endpoint} listens a web server, not etcd's client port (usually 2379)")
    if not answer and not endpoint.tls:
        return Unreachable(f"{endpoint} hangs up on us: check that it is etcd's client port (usually 2379)")
    if not answer:
        return Unreachable(f"{endpoint} hangs up on us: if etcd wants a client certificate, set store.cert_file")
    return Unreachable(f"at {endpoint} listens something that is not etcd: correct store.endpoints")
