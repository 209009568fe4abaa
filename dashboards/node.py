"""The dashboard of one node and its GPUs: is this machine well, and if not, what about it?"""

from typing import Any

from rankpulse.dashboards import board as b
from rankpulse.dashboards import links as to
from rankpulse.dashboards import node_gpus as gpus
from rankpulse.dashboards.board import GREEN, GREY, RED, YELLOW, Block, Query
from rankpulse.dashboards.node_gpus import CLUSTER, NODE, ask, of, worst
from rankpulse.dashboards.promql import or_zero


def build() -> dict[str, Any]:
    """The dashboard as plain values."""
    agents = f"rankpulse_agent_info{{{CLUSTER}}}"
    return b.dashboard(
        to.NODE,
        "Is this machine well, and if not, what about it: its agent, its GPUs, its links, the host?",
        ask,
        [
            b.variable("cluster", "Cluster", "label_values(rankpulse_monitor_info, cluster)", every=True),
            b.variable("node", "Node", f"label_values({agents}, node)", every=False),
            b.variable("gpu", "GPU", f"label_values(rankpulse_gpu_info{{{CLUSTER}}}, gpu)", every=True),
        ],
        [_well(), gpus.matter(), gpus.xids(), gpus.memory(), gpus.work(), gpus.links(), _agent(), _host()],
    )


def _well() -> Block:
    silence = f"max({ask.led('rankpulse_node_silence_seconds', NODE)})"
    deadline = f"max({ask.led('rankpulse_node_deadline_seconds', NODE)})"
    return Block(
        "Is this node well?",
        [
            b.stat(
                "Heartbeat",
                "Silence as a share of the node's own deadline; beyond 100 % it is suspected.",
                Query(f"{silence} / {deadline}"),
                unit="percentunit",
                steps=((None, GREEN), (0.5, YELLOW), (1, RED)),
                none="not known to the leader",
                runbook="RankpulseAgentSilent",
                size=(4, 4),
            ),
            b.stat(
                "Suspected",
                "Whether the leading monitor suspects it to be gone.",
                Query(f"max({ask.led('rankpulse_node_suspect', NODE)})"),
                words=b.says({0: ("no", GREEN), 1: ("SUSPECTED", RED)}),
                size=(4, 4),
            ),
            b.stat(
                "Its GPUs",
                "The worst of what is open about any of its GPUs.",
                Query(f"max({worst()})"),
                words=gpus.HEALTH,
                none="no GPU is seen",
                runbook="RankpulseGpuBroken",
                size=(4, 4),
            ),
            b.stat(
                "Xids in this time",
                "Faults that the driver told of, each once, within the time shown.",
                Query(or_zero(f"sum(increase({ask('rankpulse_gpu_xids')}[$__range]) and {gpus.HERE})")),
                decimals=0,
                steps=((None, GREEN), (1, YELLOW)),
                runbook="RankpulseGpuXids",
                size=(4, 4),
            ),
            b.stat(
                "Its workers",
                "Worker processes that its agent watches.",
                Query(f"max({ask('rankpulse_agent_workers', NODE)})"),
                none="no agent is scraped",
                steps=((None, GREY),),
                size=(4, 4),
            ),
            b.stat(
                "Its way to the store",
                "Seconds since the store last acknowledged a heartbeat, as its agent says.",
                Query(f"max({ask('rankpulse_agent_store_silence_seconds', NODE)})"),
                unit="s",
                steps=((None, GREEN), (10, YELLOW), (60, RED)),
                none="no agent is scraped",
                runbook="RankpulseAgentCutOff",
                size=(4, 4),
            ),
        ],
    )


def _agent() -> Block:
    return Block(
        "Does its agent see?",
        [
            b.graph(
                "Which sources work?",
                "1 while a source of knowledge works, 0 while it does not. `rankpulse status` says why.",
                Query(f"max by (source) ({ask('rankpulse_agent_capability', NODE)})", "{{source}}"),
                stepped=True,
                top=1,
            ),
            b.graph(
                "How old is what it sees?",
                "Seconds since a source last answered: slots of ranks, the host, and the GPU that has been silent for "
                "longest.",
                Query(f"max by (source) ({ask('rankpulse_agent_source_age_seconds', NODE)})", "{{source}}"),
                unit="s",
            ),
            b.graph(
                "What does it report?",
                "Observations of this agent per interval, by kind.",
                Query(
                    f"sum by (kind) (increase({ask('rankpulse_agent_observations', NODE)}[$__interval]))", "{{kind}}"
                ),
                bars=True,
                stacked=True,
            ),
        ],
    )


def _host() -> Block:
    return Block(
        "How is the machine around them?",
        [
            b.graph(
                "Does it wait for memory?",
                "Share of the last minute in which everything waited for memory, by the kernel. Much of it: swapping, "
                "or a container at its limit.",
                Query(f"max({of('rankpulse_host_memory_pressure_ratio')})", "waits"),
                unit="percentunit",
                steps=((None, GREEN), (0.1, RED)),
            ),
            b.graph(
                "Is its clock right?",
                "The largest error that the kernel expects of its clock. Nothing rests on it but what people read.",
                Query(f"max({of('rankpulse_host_clock_error_seconds')})", "error at most"),
                unit="s",
            ),
            b.graph(
                "Who asks its GPUs?",
                "Processes started to ask GPUs, and those that hang in a call to the driver. Any of those: the driver "
                "or a GPU is stuck.",
                Query(f"max({of('rankpulse_gpu_probes')})", "started"),
                Query(f"max({of('rankpulse_gpu_probes_stuck')})", "hang"),
                stepped=True,
                runbook="RankpulseGpuProbeStuck",
            ),
            b.graph(
                "Are its network ports up?",
                "1 while a port is up, by port; of RDMA cards as card/port.",
                Query(f"max by (port) ({of('rankpulse_host_port_up')})", "{{port}}"),
                stepped=True,
                top=1,
                size=(12, 7),
            ),
            b.graph(
                "Do its ports err?",
                "Events on network ports per interval, by the card's counters, the ten most.",
                Query(
                    f"topk(10, sum by (port, kind) ({of('rankpulse_host_port_errors', grown='$__interval')}))",
                    "{{port}} {{kind}}",
                ),
                bars=True,
                size=(12, 7),
            ),
        ],
    )
