"""Faults of GPUs and of what joins them: which device, which domain, who told first."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from rankpulse.core import policy, signs, xids
from rankpulse.core import verdict as v
from rankpulse.core.remembered import before_on
from rankpulse.core.scene import Said, Scene
from rankpulse.core.verdict import Cause, Culprits, Gpu, step

STORM_PER_S: Final = 100.0  # corrected memory errors: more than that disturbs whoever asks the driver
TOGETHER_S: Final = 2.0  # devices of one domain fall within this
AT_ONCE_S: Final = 0.001  # nobody is first
SLOW_QUERY_S: Final = 5.0
_SIGNS: Final = (signs.FABRIC, signs.ECC, signs.GPU_LOST, signs.CONTAINED, signs.NVLINK, signs.GPU_FAILED)
_OF_LINKS: Final = (signs.FABRIC, signs.NVLINK, signs.CONTAINED)
_HEALTHY: Final = ("", "none", "ok", "healthy", "0")


class Fault(NamedTuple):
    """A device that is broken, as something said so."""

    said: Said
    of_links: bool  # may be that of the whole NVLink domain
    reboot: bool = False

    @property
    def gpu(self) -> Gpu:
        return Gpu(self.said.node, self.said.gpu)


def faults(scene: Scene) -> list[Fault]:
    """Everything that proves a broken device, the first teller first."""
    found = [fault for said in scene.said if (fault := _fault(said)) is not None]
    found += _of_counters(scene)
    return sorted(found, key=lambda f: (f.said.at is None, f.said.at or 0.0))


def _fault(said: Said) -> Fault | None:
    if said.sign == signs.XID:
        means = xids.meaning(said.code)
        if means not in (xids.HARDWARE, xids.NVLINK):
            return None
        return Fault(said, means == xids.NVLINK, xids.needs_reboot(said.code))
    if said.sign in _SIGNS and (said.node or said.rank is not None):
        return Fault(said, said.sign in _OF_LINKS, said.sign == signs.GPU_LOST)
    return None


def _of_counters(scene: Scene) -> Iterable[Fault]:
    for place, device in enumerate(scene.snap.devices):
        node, gpu = scene.owner(device)
        for name, word in (
            ("ecc_uncorrected", f"{device.ecc_uncorrected} memory errors that ECC could not correct"),
            ("remap_failed", "remapping a broken memory row failed"),
            ("lost", "the driver does not find it any more"),
        ):
            if getattr(device, name):
                said = Said(None, name, word, f"devices[{place}].{name}", node, device.rank, gpu)
                yield Fault(said, False, name == "lost")
        if device.recovery_action.strip().lower() not in _HEALTHY:
            text = f"the driver asks for: {device.recovery_action}"
            said = Said(None, "recovery_action", text, f"devices[{place}].recovery_action", node, device.rank, gpu)
            yield Fault(said, False, "reboot" in device.recovery_action.lower())


def of_hardware(scene: Scene, suspects: Iterable[int] = ()) -> Cause | None:
    """The fault that explains what is wrong. `suspects`: ranks that others wait for, whose own devices count first."""
    found = faults(scene)
    if not found:
        return None
    mine = set(suspects)
    nodes = set(scene.where(mine))
    own = [f for f in found if _of_rank(scene, f) in mine]
    near = own or [f for f in found if f.said.node in nodes]
    whose = "the device" if own else "on the node" if near else ""
    return _domain(scene, found, near) or _device(scene, near or _first(found), near=bool(near), whose=whose)


def broken(scene: Scene, found: list[Fault]) -> Cause | None:
    """These devices, whatever the cause is. A link of the fabric tells what its peers do: it proves nothing here."""
    own = [fault for fault in found if not fault.of_links]
    return _device(scene, own, near=False) if own else None


def _of_rank(scene: Scene, fault: Fault) -> int | None:
    return fault.said.rank if fault.said.rank is not None else scene.rank_of(fault.said.node, fault.said.gpu)


def _first(found: list[Fault]) -> list[Fault]:
    """Those that nobody told before; all where nothing has a time."""
    first = found[0].said.at
    return [f for f in found if first is None or (f.said.at is not None and f.said.at <= first + AT_ONCE_S)] + [
        f for f in found if first is not None and f.said.at is None and f.said.node == found[0].said.node
    ]


def _domain(scene: Scene, found: list[Fault], near: list[Fault]) -> Cause | None:
    """The NVLink domain of the first teller, if others of it fell with it, or a switch of it told."""
    lead = (near or found)[0]
    if not lead.of_links or any(not f.of_links and f.said.node == lead.said.node for f in found):
        return None  # a broken memory or a lost device explains the rest
    domain = scene.domain(lead.said.node, lead.said.gpu)
    nodes = scene.in_domain(domain) or (lead.said.node,)
    devices = sorted({f.gpu for f in found if f.of_links and f.said.node in nodes})
    followers = _followers(scene, lead, nodes)
    if lead.said.sign != signs.FABRIC and len(devices) < 2 and not followers:
        return None
    reasons = [_told(lead)]
    if len(devices) > 1 or followers:
        reasons.append(f"{max(len(devices), len(followers) + 1)} of the same domain told within {TOGETHER_S:g} s of it")
    return Cause(
        klass=v.NVLINK_DOMAIN,
        culprits=Culprits(scene.on(nodes), nodes, tuple(devices)),
        confidence=0.9 if domain else 0.75,
        summary=f"the NVLink domain {domain or 'of ' + lead.said.node} broke; {lead.said.node} told first",
        reasons=(
            *reasons,
            "counters of NVLink that did not move do not clear it; later errors elsewhere follow from it",
        ),
        evidence=(lead.said.ref,),
        action=policy.RESTART_WITHOUT if scene.moves is not True else policy.DRAIN,
        steps=(step(v.RESTART_EXCLUDING, *([domain] if domain else nodes)), step(v.RESET_GPU, *nodes)),
        hints=("run the vendor's diagnostics on the whole domain before it comes back", *work_lost(scene)),
        fault=f"nvlink {lead.said.code or lead.said.sign}",
    )


def _followers(scene: Scene, lead: Fault, nodes: tuple[str, ...]) -> set[str]:
    """Other nodes of the domain that told of anything shortly after, before anybody outside did."""
    if lead.said.at is None or len(nodes) < 2:
        return set()
    later = [s for s in scene.said if s.at is not None and s.at >= lead.said.at and s.node and s.node != lead.said.node]
    outside = min((s.at for s in later if s.node not in nodes and s.at is not None), default=float("inf"))
    limit = min(lead.said.at + TOGETHER_S, outside)
    return {s.node for s in later if s.node in nodes and s.sign and s.at is not None and s.at <= limit}


def _device(scene: Scene, mine: list[Fault], *, near: bool, whose: str = "") -> Cause:
    lead = mine[0]
    gpus = tuple(sorted({f.gpu for f in mine}, key=lambda g: (g.node, g.gpu is None, g.gpu or 0)))
    known = {g.node for g in gpus if g.gpu is not None}
    gpus = tuple(g for g in gpus if g.gpu is not None or g.node not in known)
    ranks = tuple(sorted({r for f in mine if (r := _of_rank(scene, f)) is not None}))
    nodes = tuple(sorted({g.node for g in gpus if g.node}))
    again = before_on(scene, nodes)
    reboot = any(f.reboot for f in mine) or (again and lead.said.code in (119, 120))
    repair = step(v.DRAIN_REBOOT, *nodes) if reboot else step(v.RESET_GPU, *map(name, gpus))
    moves = scene.moves is True and not any(r.exit_code or r.signal for r in scene.snap.ranks)
    return Cause(
        klass=v.GPU_FAULT,
        kind="nvlink_domain" if lead.of_links else "gpu_fault",
        culprits=Culprits(ranks, nodes, gpus),
        confidence=0.95 if near else 0.85,
        summary=f"GPU fault: {', '.join(map(name, gpus))}: {lead.said.text}",
        reasons=_reasons(mine, whose=whose, again=again),
        evidence=tuple(dict.fromkeys(f.said.ref for f in mine))[:8],
        action=policy.DRAIN if moves else policy.RESTART_WITHOUT,
        steps=(step(v.DRAIN_REBOOT if moves else v.RESTART_EXCLUDING, *nodes), repair),
        hints=work_lost(scene),
        fault=f"gpu {lead.said.code or lead.said.sign}",
    )


def _reasons(mine: list[Fault], *, whose: str, again: int) -> tuple[str, ...]:
    found = list(dict.fromkeys(_told(f) for f in mine))[:4]
    if whose:
        found.append(f"it is {whose} of the ranks that the others wait for: the hang is its consequence")
    if again:
        found.append(f"the same node failed {again} time{'s' * (again > 1)} before")
    if any("name=" in f.said.text for f in mine):
        found.append("the process in the line is the one that called the driver, not the one to blame")
    return tuple(found)


def _told(fault: Fault) -> str:
    at = f" at {fault.said.at:.1f} s" if fault.said.at is not None else ""
    return f"{name(fault.gpu)}{at}: {fault.said.text}"


def name(gpu: Gpu) -> str:
    return gpu.node if gpu.gpu is None else f"{gpu.node}/GPU{gpu.gpu}"


def suspect(scene: Scene) -> Cause | None:
    """A device that works and should be replaced at the next occasion."""
    found: dict[Gpu, str] = {}
    refs = []
    for place, device in enumerate(scene.snap.devices):
        node, gpu = scene.owner(device)
        if device.ecc_corrected_per_s >= STORM_PER_S:
            found[Gpu(node, gpu)] = f"{device.ecc_corrected_per_s:g} corrected memory errors per second"
            refs.append(f"devices[{place}].ecc_corrected_per_s")
        elif device.remap_pending:
            found[Gpu(node, gpu)] = "a memory row waits for being remapped"
            refs.append(f"devices[{place}].remap_pending")
    for said in scene.of(signs.XID):
        if said.code in (63, 92):
            found.setdefault(Gpu(said.node, said.gpu), said.text)
            refs.append(said.ref)
    if not found:
        return None
    nodes = tuple(sorted({gpu.node for gpu in found if gpu.node}))
    ranks = tuple(r for gpu in found if (r := scene.rank_of(gpu.node, gpu.gpu)) is not None)
    return Cause(
        klass=v.GPU_FAULT,
        culprits=Culprits(ranks, nodes, tuple(found)),
        confidence=0.75,
        summary=f"{', '.join(map(name, found))} is suspect, the job goes on",
        reasons=tuple(f"{name(gpu)}: {why}" for gpu, why in found.items()),
        evidence=tuple(refs[:8]),
        action=policy.DRAIN,
        steps=(step(v.DRAIN_REBOOT, *nodes), step(v.RESET_GPU, *map(name, found))),
        fault="gpu corrected",
    )


def work_lost(scene: Scene) -> tuple[str, ...]:
    """What a restart costs, where it is known, and how to lose less another time."""
    saving, job = scene.snap.saving, scene.snap.job
    age = saving.last_complete_age_s
    steps = [rank.step for rank in scene.snap.ranks if rank.step is not None]
    if age is None and saving.last_complete_step is not None and steps and job.step_s:
        age = (max(steps) - saving.last_complete_step) * job.step_s
    if age is None or age <= 0:
        return ()
    lost = f"{age / 60:.0f} min of work since the last complete checkpoint are lost"
    if saving.interval_s and saving.interval_s > 900:
        return (f"{lost}: checkpoints every {saving.interval_s / 60:.0f} min are rare, save more often",)
    return (lost,)
