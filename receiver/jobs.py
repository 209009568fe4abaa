"""One entry of the allow-list: which runs, and through what they are started again. Names are filled in here. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

SLURM, KUBERNETES, COMMAND, TORCHRUN = "slurm", "kubernetes", "command", "torchrun"
ACTUATORS: Final = (SLURM, KUBERNETES, COMMAND, TORCHRUN)
KINDS: Final = ("JobSet", "TrainJob", "PyTorchJob")
FIELDS: Final = ("*", "cluster", "decision", "round", "run_id", "run_uid")  # "*": what it stands for in `run_id`
_SAFE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")  # nothing that a shell, a path or an option could mean
_ANYTHING: Final = "[A-Za-z0-9._-]*"  # for `*`; labels with other characters are told of, and not acted by
_PATTERN: Final = re.compile(r"[A-Za-z0-9*][A-Za-z0-9._*-]{0,127}")
_PLACE: Final = re.compile(r"\{([^{}]*)\}")
_DNS: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_USER: Final = re.compile(r"[a-z_][a-z0-9_.-]{0,31}")
_FORMS: Final[Mapping[str, tuple[re.Pattern[str], str]]] = {  # of a target whose names are filled in
    SLURM: (re.compile(r"[1-9][0-9]{0,9}(_[0-9]{1,7})?"), "the number of a Slurm job"),
    KUBERNETES: (_DNS, "the name of a Kubernetes object"),
    TORCHRUN: (re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}(@[A-Za-z0-9._-]{1,127})?\.service"), "a systemd service"),
}


class Unsafe(ValueError):
    """A name of an event cannot be filled in; the text says which and why."""


class Job(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Runs whose label matches `run_id` (`*` stands for anything) are started again so."""

    run_id: str
    actuator: str
    target: str = "{run_id}"  # Slurm job, Kubernetes object, or systemd unit
    users: tuple[str, ...] = ()  # slurm: the owners whose jobs may be touched
    namespace: str = ""  # kubernetes
    kind: str = "JobSet"  # kubernetes
    argv: tuple[str, ...] = ()  # command: no shell reads it


def star(job: Job, run_id: str) -> str | None:
    """What `*` stands for where the entry is about this label ("" where it has none); None where it is not."""
    before, _, after = job.run_id.partition("*")
    pattern = re.escape(before) + (f"({_ANYTHING})" if "*" in job.run_id else "()") + re.escape(after)
    found = re.fullmatch(pattern, run_id)
    return found[1] if found else None


def filled(template: str, names: Mapping[str, str]) -> str:
    """The template with names of an event in their places. Raises `Unsafe`: a label is any text of any user."""

    def one(found: re.Match[str]) -> str:
        value = names[found[1]]
        if not _SAFE.fullmatch(value):
            raise Unsafe(f"{found[1]} {value[:60]!r} holds characters that a job's name here may not have")
        return value

    return _PLACE.sub(one, template)


def target(job: Job, names: Mapping[str, str]) -> str:
    """What is to be started again. Raises `Unsafe`."""
    made = filled(job.target, names)
    pattern, what = _FORMS.get(job.actuator, (_SAFE, "a name"))
    if not pattern.fullmatch(made):
        raise Unsafe(f"{made[:80]!r} is not {what}")
    return made


def problems(job: Job) -> Iterator[str]:
    """What is wrong with an entry, each as it goes on after `jobs[n]`."""
    if not _PATTERN.fullmatch(job.run_id) or job.run_id.count("*") > 1:
        yield ".run_id: letters, digits, '.', '_', '-', at most 128, and once '*' for anything"
    if job.actuator not in ACTUATORS:
        yield f".actuator {job.actuator[:20]!r}: choose one of {', '.join(ACTUATORS)}"
    for name, text in (("target", job.target), *(("argv", one) for one in job.argv)):
        yield from _bad_template(name, text)
    yield from _BY_ACTUATOR.get(job.actuator, lambda _job: iter(()))(job)


def _bad_template(name: str, text: str) -> Iterator[str]:
    unknown = [found for found in _PLACE.findall(text) if found not in FIELDS]
    if unknown or "{" in _PLACE.sub("", text) or "}" in _PLACE.sub("", text):
        yield f".{name} {text[:60]!r}: places are {', '.join(f'{{{one}}}' for one in FIELDS)}"


def _of_slurm(job: Job) -> Iterator[str]:
    if not job.users:
        yield ".users: name the owners whose jobs may be touched; a label may name anybody's job"
    if bad := [user[:32] for user in job.users if not _USER.fullmatch(user)]:
        yield f".users {', '.join(bad)}: are no login names"


def _of_kubernetes(job: Job) -> Iterator[str]:
    if not _DNS.fullmatch(job.namespace):
        yield ".namespace: needed, small letters, digits and '-'"
    if job.kind not in KINDS:
        yield f".kind {job.kind[:20]!r}: choose one of {', '.join(KINDS)}"


def _of_command(job: Job) -> Iterator[str]:
    if not job.argv or not job.argv[0].startswith("/") or "{" in job.argv[0]:
        yield ".argv: the absolute path of a program, without places, then its arguments; no shell reads it"
    if any("\0" in one for one in job.argv):
        yield ".argv: holds a zero byte"


def _of_torchrun(job: Job) -> Iterator[str]:
    if not job.target.endswith(".service") or job.target.startswith("{"):
        yield ".target: a unit whose name begins with a text of yours, like train@{run_id}.service"


_BY_ACTUATOR: Final = {
    SLURM: _of_slurm,
    KUBERNETES: _of_kubernetes,
    COMMAND: _of_command,
    TORCHRUN: _of_torchrun,
}
