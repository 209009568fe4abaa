"""What the dashboard of a node asks about its GPUs. Panels name a GPU by the driver's index."""

from typing import Final

from rankpulse.dashboards import board as b
from rankpulse.dashboards.board import GREEN, RED, YELLOW, Block, Query
from rankpulse.dashboards.promql import Ask

CLUSTER: Final = 'cluster=~"$cluster"'
NODE, GPU = 'node="$node"', 'gpu=~"$gpu"'
ask: Final = Ask(CLUSTER)
HERE: Final = f"on (cluster, instance) {ask('rankpulse_agent_info', NODE)}"  # metrics of GPUs name hosts, not nodes
HEALTH: Final = b.says(
    {0: ("ok", GREEN), 1: ("watch", GREEN), 2: ("UNKNOWN", YELLOW), 3: ("SICK", YELLOW), 4: ("BROKEN", RED)}
)


def of(name: str, *matchers: str, grown: str = "") -> str:
    """A metric of the chosen node's own page. grown: by how much, over that range."""
    asked = ask(name, *matchers)
    return f"({f'increase({asked}[{grown}])' if grown else asked} and {HERE})"


def each(name: str, *by: str, grown: str = "") -> str:
    """One series for each GPU, and for each value of the labels `by`."""
    labels = ", ".join(("gpu", *by))
    return f"max by ({labels}) {of(name, GPU, grown=grown)}"


def worst() -> str:
    return each("rankpulse_gpu_health")


def _flags(*names: tuple[str, str]) -> tuple[Query, ...]:
    return tuple(Query(each(f"rankpulse_gpu_{name}"), f"GPU {{{{gpu}}}} {told}") for name, told in names)


def matter() -> Block:
    return Block(
        "What is the matter with its GPUs?",
        [
            b.graph(
                "How is each GPU?",
                "The worst of what is open, by GPU: 0 ok, 1 watch, 2 unknown, 3 sick, 4 broken.",
                Query(worst(), "GPU {{gpu}}"),
                words=HEALTH,
                stepped=True,
                top=4,
                runbook="RankpulseGpuBroken",
                size=(12, 8),
            ),
            b.graph(
                "What was found?",
                "1 while this is the matter, with what mends it; 0 after it was cleared, which takes proof.",
                Query(each("rankpulse_gpu_finding", "what", "action"), "GPU {{gpu}} {{what}}: {{action}}"),
                stepped=True,
                top=1,
                runbook="RankpulseGpuSick",
                size=(12, 8),
            ),
            b.graph(
                "What does the driver ask for?",
                "Its recovery action: 0 nothing, 1 reset, 2 reboot, 4 drain and reset.",
                Query(each("rankpulse_gpu_recovery_action"), "GPU {{gpu}}"),
                stepped=True,
            ),
            b.graph(
                "Was it reset?",
                "Resets that were seen per interval: volatile counters that went down, drivers loaded anew.",
                Query(each("rankpulse_gpu_resets", grown="$__interval"), "GPU {{gpu}}"),
                bars=True,
            ),
            b.graph(
                "Which boards are these?",
                "Each GPU with its model, place on the bus and serial name: what to tell a vendor.",
                Query(
                    each("rankpulse_gpu_info", "modelName", "pci_bus_id", "UUID"),
                    "GPU {{gpu}} {{modelName}} {{pci_bus_id}} {{UUID}}",
                ),
                stepped=True,
            ),
        ],
    )


def xids() -> Block:
    """Times are told in milliseconds, as Grafana reads them."""
    by = ("xid",)
    return Block(
        "Which faults did the driver tell of?",
        [
            b.table(
                "Xids",
                "Each code since its agent began, how often, and when first and last. `rankpulse xid CODE` explains "
                "it. Empty: none.",
                Query(each("rankpulse_gpu_xids", *by), name="times"),
                Query(f"1000 * {each('rankpulse_gpu_xid_first_seen_timestamp_seconds', *by)}", name="first seen"),
                Query(f"1000 * {each('rankpulse_gpu_xid_last_seen_timestamp_seconds', *by)}", name="last seen"),
                links={},
                none="none",
                runbook="RankpulseGpuXids",
                size=(12, 8),
            ),
            b.graph(
                "When did they come?",
                "Xids per interval, by code.",
                Query(each("rankpulse_gpu_xids", *by, grown="$__interval"), "GPU {{gpu}} Xid {{xid}}"),
                bars=True,
                stacked=True,
                size=(12, 8),
            ),
        ],
    )


