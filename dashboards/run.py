"""The dashboard of one run: does it train, how fast, and if not, what are its ranks doing?"""

from typing import Any, Final

from rankpulse.dashboards import board as b
from rankpulse.dashboards import links as to
from rankpulse.dashboards.board import GREEN, RED, YELLOW, Block, Query
from rankpulse.dashboards.promql import Ask, or_zero

CLUSTER: Final = 'cluster=~"$cluster"'
fleet: Final = Ask(CLUSTER)
ask: Final = fleet.within('run_uid="$run"')
GONE: Final = "not running"
UNTOLD: Final = "not told"
STATES: Final = {
    "R": ("runs (R)", GREEN),
    "S": ("sleeps, waits (S)", "blue"),
    "D": ("waits in the kernel (D)", YELLOW),
    "T": ("STOPPED (T)", RED),
    "t": ("held by a debugger (t)", "purple"),
    "Z": ("dead, not collected (Z)", "dark-red"),
    "X": ("dead (X)", "dark-red"),
    "?": ("not known (?)", "text"),
}


def build() -> dict[str, Any]:
    """The dashboard as plain values."""
    return b.dashboard(
        to.RUN,
        "Does this run train, how fast, and if not, what are its ranks doing?",
        fleet,
        [
            b.variable("cluster", "Cluster", "label_values(rankpulse_monitor_info, cluster)", every=True),
            b.variable("run", "Run", f"label_values(rankpulse_run_info{{{CLUSTER}}}, run_uid)", every=False),
        ],
        [_now(), _progress(), _checkpoints(), _interval(), _ranks(), _nodes()],
    )


def _rate() -> str:
    """Steps per second. Going back to a checkpoint is no speed: below zero is zero."""
    return f"max(clamp_min(deriv({ask('rankpulse_run_step')}[$__rate_interval]), 0))"


def _now() -> Block:
    still = f"max({ask.led('rankpulse_run_still_seconds')}) / max({ask.led('rankpulse_run_step_deadline_seconds')})"
    return Block(
        "Does it train?",
        [
            b.stat(
                "Label",
                "The name that its user gave it (`--rdzv-id`). Several runs may have the same.",
                Query(f"max by (run_id) {ask.led('rankpulse_run_info')}", "{{run_id}}"),
                none=GONE,
                text="name",
            ),
            b.stat(
                "Round",
                "How often it has started: each restart begins a new round.",
                Query(f"max({ask.led('rankpulse_run_round')})"),
                none=GONE,
            ),
            b.stat(
                "Ranks missing",
                "Ranks that this round should have and that no agent has seen: starting, dead, or on a node without "
                "an agent.",
                Query(f"max({ask.led('rankpulse_run_world_size')}) - max({ask.led('rankpulse_run_ranks')})"),
                none=GONE,
                steps=((None, GREEN), (1, RED)),
            ),
            b.stat(
                "Step",
                "The lowest step over its ranks. -1: none has made a step yet.",
                Query(f"max({ask.led('rankpulse_run_step')})"),
                unit="none",
                none=GONE,
            ),
            b.stat(
                "Steps per minute",
                "How fast it trains now.",
                Query(f"60 * {_rate()}"),
                none=GONE,
            ),
            b.stat(
                "Deadline used up",
                "How long nothing has moved, as a share of what is usual for its phase. At 100 % it counts as hung. "
                "Paused on purpose it may exceed that.",
                Query(still),
                unit="percentunit",
                none=GONE,
                steps=((None, GREEN), (0.5, YELLOW), (1, RED)),
            ),
            b.stat(
                "Open incidents",
                "Open incidents of this run. `rankpulse explain last` tells the story.",
                Query(or_zero(f"max({ask.led('rankpulse_run_incidents_open')})")),
                steps=((None, GREEN), (1, RED)),
            ),
            b.stat(
                "Restarts",
                "Rounds begun after an incident, since the run began.",
                Query(or_zero(f"max({ask.led('rankpulse_run_restarts')})")),
                steps=((None, GREEN), (1, YELLOW), (3, RED)),
            ),
        ],
    )


