"""How a run ends: what its last round's exits say, and, in our rendezvous, how it was closed. Pure functions.

A run that failed has an incident: where no exit explains it, the closing itself opens one.
"""

import re

from rankpulse.core import diagnosis as d
from rankpulse.core.deaths import is_judged
from rankpulse.core.diagnosis import Diagnosis, Ending
from rankpulse.core.exits import Kind
from rankpulse.core.settings import DetectSettings
from rankpulse.core.views import RunView

_EXIT_CODE = re.compile(r"rank \d+ ended with exit code (-?\d{1,3})$")  # as our own torchruns say it
_STOP_CODES = (-1, -2, -3, -15, 129, 130, 131, 143)  # of workers that were asked to end
CLOSED_S = 2.0  # what explains a closing may be on its way for so long
LINGER_S = 10.0  # and workers of a closed run may still be about to end


def plain(run: RunView, now: float, detect: DetectSettings) -> Ending | None:
    """Nobody is left to go on: the launchers are gone, or, without torchelastic, every worker is."""
    round_ = run.current
    if not round_.exits or round_.alive():
        return None
    last = max(exit_.received_at for exit_ in round_.exits.values())
    if run.launchers_gone() or (run.elastic and not run.launchers and now - last > detect.stop_settle_s):
        text = "workers failed and torchelastic ended: its restarts are used up, or it was ended too"
        return Ending(d.FAILED, text)
    waited = now - round_.began_at > detect.stop_settle_s
    if not run.elastic and (round_.complete() or waited):
        return Ending(d.FAILED, "every worker has ended, and nothing starts them again by itself")
    return None


def joint(
    run: RunView, found: Ending | None, told: bool, now: float, detect: DetectSettings
) -> Ending | Diagnosis | None:
    """How a run of our rendezvous ended, or an incident that is missing yet. It goes on until it is closed.

    `found`: what the exits of its last round say by themselves. `told`: an incident tells of its failure.
    """
    closing = _closing(run, now, detect)
    if closing is None:
        return None
    outcome, reason, since = closing
    if found is not None and found.outcome == d.STOPPED_BY_USER and not _of_a_failure(run, outcome, reason):
        return found
    if outcome == d.FINISHED or (found is not None and found.outcome == d.FINISHED):
        return Ending(d.FINISHED, reason)
    waited_s = now - since
    settled = waited_s >= LINGER_S or (waited_s >= CLOSED_S and not run.current.alive())
    if not settled or not (is_judged(run, run.current, told) or waited_s >= LINGER_S):
        return None
    if told:
        return Ending(d.FAILED, reason)
    if outcome == d.FAILED:
        return _unexplained(run, reason, since)
    return Ending(d.ABANDONED, reason)


def _of_a_failure(run: RunView, outcome: str, reason: str) -> bool:
    """The workers were asked to end by torchelastic alone, because one that nobody watched had failed.

    Whoever stops a job sends torchrun a signal, which then names no rank's exit code of its own.
    """
    named = _EXIT_CODE.search(reason)
    if outcome != d.FAILED or named is None or int(named[1]) in _STOP_CODES:
        return False
    return all(exit_.terminated for exit_ in run.current.exits.values() if exit_.kind is Kind.STOPPED)


def _closing(run: RunView, now: float, detect: DetectSettings) -> tuple[str, str, float] | None:
    """(outcome, reason, since) when no round follows any more.

    The agents close it. Where the last of them was not there to do so, the run is over once nothing of it is left.
    """
    joint = run.joint
    if joint is None:
        return None
    if joint.closed_at is not None and joint.launch is not None:
        return joint.launch.outcome or d.FAILED, joint.launch.closed, joint.closed_at
    since = joint.gone_at if joint.gone_at is not None else joint.empty_at
    if since is None or run.current.alive() or now - since < detect.stop_settle_s:
        return None
    if joint.gone_at is not None:
        return d.ABANDONED, "its rendezvous is not in the store any more", since
    return d.ABANDONED, "everybody who took part has left", since


def _unexplained(run: RunView, reason: str, since: float) -> Diagnosis:
    round_ = run.current
    return Diagnosis(
        d.UNKNOWN,
        (),
        tuple(sorted(round_.members)),
        round_.nodes()[: d.NAMED_MAX],
        0.3,
        f"the run failed, and no worker was seen to: {reason}",
        (f"its rendezvous was closed: {reason}", "no exit of a watched worker explains it"),
        (),
        since,
    )
