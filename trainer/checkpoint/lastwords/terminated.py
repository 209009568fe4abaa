"""SIGTERM, noticed at once, also while the main thread stands in C code and runs no Python.

The interpreter's own C handler writes the signal's number into a pipe, whatever the main thread does; a thread of ours
reads it. When the last words are over, what would have happened without us happens: the program's own handler runs (in
the main thread, as ever), or the process ends by SIGTERM.
"""

import ctypes
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

_ARRIVED: Final = b"\0"  # SIGTERM, from our handler: no signal has this number


class Terminated:
    """speak: called in the thread, once for a SIGTERM; returns when the last words are over."""

    def __init__(self, speak: Callable[[], None]) -> None:
        self._speak = speak
        self._before: Any = None  # the handler that was there
        self._installed = self._over = self._forks = False
        self._mask: set[signal.Signals | int] | None = None  # of the thread that is forking
        self._pipe = (-1, -1)
        self._wakeup = -1  # the descriptor that was written to before

    def install(self) -> str:
        """In the main thread. Why it could not be done; "" when it is done."""
        if self._installed:
            return ""
        if threading.current_thread() is not threading.main_thread():
            return "the manager was made in another thread than the main one"
        before = signal.getsignal(signal.SIGTERM)
        if before is None:
            return "the program has a handler of its own in C"
        if before == signal.SIG_IGN:
            return "the program ignores it"
        self._before, self._over = before, False
        self._pipe = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self._pipe[0], True)
        threading.Thread(target=self._listen, args=self._pipe, name="rankpulse-sigterm", daemon=True).start()
        self._wakeup = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._arrived)
        self._installed = True
        if not self._forks:
            self._forks = True
            os.register_at_fork(before=self._forking, after_in_parent=self._forked, after_in_child=self._in_child)
        return ""

    def remove(self) -> None:
        """As it was before. In the main thread; elsewhere nothing is changed."""
        if not self._installed or threading.current_thread() is not threading.main_thread():
            return
        self._installed = False
        with suppress(ValueError, OSError):
            if signal.getsignal(signal.SIGTERM) == self._arrived:
                signal.signal(signal.SIGTERM, self._before)
            if (theirs := signal.set_wakeup_fd(self._wakeup)) != self._pipe[1]:
                signal.set_wakeup_fd(theirs)  # somebody else has taken it since, keeps it, and may give ours back
                return
            os.close(self._pipe[1])  # the thread ends

    def _forking(self) -> None:
        """A signal that reached a child before `_in_child` would be written into our pipe: it waits until then."""
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}) if self._installed else None

    def _forked(self) -> None:
        mask, self._mask = self._mask, None
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _in_child(self) -> None:
        """A forked child (a loader's worker) is ended by SIGTERM in the way of its program, and wakes nobody here."""
        if self._installed:
            self.remove()
        self._forked()

    def _arrived(self, number: int, frame: Any) -> None:
        """In the main thread, when that runs Python. The thread has known for long, unless somebody has taken the
        wakeup descriptor since (an event loop does); the second time it is the program's turn."""
        if self._installed and not self._over:
            with suppress(OSError):  # full: it will be read
                os.write(self._pipe[1], _ARRIVED)
        elif callable(self._before):
            self._before(number, frame)
        elif not self._installed:  # by a handler of the program's that calls what was there before it
            signal.signal(number, self._before)
            os.kill(os.getpid(), number)

    def _listen(self, reads: int, writes: int) -> None:
        while True:
            try:
                data = os.read(reads, 512)
            except OSError:
                return
            if not data:
                os.close(reads)
                return
            if self._wakeup >= 0 and (others := data.replace(_ARRIVED, b"")):
                with suppress(OSError):
                    os.write(self._wakeup, others)
            if (signal.SIGTERM in data or _ARRIVED in data) and not self._over:
                self._spoken()

    def _spoken(self) -> None:
        with suppress(Exception):  # a bug of ours must not keep the process from its end
            self._speak()
        self._over = True
        if signal.getsignal(signal.SIGTERM) != (self._arrived if self._installed else self._before):
            return  # the program has a handler since, which has run at once: how to go on is its decision
        if self._before == signal.SIG_DFL:
            _default(signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)


def _default(number: int) -> None:
    """What the kernel does by itself. Python lets only the main thread say so, which may stand in C code."""
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    libc.signal(number, None)