def _progress() -> Block:
    lowest, spread = f"max({ask.led('rankpulse_run_step')})", f"max({ask.led('rankpulse_run_step_spread')})"
    return Block(
        "How does it get on?",
        [
            b.graph(
                "Does the step grow?",
                "Lowest and highest step over the ranks. It falls back to the last checkpoint at a restart: that much "
                "work is done twice.",
                Query(lowest, "lowest step"),
                Query(f"{lowest} + {spread}", "highest step"),
                unit="none",
                size=(12, 8),
            ),
            b.graph(
                "How fast?",
                "Steps per second, from the lowest step.",
                Query(_rate(), "steps per second"),
                size=(12, 8),
            ),
            b.graph(
                "Does it stand still?",
                "Seconds in which no rank moved, and the deadline of its present phase, learned from its past.",
                Query(f"max({ask.led('rankpulse_run_still_seconds')})", "stands still"),
                Query(f"max({ask.led('rankpulse_run_step_deadline_seconds')})", "deadline"),
                unit="s",
                size=(8, 7),
            ),
            b.graph(
                "How long may its phases last?",
                "The learned deadline of every phase that the run has shown. Longer than that is a standstill.",
                Query(f"max by (phase) {ask.led('rankpulse_run_phase_deadline_seconds')}", "{{phase}}"),
                unit="s",
                stepped=True,
                size=(8, 7),
            ),
            b.graph(
                "Rounds, restarts, incidents",
                "The round goes up at every start; a restart is a start after an incident.",
                Query(f"max({ask.led('rankpulse_run_round')})", "round"),
                Query(or_zero(f"max({ask.led('rankpulse_run_restarts')})"), "restarts"),
                Query(or_zero(f"max({ask.led('rankpulse_run_incidents_open')})"), "open incidents"),
                stepped=True,
                size=(8, 7),
            ),
        ],
    )


def _led(name: str, *matchers: str) -> str:
    return f"max({ask.led(name, *matchers)})"


def _counted(name: str) -> str:
    """How many more there are in each interval: every monitor counts the same."""
    return f"max(increase({ask(name)}[$__interval]))"


def _checkpoints() -> Block:
    step, verified = _led("rankpulse_run_checkpoint_step"), _led("rankpulse_run_checkpoint_verified_step")
    return Block(
        "What would a restart resume from?",
        [
            b.stat(
                "Newest checkpoint",
                "Step of the newest checkpoint, as the job itself has told.",
                Query(step),
                unit="none",
                none=UNTOLD,
                size=(6, 4),
            ),
            b.stat(
                "Newest verified checkpoint",
                "Step of the newest one that was read back after its save, or loaded: what a restart can trust.",
                Query(verified),
                unit="none",
                none=UNTOLD,
                size=(6, 4),
            ),
            b.stat(
                "Work at risk",
                "Time since a checkpoint was saved or loaded, as the monitor has seen it: what a crash would cost now.",
                Query(_led("rankpulse_run_checkpoint_age_seconds")),
                unit="s",
                none=UNTOLD,
                size=(6, 4),
            ),
            b.stat(
                "Saves failed",
                "Saves that did not become a checkpoint, since the run began. `rankpulse status` says why.",
                Query(_led("rankpulse_run_checkpoint_failures")),
                none=GONE,
                steps=((None, GREEN), (1, YELLOW)),
                size=(6, 4),
            ),
            b.graph(
                "Do checkpoints keep up with training?",
                "The lowest step over the ranks, and the steps of the newest and the newest verified checkpoint, and "
                "of the newest that outlives the nodes. The distance is the work that a restart would do twice.",
                Query(_led("rankpulse_run_step"), "training"),
                Query(step, "newest"),
                Query(verified, "newest verified"),
                Query(_led("rankpulse_checkpoint_durable_step"), "beyond the nodes"),
                unit="none",
                stepped=True,
                size=(12, 8),
            ),
            b.graph(
                "How long do they take?",
                "Seconds for the last save, the last verification and the last load. Training stands still meanwhile.",
                Query(_led("rankpulse_run_checkpoint_save_seconds"), "save"),
                Query(_led("rankpulse_run_checkpoint_verify_seconds"), "verify"),
                Query(_led("rankpulse_run_checkpoint_load_seconds"), "load"),
                unit="s",
                stepped=True,
                size=(12, 8),
            ),
            b.graph(
                "How old is the newest one?",
                "Time since a checkpoint was saved or loaded, and since one was verified. After a monitor's start it "
                "counts from then: the truth is no less.",
                Query(_led("rankpulse_run_checkpoint_age_seconds"), "newest"),
                Query(_led("rankpulse_run_checkpoint_verified_age_seconds"), "newest verified"),
                Query(_led("rankpulse_checkpoint_durable_age_seconds"), "beyond the nodes"),
                unit="s",
            ),
            b.graph(
                "How large are they?",
                "Bytes of the newest checkpoint, all shards together.",
                Query(_led("rankpulse_run_checkpoint_bytes"), "bytes"),
                unit="bytes",
                stepped=True,
            ),
            b.graph(
                "What became of them?",
                "Checkpoints saved, saves that failed, checkpoints that were not loaded because they are damaged "
                "or were set aside, and parts that were not brought beyond the nodes, per interval.",
                Query(_counted("rankpulse_run_checkpoint_saves"), "saved"),
                Query(_counted("rankpulse_run_checkpoint_failures"), "failed"),
                Query(_counted("rankpulse_run_checkpoint_refused"), "not loaded"),
                Query(_counted("rankpulse_checkpoint_upload_failures"), "not brought beyond the nodes"),
                bars=True,
            ),
        ],
    )


