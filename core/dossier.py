"""What one node says when it is asked what its ranks are doing: the reduced evidence, as it goes over the wire. Pure.

The agent reduces each rank to `RANK_MAX` bytes; what does not fit stays on the node's disk as a dump that can be
fetched. What was left out is told, so that a gap is never read as silence.
"""

from typing import Final, TypeVar

import msgspec

from rankpulse.core.codec import Refused
from rankpulse.core.snapshot import Group, Rank
from rankpulse.core.snapshot_nodes import Device, Node
from rankpulse.core.words import printable

RANK_MAX: Final = 4096  # bytes of JSON
PART_MAX: Final = 256 * 1024
DUMPS_MAX, DEVICES_MAX, LEFT_OUT_MAX, GROUPS_MAX = 4096, 256, 64, 64


class Dump(msgspec.Struct, frozen=True, array_like=True):
    """A full dump on the node's disk. `rank` -1: of the node as a whole."""

    rank: int
    name: str
    bytes: int


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The evidence of one node, collected once for one order."""

    node: str
    order_id: str
    taken_at: float  # UTC, by that node's clock
    ranks: tuple[Rank, ...] = ()
    report: Node
    devices: tuple[Device, ...] = ()
    groups: tuple[Group, ...] = ()  # as far as its ranks know the members
    dumps: tuple[Dump, ...] = ()
    left_out: tuple[str, ...] = ()  # what was dropped or could not be had, in words


class _Wire(msgspec.Struct, frozen=True, kw_only=True):
    """The same, its rows not looked into yet: one that is wrong costs itself, not the part."""

    node: str
    order_id: str
    taken_at: float
    ranks: tuple[msgspec.Raw, ...] = ()
    report: msgspec.Raw = msgspec.Raw(b"{}")
    devices: tuple[msgspec.Raw, ...] = ()
    groups: tuple[msgspec.Raw, ...] = ()
    dumps: tuple[Dump, ...] = ()
    left_out: tuple[str, ...] = ()


_T = TypeVar("_T", Rank, Node, Device, Group)
_encoder: Final = msgspec.json.Encoder()
_wire: Final = msgspec.json.Decoder(_Wire)
_rank: Final = msgspec.json.Decoder(Rank)
_node: Final = msgspec.json.Decoder(Node)
_device: Final = msgspec.json.Decoder(Device)
_group: Final = msgspec.json.Decoder(Group)


def encode(part: Part) -> bytes:
    return _encoder.encode(part)


def size(rank: Rank) -> int:
    """What a rank takes of `RANK_MAX`."""
    return len(_encoder.encode(rank))


def decode(data: bytes) -> Part:
    """The part in `data`. Raises `Refused`, and nothing else."""
    if len(data) > PART_MAX:
        raise Refused(f"{len(data)} bytes of evidence, at most {PART_MAX}")
    try:
        wire = _wire.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(f"not evidence: {printable(error, 120)}") from None
    lost: list[str] = []
    ranks = [_row(_rank, raw, f"ranks[{place}]", lost) for place, raw in enumerate(wire.ranks)]
    devices = [_row(_device, raw, f"devices[{place}]", lost) for place, raw in enumerate(wire.devices[:DEVICES_MAX])]
    groups = [_row(_group, raw, f"groups[{n}]", lost, PART_MAX) for n, raw in enumerate(wire.groups[:GROUPS_MAX])]
    report = _row(_node, wire.report, "report", lost, PART_MAX)
    return Part(
        node=wire.node,
        order_id=wire.order_id,
        taken_at=wire.taken_at,
        ranks=tuple(rank for rank in ranks if rank is not None),
        report=report or Node(wire.node),
        devices=tuple(device for device in devices if device is not None),
        groups=tuple(group for group in groups if group is not None),
        dumps=wire.dumps[:DUMPS_MAX],
        left_out=tuple(printable(text, 200) for text in (*lost, *wire.left_out)[:LEFT_OUT_MAX]),
    )


def _row(
    decoder: "msgspec.json.Decoder[_T]", raw: msgspec.Raw, where: str, lost: list[str], limit: int = RANK_MAX
) -> _T | None:
    data = bytes(raw)
    if len(data) > limit:
        lost.append(f"{where}: {len(data)} bytes, at most {limit}")
        return None
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        lost.append(f"{where}: {printable(error, 120)}")
        return None
