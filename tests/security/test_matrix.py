"""Who tries what he may not: every cell of the matrix of docs/threat-model.md.

A cell is proved here, or by a test that the table names and that must exist. Each says how the try is refused, where
that is logged and where it is counted. etcd counts what it denies and writes no log of it; the table says so.
"""

import re
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fort import CLUSTER, NODES, Fort

from rankpulse.core.keys import Keys
from rankpulse.core.settings import StoreSettings
from rankpulse.store.api import Denied, StoreError

REPO = Path(__file__).resolve().parents[2]
KEYS = Keys(CLUSTER)
JOB, AGENT, CALLER, HOOK = "a job", "an agent", "an HTTP caller", "a webhook caller"


class Cell(NamedTuple):
    """`proof`: the name of a function here, or `file::test` for each part of it."""

    who: str
    tries: str
    refused: str
    logged: str
    counted: str
    proof: tuple[str, ...]


AGENT_LOG, SOCKET = "agent", "rankpulse_agent_socket_refused"
MATRIX = (
    Cell(JOB, "reads another user's run at the socket", "it is answered with its own processes only", "–", "–",
         ("tests/agent/test_strangers.py::test_another_user_sees_nothing_of_a_run",)),
    Cell(JOB, "reads another run's advice at the socket", "an error", AGENT_LOG, SOCKET,
         ("tests/agent/test_advice.py::test_a_job_hears_of_its_own_run",
          "tests/agent/test_advice.py::test_who_is_no_worker_is_told_so")),
    Cell(JOB, "reads the store", "no certificate: the handshake fails", "etcd", "–", ("reads_the_store",)),
    Cell(JOB, "forges a beat in the store", "no certificate: the handshake fails", "etcd", "–", ("forges_a_beat",)),
    Cell(JOB, "forges the slot of another user's process", "the slot is not believed", AGENT_LOG,
         "rankpulse_agent_slots_refused",
         ("tests/agent/test_agent_workers.py::test_a_user_cannot_speak_for_anothers_process",
          "tests/agent/test_agent_workers.py::test_refused_slots_are_told_once_and_the_rest_is_served")),
    Cell(JOB, "speaks as another process at the socket", "the kernel says who speaks", "–", "–",
         ("tests/agent/test_sock_sessions.py::test_the_peer_is_the_kernels_word",)),
    Cell(JOB, "orders a restart at the socket", "there is no such request", AGENT_LOG, SOCKET,
         ("tests/agent/test_strangers.py::test_nobody_orders_anything_at_the_socket",)),
    Cell(JOB, "cordons a node at the socket", "there is no such request", AGENT_LOG, SOCKET,
         ("tests/agent/test_strangers.py::test_nobody_orders_anything_at_the_socket",)),
    Cell(JOB, "orders a restart in the store", "no certificate: the handshake fails", "etcd", "–",
         ("orders_in_the_store",)),
    Cell(JOB, "makes the agent kill a foreign process", "only what an order names exactly, and is a worker, is killed",
         AGENT_LOG, "rankpulse_agent_orders_done",
         ("tests/agent/test_orders.py::test_whoever_is_not_exactly_meant_lives",
          "tests/agent/test_rdzv_orders.py::test_whose_child_it_is_not_cannot_be_held",
          "tests/agent/test_rdzv_orders.py::test_the_second_rung_spares_the_round_after_it")),
    Cell(AGENT, "writes another node's keys", "permission denied", "–", "etcd", ("agent_writes_another_nodes_keys",)),
    Cell(AGENT, "writes an order, a cordon, the ledger or the leader", "permission denied", "–", "etcd",
         ("agent_writes_orders",)),
    Cell(AGENT, "writes a record that names another node under its own key", "the record is not read", "monitor",
         "rankpulse_monitor_refused",
         ("tests/core/test_records_and_keys.py::test_nobody_speaks_in_anothers_name",)),
    Cell(AGENT, "uses another node's name with its own certificate", "permission denied", "–", "etcd",
         ("tests/security/test_rotation.py::test_the_certificate_says_who_we_are_from_then_on",)),
    Cell(CALLER, "acts without a token", "401", "monitor", "rankpulse_monitor_http_refused",
         ("tests/security/test_whole_live.py::test_who_may_act_acts_in_his_name_and_nobody_else_does",
          "tests/security/test_door.py::test_refused_is_logged_and_counted_and_the_token_stands_nowhere")),
    Cell(CALLER, "acts with a token that reads", "403", "monitor", "rankpulse_monitor_http_refused",
         ("tests/security/test_whole_live.py::test_who_may_act_acts_in_his_name_and_nobody_else_does",)),
    Cell(CALLER, "acts in another's name", "400: the name is the token's", "–", "–",
         ("tests/security/test_door.py::test_who_may_act_acts_in_his_own_name",)),
    Cell(CALLER, "acts through a browser that somebody is logged in with", "403", "monitor",
         "rankpulse_monitor_http_refused", ("tests/security/test_door.py::test_who_comes_in",)),
    Cell(CALLER, "reads through a page that has its name point here", "421", "monitor",
         "rankpulse_monitor_http_refused",
         ("tests/security/test_door.py::test_a_page_that_calls_itself_by_our_address_is_not_answered",
          "tests/security/test_door.py::test_refused_is_logged_and_counted_and_the_token_stands_nowhere")),
    Cell(CALLER, "guesses tokens", "401, then 429", "monitor", "rankpulse_monitor_http_refused",
         ("tests/security/test_door.py::test_who_guesses_is_told_to_wait_and_fills_no_log_and_keeps_nobody_out",)),
    Cell(CALLER, "looks at an agent without the shared secret", "no answer", AGENT_LOG, "rankpulse_agent_probes",
         ("tests/agent/test_probe.py::test_with_a_token_only_who_knows_it_is_told_anything",
          "tests/agent/test_probe.py::test_who_knocks_in_vain_and_is_believed_in_turns_cannot_fill_the_log")),
    Cell(HOOK, "forges a signature", "401", "receiver", "rankpulse_receiver_refused",
         ("tests/receiver/test_verifying.py::test_forged_signatures_are_refused",
          "tests/receiver/test_desk.py::test_forged_ones_change_nothing_and_are_told_less_and_less")),
    Cell(HOOK, "replays a request", "204, and nothing is done", "receiver", "rankpulse_receiver_events",
         ("tests/receiver/test_desk.py::test_the_same_id_again_does_nothing",
          "tests/receiver/test_desk.py::test_a_replay_is_refused_also_after_a_restart_of_ours")),
    Cell(HOOK, "sends a request late", "401", "receiver", "rankpulse_receiver_refused",
         ("tests/receiver/test_verifying.py::test_late_and_early_are_refused_both",)),
    Cell(HOOK, "sends a request that is too large", "413", "receiver", "rankpulse_receiver_refused",
         ("tests/receiver/test_server.py::test_what_is_refused_is_counted_and_told_of",
          "tests/receiver/test_server.py::test_a_body_without_an_announced_length_is_bounded_too")),
    Cell(HOOK, "asks for a job that is not on the list", "403", "audit", "rankpulse_receiver_events",
         ("tests/receiver/test_deciding.py::test_what_is_not_allowed_is_denied",)),
)  # fmt: skip
ELSEWHERE = sorted({proof for cell in MATRIX for proof in cell.proof if "::" in proof})


