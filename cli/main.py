"""The `rankpulse` command. Commands here only parse and hand over; rooms are imported when a command needs them."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from rankpulse.cli import acting, checking, watching
from rankpulse.cli.acting import Cluster, Config, Reason, Store
from rankpulse.cli.checking import Json, RunDir
from rankpulse.cli.ckpt import ckpt_app
from rankpulse.cli.failing import Group, fail_without_stdout, stdout_failed
from rankpulse.cli.helping import SimCommand
from rankpulse.cli.ledger import ledger_app
from rankpulse.cli.receiver import receiver_app
from rankpulse.cli.store import store_app
from rankpulse.cli.webhook import webhook_app

if TYPE_CHECKING:
    from rankpulse.core.records import Finding, Incident, RunAdvice
    from rankpulse.core.settings import Settings

HELP = """
Watches multi-node PyTorch training: tells late heartbeats from dead workers, hung ranks and stopped jobs, names the
culprit, and, once armed, restarts what crashed or hangs.

\b
Try it on this machine:
  rankpulse demo                      real jobs live through jitter, crash, hang, loss of a node and more
  rankpulse up                        etcd, monitor and agent here, for a job of yours
\b
In production:
  rankpulse monitor --store etcd1:2379 --store etcd2:2379     on two or three machines; one leads
  rankpulse agent   --store etcd1:2379 --store etcd2:2379     on every node
  rankpulse webhook-receiver                                  starts jobs again: Slurm, Kubernetes, systemd, a program
  rankpulse run --nnodes 2 --nproc-per-node 8 train.py        a job, as with torchrun; the same line on every node
  rankpulse doctor                                            what is missing on this machine
  rankpulse store init --nodes nodes.txt                      who may write what in etcd
  rankpulse plan --gpus 256 --days 7                          what will fail, how often to save, what is lost
\b
When something happened:
  rankpulse top                                               live, on a terminal
  rankpulse status
  rankpulse explain last
  rankpulse report --since 7d --out week.html                 the weekly review
  rankpulse ckpt verify checkpoints                           which checkpoint a restart can trust
\b
Settings: flags, then RANKPULSE_STORE, RANKPULSE_CLUSTER, RANKPULSE_NODE, RANKPULSE_DIR, then --config or
RANKPULSE_CONFIG or ./rankpulse.toml or /etc/rankpulse/rankpulse.toml, then the preset.
"""
app = typer.Typer(
    cls=Group,
    help=HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
BENCH_HELP = """
Measure on this machine what rankpulse costs and how well it detects. Each prints a table, or with --json one object
(all but `record`). Other work on the machine disturbs the times: let it be idle.

\b
  rankpulse bench pulse                 seconds: what pulse.step() costs the training loop
  rankpulse bench engine --quick        half a minute: what a heartbeat and a tick cost the monitor
  rankpulse bench page                  seconds: what the on-call page costs the monitor, at 2,048 nodes
  rankpulse bench kmsg                  a minute: what a storm of XID lines costs who reads the kernel's log
  rankpulse bench detect --quick        a minute: shows that the detection bench works, tells nothing
  rankpulse bench checkpoint            minutes: saving and verifying, beside the usual ways
  rankpulse bench durable               seconds: many nodes bring a checkpoint to one slow target
  rankpulse bench recovery              minutes: from a fault to the next step, beside torchrun; needs torch
  rankpulse bench asking                minutes: whether asking for evidence disturbs a healthy job
  rankpulse bench hang --quick          half a minute: shows that the hang bench works, tells little
  rankpulse bench hang                  half an hour: who names the culprit of a simulated hang
  rankpulse bench detect --out DIR      the better part of an hour on many cores; goes on where it was stopped
  rankpulse bench record --out FILE     2 minutes: a trace of real beats, for the detection bench
