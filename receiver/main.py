"""Puts the receiver together and runs it until it is told to stop."""

import asyncio
import logging
import signal
import sqlite3
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from rankpulse.core.settings import BadSettings
from rankpulse.core.signing import BadKey
from rankpulse.receiver import jobs
from rankpulse.receiver.acting import Actuator, Programs
from rankpulse.receiver.clock import Clock, system
from rankpulse.receiver.command import Command
from rankpulse.receiver.desk import Desk, signing_keys
from rankpulse.receiver.journal import BadJournal, Journal
from rankpulse.receiver.kube_api import KubeApi
from rankpulse.receiver.kubernetes import Kubernetes
from rankpulse.receiver.pages import Pages, samples
from rankpulse.receiver.programs import System
from rankpulse.receiver.server import CannotListen, Server
from rankpulse.receiver.settings import ReceiverSettings
from rankpulse.receiver.slurm import Slurm
from rankpulse.receiver.torchrun import Torchrun
from rankpulse.receiver.vitals import Vitals
from rankpulse.receiver.work import Work
from rankpulse.store.api import StoreError
from rankpulse.store.files import problem
from rankpulse.web.tls import Certificates

EXIT_BAD_SETUP: Final = 2
PRUNE_EVERY_S: Final = 86_400.0
DAY_S: Final = 86_400.0
log: Final = logging.getLogger("rankpulse.receiver")


def actuators(settings: ReceiverSettings, programs: Programs) -> Mapping[str, Actuator]:
    """Those that the jobs need."""
    made: Mapping[str, Actuator] = {
        jobs.SLURM: Slurm(settings.slurm, programs),
        jobs.KUBERNETES: Kubernetes(settings.kubernetes, KubeApi(settings.kubernetes)),
        jobs.COMMAND: Command(settings.command, programs),
        jobs.TORCHRUN: Torchrun(settings.torchrun, programs),
    }
    needed = {job.actuator for job in settings.jobs}
    return {name: one for name, one in made.items() if name in needed}


class Receiver:
    """All parts of one receiver."""

    def __init__(
        self, settings: ReceiverSettings, clock: Clock | None = None, acting: Mapping[str, Actuator] | None = None
    ) -> None:
        """Raises `BadJournal`, or `OSError` for what is wrong with the certificate."""
        clock = clock or system()
        self.settings, self.clock, self.vitals = settings, clock, Vitals()
        self.certificates = Certificates(settings.tls.cert_file, settings.tls.key_file, _say)
        self.journal = Journal(settings.state_file)
        made = actuators(settings, System()) if acting is None else acting
        self.work = Work(settings, self.journal, made, clock, self.vitals)
        self.desk = Desk(settings, self.journal, self.work, clock, self.vitals)
        self.server = Server(settings, self.desk, self.vitals)
        self.pages = Pages(self._samples, lambda: self.vitals.trouble)

    async def start(self) -> None:
        """Raises `CannotListen`."""
        self._forget()
        self.desk.take_up()
        await self.server.start(self.certificates.context)
        if self.settings.metrics_listen:
            try:
                await self.pages.start(self.settings.metrics_listen)
            except OSError as error:
                raise CannotListen(
                    f"cannot listen on {self.settings.metrics_listen} (metrics_listen): {error.strerror or error}"
                ) from None
        dry = " DRY RUN: nothing is done." if self.settings.dry_run else ""
        log.info("events are taken at %s/rankpulse.%s", self.server.url, dry)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`."""
        keeping = [asyncio.create_task(self.certificates.keep()), asyncio.create_task(self._prune())]
        try:
            await stop.wait()
        finally:
            for task in keeping:
                task.cancel()
            await asyncio.gather(*keeping, return_exceptions=True)

    async def close(self) -> None:
        """Actions under way are left as they are: the next start takes them up."""
        await self.server.stop()
        await self.pages.stop()
        await self.work.close()
        self.journal.close()

    async def _prune(self) -> None:
        while True:
            await asyncio.sleep(PRUNE_EVERY_S)
            self._forget()

    def _forget(self) -> None:
        """What is older than it is kept. A disk that does not take that may serve all the same."""
        try:
            self.journal.prune(self.clock.utc() - self.settings.limits.keep_days * DAY_S)
        except sqlite3.Error as error:
            log.error("old ids and lines of the audit are kept: %s", error)

    def _samples(self) -> Mapping[str, Mapping[tuple[str, ...], float]]:
        return samples(
            self.vitals,
            version=package_version(),
            dry_run=self.settings.dry_run,
            trouble=self.vitals.trouble,
            waiting=self.work.waiting,
            connections=len(self.server.connections),
        )


def bad_files(settings: ReceiverSettings) -> list[str]:
    """A sentence for each file that the settings name and that cannot serve."""
    tls = (("tls.cert_file", settings.tls.cert_file), ("tls.key_file", settings.tls.key_file))
    wrong = [f"{name}: {why}" for name, path in tls if path and (why := problem(path))]
    if not wrong:
        try:
            Certificates(settings.tls.cert_file, settings.tls.key_file, _say)
        except OSError as error:
            wrong.append(f"tls: the certificate and its key cannot serve: {error}")
    try:
        signing_keys(settings.secret_file)
    except (StoreError, BadKey) as error:
        wrong.append(f"secret_file: {error}")
    if any(job.actuator == jobs.KUBERNETES for job in settings.jobs):
        named = (("token_file", settings.kubernetes.token_file), ("ca_file", settings.kubernetes.ca_file))
        wrong += [f"kubernetes.{name}: {why}" for name, path in named if path and (why := problem(path))]
    return wrong


async def main(settings: ReceiverSettings) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit code: 0 after a clean stop, 2 when it cannot serve."""
    _log_to_stderr()
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        if wrong := bad_files(settings):
            raise BadSettings(wrong)
        receiver = Receiver(settings)
    except (BadSettings, BadJournal) as error:
        return _refuse(str(error))
    try:
        await receiver.start()
        await receiver.run(stop)
    except CannotListen as error:
        return _refuse(str(error))
    finally:
        await receiver.close()
    return 0


def package_version() -> str:
    try:
        return version("rankpulse")
    except PackageNotFoundError:
        return "unknown"


def _say(level: str, text: str) -> None:
    log.log(logging.getLevelNamesMapping()[level.upper()], "%s", text)


def _refuse(text: str) -> int:
    print(f"rankpulse webhook-receiver: {text}", file=sys.stderr)
    return EXIT_BAD_SETUP


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s receiver %(levelname)s %(message)s"))
    for logger in (log, logging.getLogger("rankpulse.store")):
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