def _bounds(name: str) -> tuple[Query, ...]:
    """What is best, and what the 90 % interval allows."""
    return tuple(Query(_led(name, f'bound="{bound}"'), bound) for bound in ("best", "low", "high"))


def _interval() -> Block:
    return Block(
        "Does it save often enough?",
        [
            b.graph(
                "How often should it save?",
                "The interval between saves that loses the least time, with its bounds, by what is known of failures "
                "and of what saving takes; and the time since its newest checkpoint.",
                *_bounds("rankpulse_checkpoint_interval_advice_seconds"),
                Query(_led("rankpulse_run_checkpoint_age_seconds"), "since the newest"),
                unit="s",
            ),
            b.graph(
                "How often does it fail?",
                "The mean time between failures of this run on which that rests, with the bounds of its 90 % interval.",
                *_bounds("rankpulse_run_mtbf_seconds"),
                unit="s",
                stepped=True,
            ),
            b.graph(
                "What do saves and failures cost?",
                "The share of the run's time that both together are expected to take at the best interval.",
                Query(_led("rankpulse_checkpoint_lost_ratio"), "lost"),
                unit="percentunit",
                stepped=True,
            ),
        ],
    )


def _ranks() -> Block:
    colours = [
        {
            "matcher": {"id": "byName", "options": letter},
            "properties": [
                {"id": "displayName", "value": text},
                {"id": "color", "value": {"mode": "fixed", "fixedColor": color}},
            ],
        }
        for letter, (text, color) in STATES.items()
    ]
    return Block(
        "What are its ranks doing?",
        [
            b.graph(
                "Are all ranks here?",
                "Ranks seen in the present round, and how many it should have.",
                Query(f"max({ask.led('rankpulse_run_ranks')})", "seen"),
                Query(f"max({ask.led('rankpulse_run_world_size')})", "should be"),
                stepped=True,
            ),
            b.graph(
                "In which state are its processes?",
                "Ranks by the state of their process, as last told. One stopped (T) holds up all others. Waiting in "
                "the kernel (D) for long points to a disk, a driver or a network file system.",
                Query(f"max by (state) {ask.led('rankpulse_run_ranks_in_state')}", "{{state}}"),
                stacked=True,
                stepped=True,
                overrides=colours,
            ),
            b.graph(
                "In which phase are they?",
                "Ranks by phase: init, train, and those that the script names, such as checkpoint.",
                Query(f"max by (phase) {ask.led('rankpulse_run_ranks_in_phase')}", "{{phase}}"),
                stacked=True,
                stepped=True,
            ),
        ],
    )


def _nodes() -> Block:
    mine = ask("rankpulse_run_node_steps_behind")
    silence = f"({fleet.led('rankpulse_node_silence_seconds')} and on (cluster, instance, node) {mine})"
    return Block(
        "Is one of its nodes to blame?",
        [
            b.graph(
                "Who is behind?",
                "Steps by which a node's slowest rank is behind the run's fastest: the ten worst. One node behind all "
                "others is where to look first; 0 and 1 in turn is how a healthy run looks.",
                Query(f"topk(10, max by (node) {ask.led('rankpulse_run_node_steps_behind')})", "{{node}}"),
                stepped=True,
                size=(12, 8),
            ),
            b.graph(
                "Which of its nodes are silent?",
                "Seconds since the last heartbeat of its nodes: the ten longest.",
                Query(f"topk(10, max by (node) {silence})", "{{node}}"),
                unit="s",
                size=(12, 8),
            ),
            b.graph(
                "Who is slower than its peers?",
                "Ranks that are slower than the others, and how many times: by what they do while those wait, or by "
                "their own pace where nobody waits. Empty: none is. Nothing is restarted for that.",
                Query(f"max by (node, rank) {ask.led('rankpulse_run_straggler_ratio')}", "rank {{rank}} on {{node}}"),
                stepped=True,
                size=(12, 8),
            ),
            b.graph(
                "Is the run slower than it was?",
                "Time per step against what has been usual for this run: 1 is as usual, 2 is half as fast. Its ranks "
                "wait for each other, so one slow rank or link shows here even where it cannot be named.",
                Query(f"max({ask.led('rankpulse_run_slowdown_ratio')})", "times the usual step"),
                Query(or_zero(f"max({ask.led('rankpulse_run_stragglers')})"), "stragglers"),
                stepped=True,
                size=(12, 8),
            ),
        ],
    )
