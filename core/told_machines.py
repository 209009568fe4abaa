"""What hardware and kernels say of the machines that are blamed, in lines. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final

from rankpulse.core.scene import Scene
from rankpulse.core.snapshot_nodes import Device, Node
from rankpulse.core.words import printable

NODES_MAX: Final = 4
LINES_MAX: Final = 4  # of one kernel
TOLD_MAX: Final = 16


def told(scene: Scene, nodes: Iterable[str]) -> tuple[str, ...]:
    """Of each of these nodes: its devices where something is to be said, its kernel's telling lines, its ports."""
    lines = [line for node in tuple(nodes)[:NODES_MAX] for line in _of(scene, node)]
    return tuple(printable(line, 300) for line in lines[:TOLD_MAX])


def _of(scene: Scene, name: str) -> Iterator[str]:
    for device in scene.snap.devices:
        node, gpu = scene.owner(device)
        if node == name and (words := ", ".join(_device(device))):
            yield f"{name}{f' GPU {gpu}' if gpu is not None else ''}: {words}"
    kernel = [said for said in scene.said if said.node == name and said.sign and ".kernel[" in said.ref]
    yield from (f"{name}, kernel: {said.text}" for said in kernel[-LINES_MAX:])
    node_ = scene.nodes.get(name)
    if node_ is not None:
        yield from (f"{name}: {text}" for text in _node(node_, quiet=not kernel))


def _device(device: Device) -> Iterator[str]:
    codes = dict.fromkeys(xid if isinstance(xid, int) else xid.code for xid in device.xids)
    if codes:
        yield f"Xid {', '.join(map(str, codes))}"
    if device.lost:
        yield "the driver does not list it any more"
    if device.ecc_uncorrected:
        yield f"{device.ecc_uncorrected} uncorrected memory errors"
    if device.remap_failed or device.remap_pending:
        yield f"remapping of rows {'failed' if device.remap_failed else 'waits for a reset'}"
    if device.recovery_action.lower() not in ("", "none"):
        yield f"its driver asks for: {device.recovery_action}"
    if device.nvlink_errors:
        yield f"{device.nvlink_errors} NVLink errors"
    if device.throttled:
        yield f"clocks held down: {device.throttled}"


def _node(node: Node, *, quiet: bool) -> Iterator[str]:
    for link in node.links:
        if link.errors or link.flaps or link.moving is False or link.state.lower() in ("down", "polling", "flapping"):
            errors = f", {link.errors} errors" if link.errors else ""
            stands = ", nothing moves" if link.moving is False else ""
            yield f"port {link.name} {link.state}{errors}{stands}"
    if node.disk_stuck:
        yield "a small write to its disk did not come back"
    if quiet and node.kernel_readable is False:
        yield "its kernel's lines cannot be read"
    elif quiet and node.kernel:
        yield f"nothing telling in its last {len(node.kernel)} kernel lines"
