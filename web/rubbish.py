"""The log of our HTTP servers, without what is no HTTP."""

import logging
from typing import Any, Final

from aiohttp.http_exceptions import HttpProcessingError

log: Final = logging.getLogger("rankpulse.http")


class NoRubbish(logging.Filter):
    """What is no HTTP is answered with 400, and not logged: anybody could fill the log, and it shows lines of the
    request, tokens among them."""

    def filter(self, record: logging.LogRecord) -> bool:
        error: Any = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, HttpProcessingError)


log.addFilter(NoRubbish())
