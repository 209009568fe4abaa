"""Disks for the crash explorer: one that kills, one that forgets what was not forced to it, one that fails.

Each is a `Files` through which a history of saves is played; each stands before and after every call.
"""

import errno
import os
import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rankpulse.trainer.checkpoint.files import Files

Tree = dict[str, bytes | None]  # by path below the root: the bytes of a file, None for a directory
SPACE = ("mkdir", "create", "write", "rename", "fsync", "sync_dir")  # calls that a full disk may refuse


class Standing(Files):
    """Calls `at(name)` before each call and again after it. It does not wait for the disk."""

    def at(self, name: str) -> None:
        raise NotImplementedError

    def mkdir(self, path: str) -> None:
        self.at("mkdir")
        super().mkdir(path)
        self.at("mkdir")

    def create(self, path: str) -> int:
        self.at("create")
        fd = super().create(path)
        self.at("create")
        return fd

    def write(self, fd: int, data: memoryview) -> int:
        self.at("write")
        done = super().write(fd, data)
        self.at("write")
        return done

    def fsync(self, fd: int) -> None:
        self.at("fsync")
        self.at("fsync")

    def close(self, fd: int) -> None:
        self.at("close")
        super().close(fd)
        self.at("close")

    def rename(self, old: str, new: str) -> None:
        self.at("rename")
        super().rename(old, new)
        self.at("rename")

    def link(self, old: str, new: str) -> None:
        self.at("link")
        super().link(old, new)
        self.at("link")

    def unlink(self, path: str) -> None:
        self.at("unlink")
        super().unlink(path)
        self.at("unlink")

    def rmdir(self, path: str) -> None:
        self.at("rmdir")
        super().rmdir(path)
        self.at("rmdir")

    def sync_dir(self, path: str) -> None:
        self.at("sync_dir")
        self.at("sync_dir")


class Counting(Standing):
    """What `look()` says at every point."""

    def __init__(self, look: Callable[[], int]) -> None:
        self.look, self.seen, self.names = look, list[int](), list[str]()

    def at(self, name: str) -> None:
        self.seen.append(self.look())
        self.names.append(name)


class Killing(Standing):
    """The process dies at point number `point`, without a word."""

    def __init__(self, point: int) -> None:
        self.left = point

    def at(self, name: str) -> None:
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1


@dataclass(eq=False)
class _File:
    forced: bytes = b""
    now: bytes = b""


@dataclass(eq=False)
class _Dir:
    forced: dict[str, "_File | _Dir"] = field(default_factory=dict)
    now: dict[str, "_File | _Dir"] = field(default_factory=dict)
    # (name that goes, name that comes, what it names), in order; any of them may reach the disk without the others
    pending: list[tuple[str, str, "_File | _Dir"]] = field(default_factory=list)

    def change(self, gone: str, come: str, node: "_File | _Dir") -> None:
        self.pending.append((gone, come, node))
        _changed(self.now, gone, come, node)


def _changed(names: dict[str, "_File | _Dir"], gone: str, come: str, node: "_File | _Dir") -> None:
    names.pop(gone, None)
    if come:
        names[come] = node


@dataclass(frozen=True)
class Loss:
    """What a crash does to what was not forced: whether a change of names survives, and how much of a file."""

    names: Callable[[], bool]
    data: Callable[[bytes, bytes], bytes]  # (forced, now) -> after the crash


