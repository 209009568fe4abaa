"""The words of the published page. Every figure in them is the one that the benchmark itself uses."""

from typing import Any, Final

from rankpulse.bench.detect import deaths, drive, nvrx, patrol, pauses, straight
from rankpulse.bench.detect import parameters as z
from rankpulse.bench.detect.points import DEFAULT, FAST
from rankpulse.bench.detect.tables import number
from rankpulse.bench.detect.tally import FAILURES_PER_JOB_DAY, LEAST_FOR_P99
from rankpulse.core import cost_rule
from rankpulse.core.silence import LOOKS_S

Report = dict[str, Any]


def head() -> str:
    return _HEAD.format(ranks=z.RANKS, nodes=z.NODES, restart=number(z.RESTART_COST_S))


def limits(figures: dict[str, str]) -> str:
    failures = number(FAILURES_PER_JOB_DAY, 2)
    return _LIMITS.format(failures=failures, restart=number(z.RESTART_COST_S), fewest=LEAST_FOR_P99, **figures)


def ranks() -> str:
    return _RANKS.format(times=z.RANKS_PER_NODE)


def pauses_of() -> str:
    return _PAUSES.format(longest=number(pauses.LONGEST_S), nodes=pauses.NODES, apart=number(pauses.APART_S))


def recorded(recording: str) -> str:
    return _RECORDED.format(recording=recording)


def method(report: Report) -> str:
    plan, fast, default = report["plan"], FAST.settings, DEFAULT.settings
    return _METHOD.format(
        interval=number(z.INTERVAL_S),
        tick=number(default.monitor.tick_interval_s),
        loss=f"{z.BURST_LOSS:.0%}",
        watch=number(drive.WATCH_DEAD_S),
        office=" to ".join(map(number, drive.OFFICE_LEFT_S)),
        shortest_fast=number(patrol.least(FAST, None)),
        shortest_default=number(patrol.least(DEFAULT, None)),
        lead_in=number(patrol.LEAD_IN_S),
        straight_days=number(straight.RANK_DAYS),
        straight_scale=number(straight.SCALE),
        blocked=number(z.BLOCKED_S),
        limit=number(deaths.LIMIT_S),
        learned_days=plan["experience_days"],
        days=plan["days"],
        dying=plan["deaths"],
        ours=plan["our_deaths"],
        racks=plan["rack_deaths"],
        per_node=z.RANKS_PER_NODE,
        fast_s=number(cost_rule.times(fast.detect, None).node_s),
        bound=number(cost_rule.RACK_MOST_S),
        looks=number(LOOKS_S),
        fast_look=number(fast.probe.interval_s),
        nvrx=nvrx.NAME,
        nvrx_first=number(nvrx.FIRST_S),
    )


