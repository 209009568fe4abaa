"""Which GPUs this machine has, without asking the driver: by names in directories, which no sick GPU holds up."""

import contextlib
import os
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from rankpulse.core.gpu_reading import bus_id

_DEVICE: Final = re.compile(r"nvidia\d+")


def there(dev: str = "/dev") -> bool:
    """Whether any GPU can be opened here."""
    with contextlib.suppress(OSError):
        return any(_DEVICE.fullmatch(name) for name in os.listdir(dev))
    return False


def listed(root: str = "/proc/driver/nvidia/gpus") -> list[str] | None:
    """Their places on the bus, as the driver lists them. None: it does not; then NVML has to be asked."""
    try:
        found = [bus for name in sorted(os.listdir(root)) if (bus := bus_id(name))]
    except OSError:
        return None
    return found or None


class Devices(NamedTuple):
    """How GPUs are looked for; tests hand in their own. `listed` may answer None: NVML has to be asked."""

    there: Callable[[], bool] = there
    listed: Callable[[], list[str] | None] = listed