def losses(seed: int, mixtures: int) -> Iterator[Loss]:
    """All names or none, with each fate of the data; then mixtures, each change and file with a fate of its own."""
    draw = random.Random(seed)
    fates: list[Callable[[bytes, bytes], bytes]] = [
        lambda forced, now: now,
        lambda forced, now: forced,
        lambda forced, now: forced + b"\0" * (len(now) - len(forced)),
        lambda forced, now: now[: len(forced) + (len(now) - len(forced)) // 2],
    ]
    for survives in (True, False):
        for fate in fates:
            yield Loss(lambda survives=survives: survives, fate)
    for _ in range(mixtures):
        yield Loss(
            lambda: draw.random() < 0.5,
            lambda forced, now: draw.choice(fates)(forced, now),
        )


class Forgetful(Files):
    """A disk that keeps, beside what programs see, what it would hold after a power cut. Calls `after` each call."""

    def __init__(self, root: str, after: Callable[["Forgetful"], None]) -> None:
        self._root, self._after = os.path.abspath(root), after
        self._top = _Dir()
        self._fds: dict[int, _File] = {}

    def left(self, loss: Loss) -> Tree:
        """What the disk holds when the power goes now."""
        tree: Tree = {}
        _collect(self._top, "", loss, tree)
        return tree

    def _at(self, path: str) -> tuple[_Dir, str]:
        parts = Path(os.path.relpath(os.path.abspath(path), self._root)).parts or (".",)
        where = self._top
        for part in parts[:-1]:
            found = where.now[part]
            assert isinstance(found, _Dir)
            where = found
        return where, parts[-1]

    def mkdir(self, path: str) -> None:
        super().mkdir(path)
        where, name = self._at(path)
        where.change("", name, _Dir())
        self._after(self)

    def create(self, path: str) -> int:
        fd = super().create(path)
        where, name = self._at(path)
        self._fds[fd] = _File()
        where.change("", name, self._fds[fd])
        self._after(self)
        return fd

    def write(self, fd: int, data: memoryview) -> int:
        done = super().write(fd, data)
        self._fds[fd].now += bytes(data[:done])
        self._after(self)
        return done

    def fsync(self, fd: int) -> None:
        self._fds[fd].forced = self._fds[fd].now
        self._after(self)

    def close(self, fd: int) -> None:
        super().close(fd)
        self._fds.pop(fd)
        self._after(self)

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        where, gone = self._at(old)
        other, come = self._at(new)
        assert where is other
        where.change(gone, come, where.now[gone])
        self._after(self)

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self._drop(path)

    def rmdir(self, path: str) -> None:
        super().rmdir(path)
        self._drop(path)

    def _drop(self, path: str) -> None:
        where, name = self._at(path)
        where.change(name, "", where.now[name])
        self._after(self)

    def sync_dir(self, path: str) -> None:
        where, name = self._at(path)
        found = self._top if name == "." else where.now[name]
        assert isinstance(found, _Dir)
        found.forced, found.pending = dict(found.now), []
        self._after(self)


def _collect(where: _Dir, path: str, loss: Loss, tree: Tree) -> None:
    names = dict(where.forced)
    for change in where.pending:
        if loss.names():
            _changed(names, *change)
    for name, node in names.items():
        if isinstance(node, _File):
            tree[path + name] = loss.data(node.forced, node.now)
        else:
            tree[path + name] = None
            _collect(node, f"{path}{name}/", loss, tree)


def laid_out(tree: Tree, root: str) -> None:
    """The tree as real files."""
    os.makedirs(root)
    for path, data in sorted(tree.items()):
        whole = os.path.join(root, path)
        if data is None:
            os.mkdir(whole)
        else:
            with open(whole, "xb") as file:
                file.write(data)


def tree_of(root: str) -> Tree:
    """What `laid_out` would lay out so."""
    tree: Tree = {}
    for where, folders, files in os.walk(root):
        below = os.path.relpath(where, root)
        tree.update({os.path.normpath(os.path.join(below, name)): None for name in folders})
        for name in files:
            with open(os.path.join(where, name), "rb") as file:
                tree[os.path.normpath(os.path.join(below, name))] = file.read()
    return tree


class Failing(Standing):
    """Call number `call` fails as `how` says; the others do what they should.

    how: "before" nothing was done; "after" it was done, and the answer is an error; "short" a write that does half;
    "torn" a write that does half and then fails; "full" from this call on the disk takes nothing more.
    """

    def __init__(self, call: int, how: str, code: int) -> None:
        self.call, self.how, self.code = call, how, code
        self.number, self.inside, self.failed = 0, False, False

    def at(self, name: str) -> None:
        self.inside = not self.inside
        number, self.number = self.number, self.number + (not self.inside)
        due = number == self.call or (self.how == "full" and number > self.call and name in SPACE)
        if due and self.inside == (self.how != "after") and self.how != "short":
            self._fail()

    def _fail(self) -> None:
        if self.inside:  # the second look, after the call, does not come
            self.inside, self.number = False, self.number + 1
        self.failed = True
        raise OSError(self.code, os.strerror(self.code))

    def create(self, path: str) -> int:
        fd = -1
        try:
            fd = super().create(path)
        except OSError:
            if self.how == "after" and os.path.exists(path) and self.failed:
                self._close_leaked(path)
            raise
        return fd

    @staticmethod
    def _close_leaked(path: str) -> None:
        for fd in os.listdir("/proc/self/fd"):
            try:
                if os.path.samestat(os.fstat(int(fd)), os.stat(path)):
                    os.close(int(fd))
            except OSError:
                continue

    def write(self, fd: int, data: memoryview) -> int:
        due = self.number == self.call or (self.how == "full" and self.number > self.call)
        half = data[: max(1, len(data) // 2)]
        if due and self.how == "short":
            return super().write(fd, half)
        if due and self.how in ("torn", "full") and len(data) > 1:
            os.write(fd, half)
        return super().write(fd, data)

    def close(self, fd: int) -> None:
        try:
            super().close(fd)
        except OSError:
            try:
                os.close(fd)  # Linux has closed it, whatever it answers
            except OSError as error:
                if error.errno != errno.EBADF:
                    raise
            raise
