"""What the dashboards of the fleet and of rankpulse itself ask about machines: nodes, agents, direct looks."""

from typing import Any, Final

from rankpulse.dashboards import board as b
from rankpulse.dashboards.board import GREEN, RED, Block, Query
from rankpulse.dashboards.promql import Ask, or_zero

ask: Final = Ask('cluster=~"$cluster"')
NODE: Final = 'node=~"$node"'


def _top(query: str) -> str:
    return f"topk(10, {query})"


def nodes() -> Block:
    silence = f"({ask.led('rankpulse_node_silence_seconds', NODE)} unless on (cluster, instance, node) "
    silence += f"{ask('rankpulse_node_leaving', NODE)} == 1)"
    share = f"max by (node) {silence} / {ask.leader('rankpulse_node_deadline_seconds', 'node', NODE)}"
    return Block(
        "Which nodes are late or silent?",
        [
            b.graph(
                "Who has been silent longest?",
                "Seconds since the last heartbeat, the ten longest. Nodes that said goodbye are left out.",
                Query(_top(f"max by (node) {silence}"), "{{node}}"),
                unit="s",
                size=(12, 8),
            ),
            b.graph(
                "Who is near its deadline?",
                "Silence as a share of the node's own deadline, which is learned from its usual lateness. Beyond 100 % "
                "the node is suspected. Many nodes late together mean that the path is late, not the nodes.",
                Query(_top(share), "{{node}}"),
                unit="percentunit",
                steps=((None, GREEN), (1, RED)),
                size=(12, 8),
            ),
            b.graph(
                "Who is suspected?",
                "1 while a node is suspected: the ten that are, if any.",
                Query(_top(ask.leader("rankpulse_node_suspect", "node", NODE)), "{{node}}"),
                stepped=True,
                size=(12, 7),
            ),
            b.graph(
                "Are all nodes and agents here?",
                "Nodes that the leader knows, those whose agent said goodbye, those with a broken GPU, and agents that "
                "Prometheus reaches.",
                Query(or_zero(f"count({ask.led('rankpulse_node_leaving')})"), "nodes known"),
                Query(or_zero(f"sum({ask.led('rankpulse_node_leaving')})"), "said goodbye"),
                Query(or_zero(f"max({ask.led('rankpulse_nodes_with_broken_gpu')})"), "with a broken GPU"),
                Query(or_zero(f"count({ask('rankpulse_agent_info')})"), "agents scraped"),
                stepped=True,
                size=(12, 7),
            ),
        ],
    )


