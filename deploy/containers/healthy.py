"""Exit code 0: the part that these settings start answers `/healthz`. For HEALTHCHECK; Kubernetes asks by itself."""

import http.client
import sys
import tomllib
from pathlib import Path

CONFIG = "/etc/rankpulse/rankpulse.toml"
PORTS = {"agent": 9465, "monitor": 9460}
ANYWHERE = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def where(part: str, text: str) -> tuple[str, int] | None:
    """Where that part answers by these settings. None where it is told to listen nowhere."""
    listen = tomllib.loads(text).get(part, {}).get("listen", f"127.0.0.1:{PORTS[part]}")
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    return (ANYWHERE.get(host, host), int(port)) if listen else None


def main(part: str, config: str) -> int:
    try:
        text = Path(config).read_text(encoding="utf-8")
    except FileNotFoundError:
        text = ""
    place = where(part, text)
    if place is None:
        return 0
    connection = http.client.HTTPConnection(*place, timeout=4)
    try:
        connection.request("GET", "/healthz")
        return 0 if connection.getresponse().status == 200 else 1
    except (http.client.HTTPException, OSError) as error:
        print(f"{place[0]} port {place[1]}: {error}", file=sys.stderr)
        return 1
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else CONFIG))
