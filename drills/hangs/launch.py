"""torchrun, but for one thing: its workers are forked from it, so that none of them imports torch anew.

A round starts within a second instead of five, and a dozen faults can be played one after the other. Everything else is
torchrun's own: its arguments, rendezvous, monitoring and restarts. A worker ends as a program of its own would.
"""

import atexit
import logging
import os
import signal
import sys
from typing import NoReturn

from torch.distributed.launcher.api import elastic_launch
from torch.distributed.run import config_from_args, parse_args

from rankpulse.drills.hangs import train


def main() -> None:
    args = parse_args(["--module", *sys.argv[1:]])
    config, _, _ = config_from_args(args)
    config.start_method = "fork"
    # it prints the traceback of its own waiting, for which torch's formatter imports torch._dynamo: five seconds
    logging.getLogger("torch.distributed.elastic.multiprocessing.api").setLevel(logging.CRITICAL)
    elastic_launch(config=config, entrypoint=worker)(*args.training_script_args)


def worker(*argv: str) -> NoReturn:
    """A rank, from the fork to the end of its process."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)  # those of torchrun are not the program's
    atexit._clear()  # nor what it does at its end
    code = 0
    try:
        train.main(argv)
    except BaseException as error:
        sys.last_value, code = error, 1
        sys.excepthook(type(error), error, error.__traceback__)
    atexit._run_exitfuncs()
    os._exit(code)


if __name__ == "__main__":
    main()
