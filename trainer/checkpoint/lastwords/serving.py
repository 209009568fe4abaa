"""Who wakes last words in this process: the agent's question, SIGTERM, the death of a peer. One manager at a time.

The question comes to torch's worker server (`attach()` opens it), which runs the handler in a C++ thread: it is
answered while the main thread stands in a collective, as long as that has let go of Python's lock.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from rankpulse.trainer import interfaces
from rankpulse.trainer.checkpoint.lastwords.lost import lost_peer
from rankpulse.trainer.checkpoint.lastwords.offering import POLL_S, LastWords
from rankpulse.trainer.checkpoint.lastwords.terminated import Terminated
from rankpulse.trainer.checkpoint.lastwords.words import VERSION, Answer, Question
from rankpulse.trainer.checkpoint.strictjson import Unfit
from rankpulse.trainer.checkpoint.tiers.reach import within

HANDLER: Final = "rankpulse_last_words"
ALONE_S: Final = 2.0  # a survivor waits so long for the agent's question before it acts by itself
GRACE_S: Final = 25.0  # of SIGTERM, where no holder stands above: torchrun kills after 30 s
MARGIN_S: Final = 0.5
SAY_S: Final = 1.0
JSON_TYPE: Final = "application/json"


class _Process:
    """What this process has set up; handlers of torch and of the interpreter stay for good."""

    current: LastWords | None = None
    say: Callable[[str], None] = print
    handler: str = ""  # "ok", or why there is none
    hook: Any = None
    terminated: Terminated | None = None


def serve(last: LastWords, say: Callable[[str], None], environ: Mapping[str, str]) -> None:
    """From now on these are the last words of this process. Called by the main thread; raises nothing."""
    _Process.current, _Process.say = last, say
    if _Process.handler != "ok":
        _Process.handler = interfaces.register_handler(sys.modules.get("torch"), HANDLER, _handle)
    if _Process.handler != "ok":
        say(f"the agent cannot ask for last words: {_Process.handler}")
    if _Process.hook is None:
        _Process.hook, sys.excepthook = sys.excepthook, _excepthook
        os.register_at_fork(after_in_child=_in_child)
    if _Process.terminated is None:
        _Process.terminated = Terminated(lambda: _at_sigterm(environ))
    if trouble := _Process.terminated.install():
        say(f"SIGTERM brings no last words: {trouble}")


def depart(last: LastWords) -> None:
    """Its manager is closed. A program may do that on the way out of an error (`finally`, `with`): then survivors are
    waited for as they are at the end of a process, and find the folder in which they meet. What goes on is not cut."""
    error = sys.exc_info()[1]
    if _Process.current is last and lost_peer(error):
        _linger(last)
    last.finished(last.longest_s)
    cease(last)
    last.close(over=error is None)


def cease(last: LastWords) -> None:
    """These are not, any more."""
    if _Process.current is last:
        _Process.current = None
        if _Process.terminated is not None:
            _Process.terminated.remove()


def grace_s(environ: Mapping[str, str]) -> float:
    """How long SIGTERM leaves. The holder tells its own."""
    try:
        return max(float(environ["RANKPULSE_GRACE_S"]) - MARGIN_S, 0.0)
    except (KeyError, ValueError):
        return GRACE_S


def answered(body: str) -> tuple[int, str]:
    """Status and text for a question. Raises nothing."""
    try:
        question = Question.understood(body.encode())
    except (Unfit, ValueError) as unfit:
        return 400, json.dumps({"v": VERSION, "error": str(unfit)})
    last = _Process.current
    if last is None:
        return 200, Answer("refused", reason="no manager of checkpoints keeps last words ready").encoded()
    try:
        answer = last.answer(question)
    except Exception as error:  # a bug of ours must not take the server's thread with it
        answer = Answer("refused", reason=f"{type(error).__name__}: {error}")
    _tell(answer)
    return 200, answer.encoded()


def _handle(request: Any, response: Any) -> None:
    status, text = answered(str(request.body()))
    with suppress(Exception):
        response.set_status(status)
        response.set_content(text, JSON_TYPE)


def _at_sigterm(environ: Mapping[str, str]) -> None:
    last = _Process.current
    if last is not None and (within_s := grace_s(environ)) > 0:
        _speak(last, within_s)


def _speak(last: LastWords, within_s: float | None = None) -> None:
    """No longer than last words may take: a file server that is gone never lets go of who asks it, and would keep the
    process from its end."""
    try:
        within(last.longest_s, lambda: _tell(last.answer(Question(), within_s)))
    except TimeoutError:
        why = f"no last words: {last.directory} does not answer"
        with suppress(TimeoutError):
            within(SAY_S, lambda: _Process.say(why))


def _in_child() -> None:
    """A forked child holds copies of this state, and speaks for nobody."""
    _Process.current = None


def _excepthook(kind: Any, error: Any, trace: Any) -> None:
    """The error is shown as ever; if a peer is gone, the process stays for as long as last words may take."""
    try:
        _Process.hook(kind, error, trace)
    finally:
        last = _Process.current
        if last is not None and lost_peer(error):
            _linger(last)


def _linger(last: LastWords) -> None:
    """Until the agent has asked and was answered; without it, on its own."""
    with suppress(Exception):
        asked, until = last.asked, time.monotonic() + ALONE_S
        while last.asked == asked and last.idle and time.monotonic() < until:
            time.sleep(POLL_S)
        if last.asked == asked and last.idle:
            _speak(last)
        last.finished(last.longest_s)


def _tell(answer: Answer) -> None:
    without = f", without rank {', '.join(map(str, answer.absent[:8]))}" if answer.absent else ""
    if answer.saved:
        _Process.say(f"last words: step {answer.step} is saved as {answer.path}{without}")
    else:
        _Process.say(f"no last words: {answer.reason}")