_HEAD: Final = """
# Detection: how fast, and how often for nothing

Every detector sees the same simulated days of a job of {ranks:,} ranks on {nodes} nodes ("trace Z"): the real `Engine`
of rankpulse at two operating points, and the usual alternatives. Made by `python -m rankpulse.bench.detect.page` from
the reports named [below](#again); no figure of ours was typed by hand, and those of the study are as it gave them.

* **fast**: `preset = "fast"`, for when hardware that waits costs more than a restart.
* **default**: the cost rule with a restart of {restart} s, for when it does not.

The trace's rates are chosen, not measured: nobody has published such rates. What to take from this page is how the
detectors compare on equal ground, not how often a cluster of yours will restart for nothing.
"""
_LIMITS: Final = """
T_D: from the death to the detection. Job lost: {failures} real failures a day times mean T_D, and {restart} s for each
false restart. In brackets: 95 % intervals, Poisson for rates, order statistics for p99 (none below {fewest} deaths).

**What limits it.** A machine that is frozen and comes back says nothing on any path until then, and its job stands
still: no evidence tells it from a dead one, so whoever convicts after T seconds also convicts the freezes that last
longer. That alone costs at least {least} s a day, at T = {at} s; rack pauses that stall the job add {racks} s a day
where a silent rack is given up after {rack_s} s. Measured of default: {default} s a day; the best fixed timeout loses
{fixed} s. For fast the same arithmetic says {frontier} false restarts per 10,000 GPU-days, measured were {fast}.
"""
_PAUSES: Final = """
### Pauses of the monitor and of the store

Of up to {longest} s, {apart} s apart, however they fall between beats, on {nodes} nodes with nothing else going on.
Counted is `node_dead`; what is told short of that (`control_plane_delay` above all) is not.

"""
LAYERS: Final = """
## What each layer of evidence buys

The same engine at the fast point, from which information is withheld: its own sleep and the canary; the nodes' racks;
addresses for direct looks; steps. Without steps it never is sure, so in all rows but the last any alarm about a silent
node counts as a conviction, `unknown` as well as `node_dead`. The rule for many that are late at once rests on arrival
times and is in force in every row.

"""
MANNERS: Final = """
## How the ranks run together

A dead node whose peers may run ahead is missed later: they move for some steps more, and while they do its job does not
stand still. With local SGD they move until they meet again. Nobody may be excused for ever.

"""
_RANKS: Final = """
## One sender per rank

The stream of the study that this benchmark continues, through the same detectors: whether the two agree within their
Poisson intervals. There are {times} times as many senders, so {times} times as many of their stalls.

"""
_RECORDED: Final = """
## A recorded trace

`rankpulse bench record`: real etcd, real sockets, one machine under stress of processors, network, store and watcher
({recording}). In turns: busy processors, a late network, a stalled one, stopped agents, a stopped etcd, a watcher that
does nothing, cut connections; at the end four agents are killed at once. Mistakes and alarms are about living nodes.

"""
_METHOD: Final = """
## How it is measured

* **Trace.** All parameters are data in `bench/detect/parameters.py`. Each disturbance has a random stream of its own;
  days are independent; the same seed gives the same figures whatever `--jobs` is. Seeds were not chosen.
* **Stream.** What rankpulse sends: one beat per node every {interval} s through the store. A sender that stalls,
  stalls also as an agent: a direct look finds its machine, and no answer.
* **The engine is the real one**, told what a monitor would be told: beats when they arrive, its own canary only
  through the same store, a tick every {tick} s unless the monitor itself is paused, answers to direct looks as the
  network gives them. A burst of loss takes {loss} of packets in each direction, and TCP tries again; machines that are
  frozen, cut off or dead say nothing; what took far longer than allowed because the monitor slept tells nothing. In
  outages of the store its watch is lost after {watch} s, its office after {office} s, and it comes back with a new
  listing. Every address is taken as reached before. Progress is visible only through beats and answers that arrive.
* **Stretches.** A conviction needs a node that was not heard for as long as the operating point says, so only
  stretches around silences are driven (from {shortest_fast} s for fast, {shortest_default} s for default, or less
  where the cost rule has come to wait less), with at least {lead_in} s of training before them, and with the lateness
  that each node's deadline remembers of the minutes before; all other time counts as watched. `rankpulse bench detect
  --straight` drives {straight_days} rank-days at {straight_scale} times the disturbances without leaving anything out
  and demands the same convictions within a tick; also of the engine without steps, which convicts often.
* **False restarts.** Days without deaths: every `node_dead` is a mistake, restarts the job, and blocks {blocked} s.
* **Mistakes / rank-day.** Of the usual detectors every wrong suspicion counts, of ours every node that is convicted,
  but none while the job restarts after one. A sender per node stands for its {per_node} ranks. So compare false
  restarts, which are counted alike.
* **Deaths** are injected at uniformly random moments of the same days, each in a stretch of its own. Those in outages,
  elections, evaluations and checkpoints are not spared. For the usual detectors: {dying} a day, for ours {ours}, and
  {racks} racks, in each of {days} days. Ours are asked within {limit} s; where somebody else was convicted first there
  is no T_D, and that is counted by itself.
* **The cost rule** has learned from {learned_days} other days of the same trace before the first, and real failures at
  the trace's rate are part of what it knows. Each day begins with that experience; the deaths of a day are judged by
  what was known at its end.
* **{nvrx}** begins each day anew, with the {nvrx_first} s that it waits before it has measured anything.

What flatters ours:

* **The rates are known to it.** The cost rule's priors are the rates of this trace at scale 1, and the times of fast
  ({fast_s} s for a node) and the bound for racks ({bound} s) were chosen with this trace in sight. At the other scales
  its priors of silences are wrong by the same factor: that is what those tables are for.
* **These very days have taught it something.** A first run of them, at another version, had 12 false restarts of fast.
  Three came of a single direct look that a burst of loss had swallowed while no peer could tell; since then looks must
  get nothing back for {looks} s, and fast looks every {fast_look} s. So fast is a little fitted to seed 1.
* **The canary sees every fault of the store.** In the trace the store fails for everybody at once, and so for the
  monitor's own key, too. One that is late for some nodes and not for the monitor is in it as bursts of loss only.
* **What else is not in the trace**: partitions of the monitor alone, agents that crash, several jobs, real kernels.
"""
AGAIN: Final = """
`make bench-detect` measures all of it again and makes this page from it, under `build/bench-detect`: hours, by the
number of cores. It goes on where it was stopped; days of other code are refused, so remove them first.
`rankpulse bench detect --quick` shows in about a minute that everything works, and tells nothing.
"""