"""
bench_app = typer.Typer(help=BENCH_HELP, no_args_is_help=True, rich_markup_mode=None)
app.add_typer(bench_app, name="bench")
app.add_typer(ckpt_app, name="ckpt")
app.add_typer(acting.breaker_app, name="breaker")
app.add_typer(webhook_app, name="webhook")
app.add_typer(ledger_app, name="ledger")
app.add_typer(receiver_app, name="webhook-receiver")
app.add_typer(store_app, name="store")

Preset = Annotated[str | None, typer.Option(help="Defaults for: default, fast, lan, wan, drill.")]
Listen = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where to serve HTTP; '' for nowhere.")]
Node = Annotated[str | None, typer.Option(help="Name of this node (default: the host name).")]


def _settings(
    config: str | None,
    cluster: str | None = None,
    store: list[str] | None = None,
    preset: str | None = None,
    **flags: str | None,
) -> "Settings":
    from rankpulse.cli.config import Flags, load

    return load(Flags(config=config, cluster=cluster, store=tuple(store or ()), preset=preset, **flags))


@app.command()
def agent(
    config: Config = None,
    node: Node = None,
    cluster: Cluster = None,
    store: Store = None,
    run_dir: RunDir = None,
    listen: Listen = None,
    preset: Preset = None,
) -> None:
    """Run the sidecar of this node: one per machine, beside the jobs.

    Example: rankpulse agent --store etcd1:2379 --node gpu07
    """
    settings = _settings(config, cluster, store, preset, node=node, run_dir=run_dir, agent_listen=listen)
    from rankpulse.agent.main import main as run

    raise typer.Exit(asyncio.run(run(settings)))


@app.command()
def monitor(
    config: Config = None,
    cluster: Cluster = None,
    store: Store = None,
    listen: Listen = None,
    preset: Preset = None,
) -> None:
    """Run a monitor. Start two or three: one leads, the others take over when it is gone.

    Example: rankpulse monitor --store etcd1:2379 --listen 0.0.0.0:9460
    """
    settings = _settings(config, cluster, store, preset, monitor_listen=listen)
    from rankpulse.cli.by_http import acting as act
    from rankpulse.monitor.main import main as run

    raise typer.Exit(asyncio.run(run(settings, act=act(settings))))


@app.command()
def up(
    config: Config = None,
    node: Node = None,
    cluster: Cluster = None,
    run_dir: RunDir = None,
    listen: Listen = None,
    preset: Preset = None,
    beside: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="NAME", help="prometheus: also start that, and an Alertmanager where one is."),
    ] = None,
) -> None:
    """Everything on this machine, for trying out: a private etcd, a monitor and an agent. Ctrl-C stops all.

    It says what to do next. --listen is where the monitor serves HTTP. Example: rankpulse up --with prometheus
    """
    settings = _settings(config, cluster, None, preset, node=node, run_dir=run_dir, monitor_listen=listen)
    from rankpulse.cli.up import run

    raise typer.Exit(run(settings, config, beside or ()))


@app.command()
def demo(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Faults to show; default: all.")
    ] = None,
    as_json: Json = False,
    keep: Annotated[str | None, typer.Option(metavar="DIR", help="Keep the logs and records there.")] = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="With TLS, certificates and users in etcd, all renewed while it plays.")
    ] = False,
) -> None:
    """Real jobs on this machine live through jitter, crash, hang, weather, stop, node, cordon and repeat, judged right.

    Example: rankpulse demo; rankpulse demo crash --keep /tmp/demo
    """
    from rankpulse.drills.demo import run

    raise typer.Exit(run(list(names or ()), as_json, keep, secure=secure))


@app.command()
def status(config: Config = None, cluster: Cluster = None, store: Store = None, as_json: Json = False) -> None:
    """How things stand: monitor, nodes, runs and open incidents."""
    settings = _settings(config, cluster, store)
    from rankpulse.cli import show
    from rankpulse.cli.status import gather, page

    found = asyncio.run(gather(settings))
    show.as_json(found) if as_json else page(found)


@app.command()
def incidents(
    config: Config = None,
    cluster: Cluster = None,
    store: Store = None,
    everything: Annotated[bool, typer.Option("--all", help="Also those closed more than a day ago.")] = False,
    as_json: Json = False,
) -> None:
    """What happened: open incidents and those of the last day."""
    settings = _settings(config, cluster, store)
    from rankpulse.cli import incidents as book
    from rankpulse.cli import show

    found = asyncio.run(book.every(settings, everything))
    show.as_json(found) if as_json else book.listing(found)


@app.command()
def explain(
    incident: Annotated[str, typer.Argument(help="Its id, the beginning of it, or 'last'.")],
    config: Config = None,
    cluster: Cluster = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """One incident on a page: who, what to do, who waits for whom, why, where all ranks are, what was done.

    Example: rankpulse explain last
    """
    settings = _settings(config, cluster, store)
    from rankpulse.cli import explain as room
    from rankpulse.cli import incidents as book
    from rankpulse.cli import show

    async def look_up() -> "tuple[Incident, Finding | None, RunAdvice | None]":
        found = await book.one(settings, incident)
        return found, await room.finding(settings, found), await room.saving(settings, found)

    told = asyncio.run(look_up())
    show.as_json(room.as_json(*told)) if as_json else room.page(*told)


@app.command()
def evidence(
    incident: Annotated[str, typer.Argument(help="Its id, the beginning of it, or 'last'.")],
    out: Annotated[
        str | None, typer.Option("--out", metavar="DIR", help="Where they go (default: evidence-INCIDENT).")
    ] = None,
    rank: Annotated[list[int] | None, typer.Option(metavar="N", help="Only of this rank; may be repeated.")] = None,
    time_s: Annotated[
        float, typer.Option("--time", metavar="SECONDS", help="For all together; the next call goes on.", min=1)
    ] = 120.0,
    pickles: Annotated[
        bool, typer.Option("--pickles", help="Also as pickles in DIR/torchfrtrace, for torch's own analyser.")
    ] = False,
    config: Config = None,
    cluster: Cluster = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Fetch the full dumps of an incident from its nodes: flight recorders and stacks, a directory per node.

    Needs the secret of direct looks (probe.token_file): run it where a monitor runs, or give it its --config. What was
    fetched is not asked for again. Exit code 1 when something is missing.

    Example: rankpulse evidence last --out dumps; rankpulse diagnose --flight-recorder dumps
    """
    settings = _settings(config, cluster, store)
    from rankpulse.cli import evidence as room
    from rankpulse.cli import show

    place, outcomes = asyncio.run(room.fetch(settings, incident, out, rank or (), time_s))
    made = room.pickles(place, outcomes) if pickles else 0
    show.as_json(room.as_json(place, outcomes)) if as_json else room.page(place, outcomes, made)
    raise typer.Exit(1 if any(outcome.why for outcome in outcomes) else 0)