def agents() -> Block:
    return Block(
        "Do the agents do their work?",
        [
            b.graph(
                "Do heartbeats arrive?",
                "Heartbeats per second that the store acknowledged, and those that did not reach it, over all agents.",
                Query(f"sum(rate({ask('rankpulse_agent_beats', NODE)}[$__rate_interval]))", "acknowledged"),
                Query(f"sum(rate({ask('rankpulse_agent_beat_failures', NODE)}[$__rate_interval]))", "failed"),
                unit="hertz",
            ),
            b.graph(
                "Which agents do not reach the store?",
                "Seconds since the store last acknowledged a heartbeat, as the agent itself says: the ten longest. One "
                "agent: its network. All of them: the store.",
                Query(_top(f"max by (node) ({ask('rankpulse_agent_store_silence_seconds', NODE)})"), "{{node}}"),
                unit="s",
                steps=((None, GREEN), (60, RED)),
            ),
            b.graph(
                "What waits on the agents' disks?",
                "Observations (deaths, joins, orders done) that wait for the store: the ten longest queues.",
                Query(_top(f"max by (node) ({ask('rankpulse_agent_spooled', NODE)})"), "{{node}}"),
            ),
            b.graph(
                "Is anything lost?",
                "Observations dropped because the spool was full: the ten worst. Anything but 0 means that deaths may "
                "go unexplained.",
                Query(
                    _top(f"max by (node) (increase({ask('rankpulse_agent_dropped', NODE)}[$__interval]))"),
                    "{{node}}",
                ),
                bars=True,
            ),
            b.graph(
                "How many workers are watched?",
                "Worker processes that all agents watch. Fewer than ranks: a job runs where no agent sees it.",
                Query(or_zero(f"sum({ask('rankpulse_agent_workers', NODE)})"), "workers"),
                stepped=True,
            ),
            b.graph(
                "What do agents report?",
                "Observations per second by kind: joins, exits, changes of state, evidence.",
                Query(
                    f"sum by (kind) (rate({ask('rankpulse_agent_observations', NODE)}[$__rate_interval]))", "{{kind}}"
                ),
                stacked=True,
            ),
            b.graph(
                "Do agents restart?",
                "Starts of agents by node, the ten highest counts. A step is a start.",
                Query(_top(f"max by (node) ({ask('rankpulse_agent_incarnation', NODE)})"), "{{node}}"),
                stepped=True,
            ),
            b.graph(
                "Where is a source missing?",
                "Agents on which a source of knowledge does not work. It costs sharpness, not the watch itself. "
                "`rankpulse status` says why.",
                Query(f"sum by (source) (1 - {ask('rankpulse_agent_capability', NODE)})", "{{source}}"),
                stepped=True,
            ),
            b.graph(
                "Orders carried out, slots refused",
                "Restart orders carried out by agents, and slot files of jobs that were refused: forged, stale, or of "
                "another version.",
                Query(f"sum(increase({ask('rankpulse_agent_orders_done', NODE)}[$__interval]))", "orders done"),
                Query(f"sum(increase({ask('rankpulse_agent_slots_refused', NODE)}[$__interval]))", "slots refused"),
                bars=True,
            ),
            b.graph(
                "Are the numbers of the training finite?",
                "Steps in a row whose loss or gradient norm is NaN or Inf, the ten nodes with the longest rows. One or "
                "two now and then are a loss scaler at work.",
                Query(_top(f"max by (node) ({ask('rankpulse_agent_non_finite_row', NODE)})"), "{{node}}"),
                stepped=True,
                size=(12, 7),
            ),
            b.graph(
                "How many steps are not finite?",
                "Steps of ranks whose loss or gradient norm was NaN or Inf, over all agents.",
                Query(
                    f"sum by (what) (increase({ask('rankpulse_agent_non_finite_steps', NODE)}[$__interval]))",
                    "{{what}}",
                ),
                bars=True,
                size=(12, 7),
            ),
        ],
    )


def looks() -> list[Any]:
    return [
        b.graph(
            "What do direct looks find?",
            "Looks at suspects' agents, past the store, by answer. `silent`: the machine or the way to it is gone. "
            "`refused`, `accepted`: the machine lives, its agent does not or is stuck.",
            Query(f"sum by (answer) (increase({ask('rankpulse_monitor_probes')}[$__interval]))", "{{answer}}"),
            bars=True,
            stacked=True,
            size=(6, 7),
        ),
        b.graph(
            "Who could never be looked at?",
            "1 for a node whose agent no direct look has reached, the first ten: its silence tells less. "
            "`rankpulse doctor` says why.",
            Query(_top(f"1 - {ask.leader('rankpulse_node_reached', 'node', NODE)}"), "{{node}}"),
            stepped=True,
            size=(6, 7),
        ),
        b.graph(
            "How long do looks take?",
            "The last direct look of each monitor. At its time limit: nobody answers.",
            Query(f"max by (instance) ({ask('rankpulse_monitor_probe_seconds')})", "{{instance}}"),
            unit="s",
            size=(6, 7),
        ),
        b.graph(
            "Who knocks at the agents?",
            "Looks that agents answered, and those that they refused: another token, or no monitor of ours.",
            Query(f"sum by (result) (increase({ask('rankpulse_agent_probes', NODE)}[$__interval]))", "{{result}}"),
            bars=True,
            stacked=True,
            size=(6, 7),
        ),
    ]
