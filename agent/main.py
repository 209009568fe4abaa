"""`rankpulse agent`: settings to exit code."""

import asyncio
import signal
import socket
import sys

from rankpulse.agent.agent import EXIT_BAD, Agent
from rankpulse.agent.log import to_stderr
from rankpulse.core.keys import BadName
from rankpulse.core.settings import Settings
from rankpulse.store.api import StoreError
from rankpulse.store.etcd import open_store


async def main(settings: Settings, *, stop: asyncio.Event | None = None) -> int:
    """Run the agent of this node until SIGTERM, SIGINT or `stop`; with `stop` given, signals are the caller's.

    Returns 0 after a clean stop, 2 when it cannot serve with these settings, 3 when another agent has its name.
    """
    log = to_stderr(settings.agent.node or socket.gethostname())
    try:
        store = await open_store(settings.store)
    except StoreError as error:
        return _refuse(str(error))
    try:
        if stop is None:
            stop = asyncio.Event()
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, stop.set)
        return await Agent(settings, store, stop=stop, log=log).run()
    except BadName as error:
        return _refuse(f"{error}; set agent.node (--node)")
    finally:
        await store.close()


def _refuse(text: str) -> int:
    print(f"rankpulse agent: {text}", file=sys.stderr)
    return EXIT_BAD
