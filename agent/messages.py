"""What a torchrun or a holder may say on the agent's socket: untrusted, parsed once, totally, with limits."""

from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from rankpulse.agent.sock import Garbage

_Name = Annotated[str, Meta(max_length=128)]
_Label = Annotated[str, Meta(min_length=1, max_length=256)]
_Address = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9._:%\[\]-]{1,255}\Z")]
_Count = Annotated[int, Meta(ge=1, le=100_000)]
_Number = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Seconds = Annotated[float, Meta(ge=0, le=1e9)]
_Words = Annotated[str, Meta(max_length=2048)]
_Reason = Annotated[str, Meta(max_length=4096)]


class Join(msgspec.Struct, frozen=True):
    """It asks for its next round. `join`: for the how-manieth time; `address`, `port`: of the store it opened."""

    label: _Label
    min_nodes: _Count
    max_nodes: _Count
    join: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    address: _Address
    port: Annotated[int, Meta(ge=1, le=65535)]
    run_uid: _Name = ""
    after: _Number = 0
    last_call_s: _Seconds = 30.0
    timeout_s: _Seconds = 600.0


class Watch(msgspec.Struct, frozen=True):
    """It is in this round."""

    run_uid: Annotated[str, Meta(min_length=1, max_length=128)]
    round: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    join: Annotated[int, Meta(ge=1, le=2**31 - 1)]


class Restarting(msgspec.Struct, frozen=True):
    """It is about to stop the workers of this round."""

    round: _Number


class Leave(msgspec.Struct, frozen=True):
    """It takes no part any more."""

    outcome: Literal["finished", "failed", "gone"]
    reason: _Words = ""


class Hold(msgspec.Struct, frozen=True):
    """A holder's first line. `rank` of `world` ranks, `local_rank`: its trainer's, where it was given one."""

    pid: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    rank: Annotated[int, Meta(ge=-1, le=2**31 - 1)] = -1
    local_rank: Annotated[int, Meta(ge=-1, le=2**31 - 1)] = -1
    world: _Number = 0


class Ended(msgspec.Struct, frozen=True):
    """Its trainer ended so."""

    code: Annotated[int, Meta(ge=0, le=255)] | None = None
    signal: Annotated[int, Meta(ge=1, le=128)] | None = None


_Step = Annotated[int, Meta(ge=0, le=2**53)]
_AnyStep = Annotated[int, Meta(ge=-1, le=2**53)]
_Bytes = Annotated[int, Meta(ge=0, le=2**53)]
_Name32 = Annotated[str, Meta(pattern=r"\A[a-z_]{0,32}\Z")]


class Saved(msgspec.Struct, frozen=True, tag_field="event", tag="saved"):
    """A checkpoint stands. `verified`: it was read back. `oldest`: the earliest step that is kept, -1: not known.
    `local`: it lies on the disks of the nodes; `uploaded` will tell when it lies elsewhere, too."""

    step: _Step
    bytes: _Bytes = 0
    shards: _Number = 0
    kind: _Name32 = ""
    save_s: _Seconds = 0.0
    verified: bool = False
    verify_s: _Seconds = 0.0
    oldest: _AnyStep = -1
    local: bool = False


class SaveFailed(msgspec.Struct, frozen=True, tag_field="event", tag="save_failed"):
    """A save did not become a checkpoint. Step -1: not known."""

    step: _AnyStep
    reason: _Reason = ""


class Loaded(msgspec.Struct, frozen=True, tag_field="event", tag="loaded"):
    """The job goes on from it. `skipped`: newer ones that it did not take; `resharded_from`: ranks that had saved it,
    0: as many as load it."""

    step: _Step
    bytes: _Bytes = 0
    load_s: _Seconds = 0.0
    verify_s: _Seconds = 0.0
    level: _Name32 = ""
    skipped: _Number = 0
    resharded_from: _Number = 0


class CheckpointRefused(msgspec.Struct, frozen=True, tag_field="event", tag="refused"):
    """A checkpoint that was not loaded. Step -1: not known."""

    step: _AnyStep
    reason: _Reason = ""


class Uploaded(msgspec.Struct, frozen=True, tag_field="event", tag="uploaded"):
    """A checkpoint is complete at a place that outlives the nodes: a shared directory behind their disks, a durable
    target."""

    step: _Step
    upload_s: _Seconds = 0.0
    place: _Reason = ""


class UploadFailed(msgspec.Struct, frozen=True, tag_field="event", tag="upload_failed"):
    """A node's part of a checkpoint did not get there, or to its peers. Step -1: not known."""

    step: _AnyStep
    reason: _Reason = ""


class LastWords(msgspec.Struct, frozen=True, tag_field="event", tag="last_words"):
    """Its ranks can save within so long when others are gone; 0: they cannot any more."""

    within_s: _Seconds


CheckpointNews: TypeAlias = Saved | SaveFailed | Loaded | CheckpointRefused | Uploaded | UploadFailed | LastWords
T = TypeVar("T", bound=msgspec.Struct)


def understand(kind: type[T], said: Any) -> T:
    """`said` as a `kind`. Raises `Garbage` with what is wrong."""
    try:
        message = msgspec.convert(said, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise Garbage(f"{kind.__name__.lower()}: {error}") from None
    if isinstance(message, Join) and message.min_nodes > message.max_nodes:
        raise Garbage(f"join: min_nodes {message.min_nodes} is more than max_nodes {message.max_nodes}")
    return message


def news(said: Any) -> CheckpointNews:
    """What a job says of a checkpoint. Raises `Garbage` with what is wrong."""
    try:
        return msgspec.convert(said, CheckpointNews)  # type: ignore[no-any-return]
    except (msgspec.ValidationError, RecursionError) as error:
        raise Garbage(f"checkpoint: {error}") from None


def only(message: dict[str, Any], *known: str) -> tuple[str, Any]:
    """The one thing a message says. Raises `Garbage`."""
    for name, value in message.items():
        if name in known:
            return name, value
    raise Garbage(f"unknown message: say one of {', '.join(known)}")
