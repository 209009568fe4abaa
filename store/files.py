"""The files that settings name: said at once and by name when one of them cannot serve."""

import os
import stat
from typing import Final

from rankpulse.core.settings import StoreSettings

_NAMES: Final = ("ca_file", "cert_file", "key_file", "password_file")


def problems(settings: StoreSettings) -> list[str]:
    """A sentence for each file that is missing or cannot be read; what they hold is not looked at."""
    named = [(name, getattr(settings, name)) for name in _NAMES if getattr(settings, name)]
    return [f"store.{name}: {why}" for name, path in named if (why := problem(path))]


def problem(path: str) -> str:
    """Why the file cannot be read, or ""."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return f"{path} does not exist"
    except (OSError, ValueError) as error:
        return f"{path} cannot be read ({getattr(error, 'strerror', None) or error}): check its permissions"
    try:
        return "" if stat.S_ISREG(os.fstat(fd).st_mode) else f"{path} is not a regular file"
    finally:
        os.close(fd)


def mark(path: str) -> tuple[int, ...] | None:
    """Changes whenever the file is written or replaced; None while there is none."""
    try:
        info = os.stat(path)
    except (OSError, ValueError):
        return None
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns
