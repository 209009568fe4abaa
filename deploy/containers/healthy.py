"""Exit code 0: the part that these settings start answers `/healthz`. For HEALTHCHECK; Kubernetes asks by itself."""

import http.client
import ssl
import sys
import tomllib
from pathlib import Path

CONFIG = "/etc/rankpulse/rankpulse.toml"
PORTS = {"agent": 9465, "monitor": 9460}
ANYWHERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def door(part: str, text: str) -> http.client.HTTPConnection | None:
    """Where that part answers by these settings. None where it is told to listen nowhere.

    Its certificate is not looked at: nothing is told to it, and nothing but its health is believed.
    """
    settings = tomllib.loads(text)
    listen = settings.get(part, {}).get("listen", f"127.0.0.1:{PORTS[part]}")
    if not listen:
        return None
    host, _, port = listen.rpartition(":")
    host = ANYWHERE.get(host.strip("[]"), host.strip("[]"))
    if settings.get("http", {}).get("cert_file"):
        anybody = ssl.create_default_context()
        anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection(host, int(port), timeout=4, context=anybody)
    return http.client.HTTPConnection(host, int(port), timeout=4)


def main(part: str, config: str) -> int:
    try:
        text = Path(config).read_text(encoding="utf-8")
    except FileNotFoundError:
        text = ""
    connection = door(part, text)
    if connection is None:
        return 0
    try:
        connection.request("GET", "/healthz")
        return 0 if connection.getresponse().status == 200 else 1
    except (http.client.HTTPException, OSError) as error:
        print(f"{connection.host} port {connection.port}: {error}", file=sys.stderr)
        return 1
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else CONFIG))