@pytest.mark.parametrize("proof", ELSEWHERE)
def test_what_the_matrix_rests_on_is_there(proof: str) -> None:
    file, _, name = proof.partition("::")
    text = (REPO / file).read_text(encoding="utf-8")
    assert re.search(rf"^(async )?def {name}\(", text, flags=re.MULTILINE), proof


def test_the_page_shows_this_matrix() -> None:
    page = (REPO / "docs" / "threat-model.md").read_text(encoding="utf-8")
    begins = tuple(f"| {who} |" for who in (JOB, AGENT, CALLER, HOOK))
    told = [line for line in page.splitlines() if line.startswith(begins)]
    assert told == [row(cell) for cell in MATRIX]


def row(cell: Cell) -> str:
    counted = f"`{cell.counted}`" if cell.counted.startswith("rankpulse_") else cell.counted
    return f"| {cell.who} | {cell.tries} | {cell.refused} | {cell.logged} | {counted} |"


# --- cells that are proved here


async def reads_the_store(fort: Fort) -> None:
    await _kept_out(fort, lambda store: store.list(KEYS.prefix))


async def forges_a_beat(fort: Fort) -> None:
    await _kept_out(fort, lambda store: store.put(KEYS.beat(NODES[0]), b"{}"))


async def orders_in_the_store(fort: Fort) -> None:
    await _kept_out(fort, lambda store: store.put(KEYS.order("r", 1, "restart"), b"{}"))
    await _kept_out(fort, lambda store: store.put(KEYS.request("q"), b"{}"))