@app.command()
def diagnose(
    snapshot: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="A job snapshot as JSON (docs/snapshots.md); '-': stdin.")
    ] = None,
    recorder: Annotated[
        str | None,
        typer.Option("--flight-recorder", metavar="DIR", help="Instead: torch's own dumps, one file per rank."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Who froze the job, by a snapshot of it: class, culprits, cascade, what to do, and why. Needs no cluster.

    Example: rankpulse diagnose snapshot.json --json
    Example: rankpulse diagnose --flight-recorder traces
    """
    from rankpulse.cli import diagnose as room

    room.run(snapshot, recorder, as_json)


for command in (*watching.COMMANDS, *acting.COMMANDS, *checking.COMMANDS):
    app.command()(command)


@app.command()
def restart(
    run: Annotated[str, typer.Argument(metavar="RUN_UID", help="The run: its uid, the beginning of it, or its label.")],
    reason: Reason,
    resume_before_step: Annotated[
        int | None,
        typer.Option(metavar="STEP", help="Go on from a checkpoint before this step; those from it on are set aside."),
    ] = None,
    config: Config = None,
    cluster: Cluster = None,
    store: Store = None,
) -> None:
    """Ask the monitor to end the present round of a run, so that torchelastic starts the next one.

    With --resume-before-step a checkpoint must lie before that step (`rankpulse ckpt ls DIR`). A step before the oldest
    that the job has told of is refused; where it told of none, a job without such a checkpoint does not start again.

    Example: rankpulse restart llama-1f --reason 'rank 3 reads from a dead disk'
    Example: rankpulse restart llama-1f --resume-before-step 12000 --reason 'the loss diverged at 12 100'
    """
    settings = _settings(config, cluster, store)
    from rankpulse.cli import operate

    typer.echo(asyncio.run(operate.restart(settings, run, reason, resume_before_step)))


@app.command()
def preflight(
    config: Config = None,
    cluster: Cluster = None,
    store: Store = None,
    run_dir: RunDir = None,
    as_json: Json = False,
) -> None:
    """Look at this node as its agent does before a round: GPUs, disks, clock, store. Exit code 1: it would be refused.

    Example: rankpulse preflight --store etcd1:2379
    """
    settings = _settings(config, cluster, store, run_dir=run_dir)
    from rankpulse.cli import preflight as room
    from rankpulse.cli import show
    from rankpulse.core.preflight import Finding, refusal

    async def examine() -> list[Finding]:
        found = []
        async for finding in room.run(settings):
            found.append(finding)
            if not as_json:
                typer.echo(f"{finding.level:7}  {finding.check}: {show.plain(finding.text)}")
                if finding.remedy:
                    typer.echo(f"         -> {finding.remedy}")
        return found

    findings = asyncio.run(examine())
    if as_json:
        show.as_json([finding._asdict() for finding in findings])
    raise typer.Exit(1 if refusal(findings) else 0)


@app.command()
def gpu(
    config: Config = None,
    run_dir: RunDir = None,
    processes: Annotated[bool, typer.Option(help="Also who holds their memory: asks the driver anew.")] = False,
    now: Annotated[bool, typer.Option("--now", help="Look now, whatever the agent of this node knows.")] = False,
    as_json: Json = False,
) -> None:
    """The GPUs of this node and their health: as its agent knows them, else by a look now.

    Exit code 1: one of them, or the machine around them, is ill.

    Example: rankpulse gpu --json
    """
    settings = _settings(config, run_dir=run_dir)
    from rankpulse.cli import gpu as room
    from rankpulse.cli import show

    known = asyncio.run(room.looked(settings, ask_agent=not now, processes=processes))
    if as_json:
        show.as_json(known)
    else:
        for line in room.lines(known):
            typer.echo(line)
    raise typer.Exit(1 if room.bad(known) else 0)


@app.command()
def xid(
    code: Annotated[int, typer.Argument(min=0, max=10**9, help="The number after `Xid (PCI:...):`, or after `SXid`.")],
    switch: Annotated[bool, typer.Option("--sxid", help="Of an NVSwitch, also where an XID has the number.")] = False,
    as_json: Json = False,
) -> None:
    """What a code of NVIDIA's driver means, whom it speaks against, and what to do about it. Needs no GPU.

    Example: rankpulse xid 79
    """
    from rankpulse.cli import xid as room

    room.run(code, switch, as_json)


@app.command()
def kmsg(
    log: Annotated[str, typer.Argument(metavar="FILE", help="A log of the kernel, in any of its forms; '-': stdin.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line of the log, nothing else.")] = False,
) -> None:
    """What a kernel log tells of GPUs, links, cards and memory: faults, with what follows from them, and what to do.

    Example: dmesg -x | rankpulse kmsg -

    Example: journalctl -k -b -1 -o short-iso | rankpulse kmsg - --json
    """
    from rankpulse.cli import kmsg as room

    room.run(log, as_json)


@app.command("config")
def show_config(
    config: Config = None,
    check: Annotated[str | None, typer.Option(metavar="FILE", help="Only check this file; exit code 2 if bad.")] = None,
    as_json: Json = False,
) -> None:
    """The effective settings as TOML; with --check, whether a file is good.

    Example: rankpulse config > rankpulse.toml; rankpulse config --check rankpulse.toml
    """
    from rankpulse.cli import show
    from rankpulse.cli.config import Flags, as_toml, load
    from rankpulse.core.doubts import doubts

    if check is not None:
        for doubt in doubts(load(Flags(config=check), environ={}, files=True)):
            typer.echo(f"{check}: {doubt}", err=True)
        typer.echo(f"{check}: good")
        return
    settings = _settings(config)
    show.as_json(settings) if as_json else typer.echo(as_toml(settings), nl=False)


@app.command()
def dashboards(
    out: Annotated[str, typer.Option(metavar="DIR", help="Where they go.")] = "rankpulse-dashboards",
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit code 1 when what lies there is not of this version.")
    ] = False,
    runbooks: Annotated[
        str, typer.Option(metavar="URL", help="Where the runbooks can be read: alerts link to them there.")
    ] = "",
) -> None:
    """Write the Grafana dashboards and the Prometheus rules of this version.

    Example: rankpulse dashboards --out /var/lib/grafana/dashboards/rankpulse
    """
    from rankpulse.cli.dashboards import run

    raise typer.Exit(run(out, check, runbooks, typer.echo))


@app.command()
def plan(
    gpus: Annotated[int, typer.Option(min=1, max=10_000_000, help="That the run uses at once.")],
    days: Annotated[float, typer.Option(help="How long it is to run.")] = 7.0,
    afr: Annotated[
        str | None, typer.Option(metavar="SHARE", help="Failures per GPU and year that stop the run: 9% or 0.09.")
    ] = None,
    chance: Annotated[
        str | None, typer.Option(metavar="SHARE/DAYS", help="Instead: how likely one GPU fails, as 1%/30d.")
    ] = None,
    seen: Annotated[
        str | None,
        typer.Option(metavar="FAILURES/GPU_HOURS", help="Instead: what was counted, as `rankpulse ledger show` tells."),
    ] = None,
    mtbf_h: Annotated[
        float | None, typer.Option(metavar="HOURS", help="Instead: mean time between failures of the whole run.")
    ] = None,
    save_s: Annotated[float, typer.Option(metavar="SECONDS", help="By how much a save holds up training.")] = 60.0,
    restart_s: Annotated[
        float, typer.Option(metavar="SECONDS", help="From a failure until it trains again, without steps done again.")
    ] = 300.0,
    plot: Annotated[bool, typer.Option("--plot", help="Draw the time lost over the interval between saves.")] = False,
    as_json: Json = False,
) -> None:
    """What to expect of a run before it starts: failures, how often to save, and the time that is lost.

    Without a rate it takes what Meta published, a failure per 8,000 GPU hours. Hardware is a part of what stops runs:
    of Llama 3's unexpected interruptions 78 %. So take --afr of all that stops yours, not of the GPU alone; better,
    --seen from `rankpulse ledger show`, which has an interval. Every failure stops the whole run, and comes by itself.

    \b
    Example: rankpulse plan --gpus 256 --days 7 --afr 9% --save-s 180 --plot
    Example: rankpulse plan --gpus 256 --days 7 --chance 1%/30d
    Example: rankpulse plan --gpus 256 --seen 12/96000
    Example: rankpulse plan --gpus 512 --mtbf-h 3 --save-s 300 --restart-s 600 --json
    """
    from rankpulse.cli import plan as room
    from rankpulse.cli.plan_rate import Asked

    asked = Asked(gpus, days, afr, chance, seen, mtbf_h, save_s, restart_s)
    room.run(asked, as_json=as_json, plot=plot)


@bench_app.command("pulse")
def bench_pulse(as_json: Json = False) -> None:
    """What one pulse.step() costs the training loop, side by side with an empty call."""
    from rankpulse.bench.pulse import run

    run(as_json)


@bench_app.command("recovery")
def bench_recovery(
    repeat: Annotated[int, typer.Option(help="Turns: every contestant takes every fault once in each.")] = 1,
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help="torchrun, ft_launcher, rankpulse.")] = None,
    limit: Annotated[float, typer.Option(metavar="SECONDS", help="How long to wait for a recovery.")] = 60.0,
    seed: Annotated[int | None, typer.Option(help="For the lots that choose the victims.")] = None,
    as_json: Json = False,
) -> None:
    """The same job and the same faults under torchrun, ft_launcher (if installed) and rankpulse, in turn.

    Example: rankpulse bench recovery --repeat 3; rankpulse bench recovery --only rankpulse --repeat 7 --json
    """
    from rankpulse.bench.recovery import run

    raise typer.Exit(run(repeat, as_json, only, limit, seed))


@bench_app.command("checkpoint")
def bench_checkpoint(
    ranks: Annotated[int, typer.Option(help="Processes that save together.")] = 8,
    megabytes: Annotated[int, typer.Option(metavar="MIB", help="Size of the whole state.")] = 256,
    repeat: Annotated[int, typer.Option(help="Turns that count; one that does not comes before.")] = 3,
    directory: Annotated[
        str | None, typer.Option(metavar="DIR", help="On the file system to measure; default: for temporary files.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Saving and verifying a checkpoint: ours, gather-then-write and torch.distributed.checkpoint, in turn.

    Example: rankpulse bench checkpoint; rankpulse bench checkpoint --ranks 4 --megabytes 1024 --directory /mnt/shared
    """
    from rankpulse.bench.checkpoint import run

    raise typer.Exit(run(ranks, megabytes, repeat, directory, as_json))


@bench_app.command("durable")
def bench_durable(
    nodes: Annotated[int, typer.Option(help="Nodes that bring their parts to one target.")] = 16,
    megabytes: Annotated[int, typer.Option(metavar="MIB", help="Size of the checkpoint.")] = 64,
    bandwidth: Annotated[int, typer.Option(metavar="MIB_S", help="What the target takes, in MiB/s.")] = 64,
    as_json: Json = False,
) -> None:
    """Checkpoint storms: a target of limited bandwidth, with all nodes writing at once and a few at a time.

    Example: rankpulse bench durable --nodes 64
    """
    from rankpulse.bench.durable import run

    raise typer.Exit(run(nodes, megabytes, bandwidth, as_json))


@bench_app.command("engine")
def bench_engine(
    quick: Annotated[bool, typer.Option("--quick", help="A quarter of the samples.")] = False,
    as_json: Json = False,
) -> None:
    """What a heartbeat and a tick cost the monitor, at 100, 1,000 and 10,000 nodes of one job.

    Example: rankpulse bench engine --quick
    """
    from rankpulse.bench.engine import run

    raise typer.Exit(run(as_json, quick))


@bench_app.command("page")
def bench_page(
    nodes: Annotated[int, typer.Option(min=1, help="Of the fleet.")] = 2048,
    ranks: Annotated[int, typer.Option(min=1, help="On each.")] = 8,
    as_json: Json = False,
) -> None:
    """What the on-call page costs the monitor while somebody looks at it, and how large it is.

    Example: rankpulse bench page; rankpulse bench page --nodes 10000
    """
    from rankpulse.bench.page import run

    raise typer.Exit(run(nodes, ranks, as_json))


@bench_app.command("kmsg")
def bench_kmsg(
    lines: Annotated[int, typer.Option(min=1000, help="Of the storm.")] = 800_000,
    fuzz: Annotated[int, typer.Option(metavar="N", help="Instead: read so many broken lines.")] = 0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same lines.")] = 1,
    as_json: Json = False,
) -> None:
    """A storm of XID lines through `rankpulse kmsg`: time, memory, faults; or lines broken at random, to break it.

    Example: rankpulse bench kmsg; rankpulse bench kmsg --fuzz 1000000
    """
    from rankpulse.bench.kmsg import run

    run(lines, fuzz, seed, as_json)


@bench_app.command("detect")
def bench_detect(
    quick: Annotated[
        bool, typer.Option("--quick", help="A few short days: shows that it works, tells nothing.")
    ] = False,
    days: Annotated[
        int | None, typer.Option(metavar="N", help="Job-days of 1,024 ranks; default 100, at other scales 24.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of the trace; default 1. The same seed gives the same figures.")
    ] = None,
    scale: Annotated[float, typer.Option(help="Of the rates of all disturbances: 0.2, 1 or 5.")] = 1.0,
    jobs: Annotated[int | None, typer.Option(metavar="N", help="Processes; default: one per core.")] = None,
    out: Annotated[str | None, typer.Option(metavar="DIR", help="Keep each day there; a later run goes on.")] = None,
    straight: Annotated[
        bool,
        typer.Option("--straight", help="Instead: 200 rank-days without leaving out quiet time must decide the same."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Detection time against false alarms: ours and the usual detectors over the same days of trace Z.

    Example: rankpulse bench detect --quick; rankpulse bench detect --days 100 --scale 5 --out /tmp/z5 --json
    """
    from rankpulse.bench.detect.run import run

    raise typer.Exit(
        run(is_quick=quick, days=days, seed=seed, scale=scale, jobs=jobs, json=as_json, out=out, straight=straight)
    )


@bench_app.command("asking")
def bench_asking(
    turns: Annotated[int, typer.Option(help="Stretches in which somebody asks.", min=1, max=10_000)] = 12,
    seconds: Annotated[float, typer.Option(help="Length of each stretch, asked or not.", min=2.0, max=600.0)] = 10.0,
    every: Annotated[float, typer.Option(help="Seconds between two questions.", min=0.1, max=600.0)] = 3.0,
    as_json: Json = False,
) -> None:
    """Step times of a real job before, during and after its agent is asked for evidence; ranks that cannot answer.

    Example: rankpulse bench asking --turns 3; rankpulse bench asking --turns 30 --json
    """
    from rankpulse.bench.asking import run

    raise typer.Exit(run(turns, seconds, every, as_json))


@bench_app.command("hang")
def bench_hang(
    quick: Annotated[
        bool, typer.Option("--quick", help="Three trials of each, none of 16,384 ranks: shows that it works.")
    ] = False,
    large: Annotated[
        int, typer.Option(metavar="N", help="Trials of each kind of fault at 16,384 ranks; 0: none.", min=0, max=10_000)
    ] = 20,
    small: Annotated[bool, typer.Option(help="The trials of 16 and 64 ranks, too.")] = True,
    seed: Annotated[int, typer.Option(help="Of the faults. The same seed gives the same figures, times apart.")] = 1,
    jobs: Annotated[int | None, typer.Option(metavar="N", help="Processes; default: one per core.")] = None,
    out: Annotated[str, typer.Option(metavar="DIR", help="Keep what is done here, and go on from it.")] = "",
    as_json: Json = False,
) -> None:
    """Who froze a simulated job: the wait-for graph and the usual rules over the same flight recorder dumps.

    Example: rankpulse bench hang --quick; rankpulse bench hang --large 300 --out /tmp/hang --json
    """
    from rankpulse.bench.hang.run import run

    raise typer.Exit(run(is_quick=quick, seed=seed, jobs=jobs, large=large, small=small, json=as_json, out=out))


@bench_app.command("record")
def bench_record(
    out: Annotated[str, typer.Option(metavar="FILE", help="Where the trace goes (gzipped JSON lines).")],
    seconds: Annotated[float, typer.Option(help="How long to record, 75 to 86,400.")] = 120.0,
    nodes: Annotated[int, typer.Option(help="Agents, 8 to 256, a multiple of 4.")] = 16,
    seed: Annotated[int, typer.Option(help="For the times of the stress.")] = 1,
) -> None:
    """Record when beats arrive over real sockets from a real etcd on this machine, under stress of CPU and network.

    Example: rankpulse bench record --seconds 120 --nodes 16 --out /tmp/trace.jsonl.gz
    """
    from rankpulse.bench.detect.record import run

    raise typer.Exit(run(out, seconds, nodes, seed))


@app.command(cls=SimCommand)
def sim(
    seed: Annotated[int | None, typer.Option(help="The first seed, or with no --seeds the only one.")] = None,
    seeds: Annotated[
        int | None, typer.Option(metavar="N", help="How many seeds, 1 to 100,000 (default 20, with --seed 1).")
    ] = None,
    nodes: Annotated[int, typer.Option(help="Machines of the cluster, 2 to 1,000.")] = 64,
    gpus: Annotated[int, typer.Option(help="Ranks per machine, 1 to 64.")] = 8,
    minutes: Annotated[
        float,
        typer.Option(
            help="Virtual minutes, 3 to 1,440. Faults come from second 75 until a minute before the end; then "
            "recovery is demanded."
        ),
    ] = 12.0,
    faults: Annotated[
        list[str] | None, typer.Option(metavar="KIND", help="Only this fault; may be repeated. They are listed below.")
    ] = None,
    trace: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write what happens there, as JSON lines; for one seed.")
    ] = None,
    until: Annotated[
        float | None, typer.Option(metavar="T", help="Stop at this virtual second, and demand no recovery.")
    ] = None,
    processes: Annotated[int, typer.Option(help="Seeds at once, up to 1,024; 0: as many as processors.")] = 0,
    preset: Preset = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Tell what happens, on stderr; for one seed.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only what failed.")] = False,
    as_json: Json = False,
) -> None:
    """Simulate whole clusters on a virtual clock, with faults drawn from a seed, and hold every answer against truth.

    Exit code 1 when a rule did not hold: the output says which one, when, and the command that shows it again.

    Example: rankpulse sim --seeds 200; rankpulse sim --seed 7 --nodes 16 --verbose
    """
    from rankpulse.drills.sim.command import run
    from rankpulse.drills.sim.plan import Options

    count = seeds if seeds is not None else 1 if seed is not None else 20
    options = Options(nodes, gpus, minutes, tuple(faults or ()), preset or "default")
    chosen = range(seed or 0, (seed or 0) + count)
    code = run(
        chosen, options, trace=trace, until=until, as_json=as_json, quiet=quiet, verbose=verbose, processes=processes
    )
    raise typer.Exit(code)


@app.command()
def swarm(
    nodes: Annotated[int, typer.Option(help="Publishers, 1 to 8,192; each answers direct looks on a port.")] = 2048,
    gpus: Annotated[int, typer.Option(help="Ranks on each node.", min=1, max=64)] = 8,
    runs: Annotated[int | None, typer.Option(metavar="N", help="Jobs; default: one per 256 nodes.")] = None,
    interval: Annotated[float, typer.Option(help="Seconds between heartbeats.", min=0.1, max=60)] = 1.0,
    for_s: Annotated[float, typer.Option("--for", metavar="S", help="Seconds that are measured.", min=5)] = 900.0,
    kill: Annotated[int, typer.Option(metavar="N", help="Nodes that die at random times.", min=0)] = 20,
    inject: Annotated[str, typer.Option(metavar="FILE", help="JSON: what else is done, a list of objects.")] = "",
    store: Store = None,
    cluster: Cluster = None,
    seed: Annotated[int, typer.Option(help="Of the times and nodes.")] = 1,
    preset: Preset = None,
    as_json: Json = False,
) -> None:
    """Let thousands of real publishers speak from one process, kill some, and measure what it costs to find them.

    Without --store it brings its own etcd and monitor. Exit code 1 when one that died was not found, or another was
    accused. --inject: {"at": 60, "kind": "pause", "lasts_s": 10, "node": "n00007"}; kinds: death, pause, hang, slow,
    flood, next_schema.

    Example: rankpulse swarm --nodes 512 --for 180 --kill 5
    """
    from rankpulse.drills.swarm.command import command
    from rankpulse.drills.swarm.plan import Options

    options = Options(
        nodes=nodes, gpus=gpus, runs=runs if runs is not None else max(1, nodes // 256), interval_s=interval,
        for_s=for_s, kill=kill, seed=seed, preset=preset or "default",
    )  # fmt: skip
    raise typer.Exit(command(options, store or (), cluster or "", inject, as_json))


@app.command(
    "run",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False},
)
def run_job(ctx: typer.Context) -> None:
    """Start a job as torchrun does, with our rendezvous and the worker holder filled in.

    Example: rankpulse run --nnodes 2 --nproc-per-node 8 train.py
    """
    from rankpulse.cli.run import run

    run(ctx.args)


@app.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False},
)
def hold(ctx: typer.Context) -> None:
    """Run a worker of torchrun so that its crash burns no restart.

    Example: torchrun --no-python ... rankpulse hold python -u train.py
    """
    from rankpulse.trainer.hold import main

    raise typer.Exit(main(ctx.args))


@app.command()
def version() -> None:
    """The versions of rankpulse and of Python."""
    from importlib.metadata import version as of

    typer.echo(f"rankpulse {of('rankpulse')} (Python {sys.version.split()[0]})")


def main() -> None:
    """The entry point."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        if not stdout_failed(error):
            raise
        fail_without_stdout(error)


if __name__ == "__main__":
    main()
