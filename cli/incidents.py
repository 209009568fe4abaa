"""`rankpulse incidents` and `rankpulse explain`: what happened, why it is believed, what was done, what to do."""

from collections.abc import Iterator
from typing import Final

from rankpulse.cli import books, show
from rankpulse.cli.failing import Failed
from rankpulse.core.keys import Keys
from rankpulse.core.records import Incident, Member
from rankpulse.core.resumption import steps
from rankpulse.core.settings import Settings

ADVICE: Final = {  # by class, for actions that leave it to a person
    "worker_dead": "read the worker's log on the culprit's node from the time of the fault, fix the cause, then start "
    "the job again (it goes on from its last checkpoint)",
    "node_dead": "look at the machine itself (power, network, kernel log). If it is gone, start torchrun on another "
    "node by the same command: once it waits, an armed monitor restarts the job without the dead; or rankpulse restart "
    "{run_uid} --reason '…'",
    "collective_hang": "look at the culprit's process (`py-spy dump --pid PID`, `nvidia-smi`). To end the round and "
    "let torchelastic start the next: rankpulse restart {run_uid} --reason '…'",
    "agent_cut_off": "restore the way from {nodes} to the store (network, certificates, credentials): the agent there "
    "answers direct looks, its beats do not come through; the job is not touched",
    "sidecar_dead": "start the agent again on {nodes} (`systemctl status rankpulse-agent`); the job itself goes on",
    "control_plane_delay": "nothing to do for the job. If it stays, look at the network to etcd and at etcd's disk",
    "operator_restart": "read the logs of torchrun: the order was carried out, and no next round made a step",
    "breaker_open": "find out why so many nodes are silent or were cordoned at once: a switch, a power supply, network "
    "between them and the monitors. Nothing is ordered meanwhile. Then: rankpulse breaker close --reason '…'",
    "drain": "see why it waits; `rankpulse uncordon` or `rankpulse maintenance NODE --over` takes it back",
    "unknown": "compare the logs of all ranks at the time of the fault; the evidence below is all that was seen",
}


async def every(settings: Settings, everything: bool) -> list[Incident]:
    """Open incidents and those of the last day, or `everything` the store remembers; in order of opening."""
    import time

    async with books.opened(settings) as store:
        keys = Keys(settings.cluster)
        known = (await books.read(store, keys, keys.incidents())).incidents()
    since = time.time() - 86400
    return [i for i in known if everything or i.state == "open" or i.opened_at >= since]


async def one(settings: Settings, name: str) -> Incident:
    """The incident called `name`: its id, the beginning of it, or `last`. Raises `Failed`."""
    known = await every(settings, everything=True)
    if not known:
        raise Failed(f"no incident is recorded in cluster {settings.cluster!r}")
    if name == "last":
        return known[-1]
    found = [i for i in known if i.id == name] or [i for i in known if i.id.startswith(name)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise Failed(f"no incident {show.plain(name)!r}: `rankpulse incidents --all` lists them, `last` is the newest")
    raise Failed(f"{show.plain(name)!r} is the beginning of several: {', '.join(i.id for i in found)}")


def listing(incidents: list[Incident]) -> None:
    out = show.console()
    if not incidents:
        out.print("no incidents (older than a day: --all)")
        return
    rows = [
        (i.id, show.ago(i.opened_at), i.klass, i.outcome or i.state, i.run_id or i.run_uid or "-", i.action, i.summary)
        for i in incidents
    ]
    show.table(out, ("incident", "opened", "class", "state", "run", "action", "summary"), rows)
    out.print("\nThe whole story of one: rankpulse explain INCIDENT")


def page(incident: Incident) -> None:
    """Everything about one incident, the next step first."""
    out = show.console()
    out.print(f"{show.plain(incident.summary)}\n", style="bold")
    show.facts(out, _head(incident))
    out.print("\nstory", style="bold")
    for line in incident.trail:
        out.print(f"  {line.after_s:+8.1f} s  {show.plain(line.text)}", soft_wrap=True)
    if incident.evidence:
        out.print("\nevidence (store keys)", style="bold")
        for key in incident.evidence:
            out.print(f"  {show.plain(key)}", soft_wrap=True)


def _head(i: Incident) -> Iterator[tuple[str, object]]:
    yield "what to do", next_step(i)
    yield "incident", f"{i.id}, class {i.klass}, {_state(i)}, confidence {i.confidence:.2f}"
    yield "opened", f"{show.clock_time(i.opened_at)} ({show.ago(i.opened_at)})"
    if i.run_uid:
        yield "run", f"{i.run_uid}, round {i.round}" + (f", label {i.run_id}" if i.run_id else "")
    if i.culprits:
        yield "culprit", [who(member) for member in i.culprits]
    if i.nodes:
        yield "nodes", ", ".join(i.nodes)
    if i.cascade:
        yield "cascade", f"{_ranks(i.cascade)}: stalled or died because of it"
    if i.reasons:
        yield "why", list(i.reasons)
    yield "action", f"{i.action}: {i.action_reason}" + (f" (order {i.order_id})" if i.order_id else "")
    yield "times", ", ".join(_times(i))


def _state(i: Incident) -> str:
    return f"{i.state}, {i.outcome}" if i.outcome else i.state


def _times(i: Incident) -> Iterator[str]:
    if i.time_to_detect_s is not None:
        yield f"detected {i.time_to_detect_s:.1f} s after the first evidence"
    if i.time_to_recover_s is not None:
        yield f"{'recovered' if i.outcome == 'recovered' else 'over'} {i.time_to_recover_s:.1f} s after that"
    elif i.state == "open":
        yield "not over yet"
    if i.resumed_from_step is not None:
        lost = f" ({steps(i.lost_steps)} of work lost)" if i.lost_steps else ""
        yield f"resumed from step {i.resumed_from_step}{lost}"
    if i.restarts:
        yield f"{i.restarts} restart" + ("s" if i.restarts > 1 else "")


def who(member: Member) -> str:
    return f"rank {member.rank} on {member.node} (local rank {member.local_rank}, pid {member.pid})"


def _ranks(ranks: tuple[int, ...], at_most: int = 16) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:at_most])
    more = f" and {len(ranks) - at_most} more" if len(ranks) > at_most else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"


NOTHING_YET = {
    "adopt": "torchelastic restarts it by itself",
    "restart": "the order is out",
    "restart_without": "the order is out; the next round forms without the nodes named",
    "drain": "its job leaves the node after its next checkpoint",
    "wait": "it may pass by itself, and is watched",
    "release": "torchelastic restarts it if it has restarts left, or ends it",
}


def _start_another(i: Incident) -> str:
    """A drain that only another node can end; "" else."""
    if i.action != "drain" or not i.action_reason.startswith("waits for another node"):
        return ""
    return f"start torchrun on another node, by the same command: the job leaves {', '.join(i.nodes)} then"


def next_step(i: Incident) -> str:
    """What a person should do now, in a sentence."""
    if i.state == "closed" and (i.outcome != "run_ended" or i.action == "none"):
        return f"nothing: it is over ({i.outcome or 'closed'})"
    if i.state == "open" and i.action in NOTHING_YET:
        return _start_another(i) or f"nothing yet: {NOTHING_YET[i.action]}"
    advice = ADVICE.get(i.klass, ADVICE["unknown"]).format(run_uid=i.run_uid, nodes=", ".join(i.nodes) or "its node")
    if i.state == "closed":
        return f"the run has ended; {advice}"
    if i.action == "observe":
        return f"orders are not armed: `rankpulse arm --reason '…'` lets the monitor restart it now; or {advice}"
    return advice