def memory() -> Block:
    return Block(
        "Does their memory hold?",
        [
            b.graph(
                "Errors since the last reset",
                "Memory errors since the last reset or driver load. Corrected ones are normal in small numbers, "
                "uncorrected ones end a process.",
                *_flags(("ecc_corrected_volatile", "corrected"), ("ecc_uncorrected_volatile", "uncorrected")),
                stepped=True,
                runbook="RankpulseGpuUncorrectedErrors",
                size=(12, 7),
            ),
            b.graph(
                "Errors over its life",
                "Memory errors over the life of the board, as the board counts them.",
                *_flags(("ecc_corrected_aggregate", "corrected"), ("ecc_uncorrected_aggregate", "uncorrected")),
                stepped=True,
                size=(12, 7),
            ),
            b.graph(
                "Rows remapped",
                "Memory rows replaced by spare ones, after corrected and after uncorrected errors. Eight banks without "
                "a spare row: the board is to be replaced.",
                *_flags(("rows_remapped_corrected", "corrected"), ("rows_remapped_uncorrected", "uncorrected")),
                stepped=True,
                size=(12, 7),
            ),
            b.graph(
                "What waits for a reset, what is over?",
                "1 while a remapped row or a retired page waits for a reset; 1 when a row could not be remapped or "
                "the SRAM has too many errors: then the board is to be replaced.",
                *_flags(
                    ("row_remap_pending", "remap waits"),
                    ("row_remap_failed", "REMAP FAILED"),
                    ("retired_pages_pending", "page waits"),
                    ("sram_threshold_exceeded", "SRAM"),
                ),
                stepped=True,
                top=1,
                runbook="RankpulseGpuRemapPending",
                size=(12, 7),
            ),
        ],
    )


def work() -> Block:
    return Block(
        "Do they work as they should?",
        [
            b.graph(
                "Do they run kernels?",
                "Share of the time in which a kernel ran. A collective that waits counts as well: it says nothing of "
                "progress.",
                Query(each("rankpulse_gpu_busy_ratio"), "GPU {{gpu}}"),
                unit="percentunit",
                top=1,
            ),
            b.graph(
                "How much memory is used?",
                "Memory in use. Some that is left after a job: a process that did not end.",
                Query(each("rankpulse_gpu_memory_used_bytes"), "GPU {{gpu}}"),
                unit="bytes",
            ),
            b.graph(
                "How warm are they?",
                "Temperature of the GPU and of its memory.",
                *_flags(("temperature_celsius", ""), ("memory_temperature_celsius", "memory")),
                unit="celsius",
            ),
            b.graph(
                "What do they draw?",
                "Power. One that draws less than its peers at the same work is slower.",
                Query(each("rankpulse_gpu_power_watts"), "GPU {{gpu}}"),
                unit="watt",
            ),
            b.graph(
                "How fast is their clock?",
                "Clock of the multiprocessors. One below its peers holds up the whole job.",
                Query(each("rankpulse_gpu_sm_clock_hertz"), "GPU {{gpu}}"),
                unit="hertz",
            ),
            b.graph(
                "Are they held down?",
                "Share of the time in which clocks were held down, by reason: power, heat, or the power brake.",
                Query(
                    f"max by (gpu, reason) (rate({ask('rankpulse_gpu_held_down_seconds', GPU)}[$__rate_interval]) "
                    f"and {HERE})",
                    "GPU {{gpu}} {{reason}}",
                ),
                unit="percentunit",
                steps=((None, GREEN), (0.1, RED)),
            ),
            b.graph(
                "Why, at present?",
                "Reasons for which clocks are held down now, as the driver's bits; 0 or 1 (idle) is well.",
                Query(each("rankpulse_gpu_clock_event_reasons"), "GPU {{gpu}}"),
                unit="none",
                stepped=True,
                size=(12, 7),
            ),
            b.graph(
                "Is the PCIe link clean?",
                "Replays on the PCIe link per interval. Many of them: a riser or a slot.",
                Query(each("rankpulse_gpu_pcie_replays", grown="$__interval"), "GPU {{gpu}}"),
                bars=True,
                size=(12, 7),
            ),
        ],
    )


def links() -> Block:
    return Block(
        "Do their links hold?",
        [
            b.graph(
                "How many links are up?",
                "NVLinks that are up, by GPU. One below its peers: that GPU's collectives are slower, or fail.",
                Query(f"sum by (gpu) {of('rankpulse_gpu_nvlink_up', GPU)}", "GPU {{gpu}}"),
                stepped=True,
                runbook="RankpulseNvlinkDown",
            ),
            b.graph(
                "Do links err?",
                "Events on NVLinks per interval, by kind, the ten most; `all` is all links together.",
                Query(
                    f"topk(10, {each('rankpulse_gpu_nvlink_errors', 'link', 'kind', grown='$__interval')})",
                    "GPU {{gpu}} link {{link}} {{kind}}",
                ),
                bars=True,
                runbook="RankpulseNvlinkErrors",
            ),
            b.graph(
                "Is the fabric there?",
                "State of the NVLink fabric: 1 not started, 2 in progress, 3 completed.",
                Query(each("rankpulse_gpu_fabric_state"), "GPU {{gpu}}"),
                stepped=True,
                top=3,
            ),
        ],
    )
