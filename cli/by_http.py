"""What the commands do, done by a monitor for whoever asked it over HTTP and may act."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from rankpulse.cli import modes, nodes, operate
from rankpulse.cli.failing import Failed
from rankpulse.core.asked_over_http import Ask
from rankpulse.core.keys import BadName
from rankpulse.core.settings import Settings
from rankpulse.monitor.acts import Act, NotDone
from rankpulse.store.api import StoreError


def acting(settings: Settings) -> Act:
    """For `monitor.main`."""

    async def act(ask: Ask, author: str) -> str:
        try:
            return await _DO[ask.do](settings, ask, author)
        except (Failed, StoreError, BadName) as error:
            raise NotDone(str(error)) from error

    return act


async def _arm(settings: Settings, ask: Ask, author: str) -> str:
    armed = ask.do == "arm"
    if ask.run:
        return await modes.arm_run(settings, ask.run, armed=armed, reason=ask.reason, author=author)
    return await modes.arm(settings, armed=armed, reason=ask.reason, author=author)


_DO: Final[Mapping[str, Callable[[Settings, Ask, str], Awaitable[str]]]] = {
    "pause": lambda settings, ask, author: modes.pause(settings, ask.run, ask.reason, author=author),
    "resume": lambda settings, ask, author: modes.resume(settings, ask.run, ask.reason, author=author),
    "restart": lambda settings, ask, author: operate.restart(settings, ask.run, ask.reason, author=author),
    "cordon": lambda settings, ask, author: nodes.cordon(
        settings, ask.node, ask.reason, drain=ask.drain, author=author
    ),
    "uncordon": lambda settings, ask, author: nodes.uncordon(settings, ask.node, ask.reason, author=author),
    "arm": _arm,
    "disarm": _arm,
}