async def _kept_out(fort: Fort, call: Callable[[Any], Awaitable[Any]]) -> None:
    """Who has no certificate, and who has one of a CA of his own."""
    bare = StoreSettings(endpoints=(fort.etcd.endpoint,), ca_file=fort.authority.ca_file, timeout_s=5.0)
    async with fort.opened(bare) as store:
        with pytest.raises(StoreError, match=r"store\.cert_file"):
            await call(store)
    assert "rejected connection" in fort.etcd.log_file.read_text()


async def agent_writes_another_nodes_keys(fort: Fort) -> None:
    own, other = NODES
    keys = (KEYS.beat(other), KEYS.claim(other), KEYS.state(other), KEYS.obs(other, 1, 1))
    await _denied_and_counted(fort, own, keys)


async def agent_writes_orders(fort: Fort) -> None:
    keys = (
        KEYS.order("r", 1, "restart"), KEYS.cordon(NODES[1]), KEYS.gate("r", 1), KEYS.ledger_origin(), KEYS.leader(),
        KEYS.arm(), KEYS.request("q"), KEYS.incident("i"), KEYS.advice("r"),
    )  # fmt: skip
    await _denied_and_counted(fort, NODES[0], keys)


async def _denied_and_counted(fort: Fort, node: str, keys: tuple[str, ...]) -> None:
    before = _refusals(fort)
    async with fort.opened(fort.part("agent", node)) as store:
        for key in keys:
            with pytest.raises(Denied, match="may not do this"):
                await store.put(key, b"forged")
    async with fort.opened(fort.part("reader")) as store:
        assert [await store.get(key) for key in keys] == [None] * len(keys)
    assert _refusals(fort) >= before + len(keys)


def _refusals(fort: Fort) -> float:
    """What etcd has counted as denied."""
    with urllib.request.urlopen(f"http://127.0.0.1:{fort.etcd._ports[2]}/metrics", timeout=10) as got:
        text = got.read().decode()
    found = re.findall(r'^grpc_server_handled_total\{grpc_code="PermissionDenied".*\} (\S+)$', text, flags=re.MULTILINE)
    return sum(map(float, found))


HERE: dict[str, Callable[[Fort], Awaitable[None]]] = {
    one.__name__: one
    for one in (
        reads_the_store, forges_a_beat, orders_in_the_store, agent_writes_another_nodes_keys, agent_writes_orders,
    )
}  # fmt: skip


@pytest.mark.live
@pytest.mark.parametrize("name", HERE)
async def test_in_the_store(fort: Fort, name: str) -> None:
    await HERE[name](fort)


def test_every_proof_of_here_is_played() -> None:
    assert {proof for cell in MATRIX for proof in cell.proof if "::" not in proof} == set(HERE)
