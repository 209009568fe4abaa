"""`rankpulse store init`: the key table, in a real etcd."""

import asyncio
import itertools
import os
from pathlib import Path

import pytest
from fort import CLUSTER, Fort, init

from rankpulse.cli.failing import Failed
from rankpulse.core.keys import Keys
from rankpulse.core.settings import StoreSettings
from rankpulse.core.store_care import roles_leak
from rankpulse.store import roles
from rankpulse.store.api import Denied
from rankpulse.store.calls import prefix_end
from rankpulse.store.embedded import EmbeddedEtcd

KEYS = Keys(CLUSTER)


def test_from_nothing_to_all_and_then_nothing_to_do() -> None:
    wanted = roles.wanted(KEYS, ["n1", "n2"])
    there = roles.Permits(wanted.roles, wanted.users)
    assert roles.steps(wanted, there) == []
    made = roles.steps(wanted, roles.Permits())
    assert {step.role for step in made if isinstance(step, roles.AddRole)} == set(wanted.roles)
    agents = [step for step in made if isinstance(step, roles.Allow) and step.role.endswith("agent.n1")]
    assert {(step.where[0], step.what) for step in agents} == {
        (KEYS.node("n1"), "readwrite"),
        (KEYS.rdzv(), "readwrite"),
        *((prefix, "read") for prefix in (KEYS.orders(), KEYS.gates(), KEYS.cordons(), KEYS.advices())),
    }


def test_what_a_role_may_beyond_the_table_is_taken_from_it() -> None:
    wanted = roles.wanted(KEYS, ["n1"])
    agent = roles.name_of(CLUSTER, "agent", "n1")
    more = {**wanted.roles, agent: {**wanted.roles[agent], (KEYS.orders(), "/x"): "readwrite", ("k", ""): "read"}}
    taken = roles.steps(wanted, roles.Permits(more, wanted.users))
    assert taken == [roles.Forbid(agent, (KEYS.orders(), "/x")), roles.Forbid(agent, ("k", ""))]


def test_nodes_of_a_file() -> None:
    assert roles.node_names(["# the new rack", "gpu01", "", "  gpu02 "]) == ["gpu01", "gpu02"]


@pytest.mark.live
def test_with_passwords_from_an_open_etcd_to_a_closed_one(tmp_path: Path) -> None:
    folder = tmp_path / "passwords"
    with EmbeddedEtcd() as etcd:
        open_still = StoreSettings(endpoints=(etcd.endpoint,))
        told = [line for line in init(open_still, "n1", dry_run=True) if not line.startswith("look: ")]
        assert all("would be done" in line for line in told[:-1])
        assert any("STILL" in line for line in init(open_still, "n1", password_dir=str(folder)))
        said = init(open_still, "n1", "n2", password_dir=str(folder), enable_auth=True)
        assert any(line.startswith("user rankpulse.prod.agent.n2: made") for line in said)
        assert not any("agent.n1: made" in line for line in said)
        assert "proved" in said[-1]
        secrets = {path.name: path.read_text().strip() for path in folder.iterdir()}
        assert set(secrets) == {"root", *roles.wanted(KEYS, ["n1", "n2"]).users}
        assert all(path.stat().st_mode & 0o777 == 0o600 for path in folder.iterdir())
        assert not any(secret in line for secret, line in itertools.product(secrets.values(), said))

        with pytest.raises(Failed, match="root"):
            init(open_still, "n1")
        agent = StoreSettings(
            endpoints=(etcd.endpoint,),
            user="rankpulse.prod.agent.n1",
            password_file=str(folder / "rankpulse.prod.agent.n1"),
        )
        with pytest.raises(Failed, match="root"):
            init(agent, "n1")
        root = StoreSettings(endpoints=(etcd.endpoint,), user="root", password_file=str(folder / "root"))
        again = init(root, "n1", "n2", password_dir=str(folder), enable_auth=True)
        assert any("nothing to do" in line for line in again)
        assert any("agent.n3: made" in line for line in init(root, "n3", password_dir=str(folder)))


@pytest.mark.live
def test_the_door_is_not_closed_behind_whom_it_would_lock_out(fort: Fort, tmp_path: Path) -> None:
    with EmbeddedEtcd() as etcd:
        plain = StoreSettings(endpoints=(etcd.endpoint,))
        with pytest.raises(Failed, match="root needs a password"):
            init(plain, "n1", enable_auth=True)
        path = tmp_path / "password"
        path.write_text("x")
        path.chmod(0o600)
        with pytest.raises(Failed, match="only root changes users"):
            init(StoreSettings(endpoints=(etcd.endpoint,), user="ann", password_file=str(path)), enable_auth=True)
    with pytest.raises(Failed, match=r"that of rankpulse\.prod\.monitor"):
        init(fort.part("monitor"), "n1", enable_auth=True)


@pytest.mark.live
async def test_every_part_writes_what_the_table_gives_it_and_nothing_else(fort: Fort) -> None:
    """The whole table against the real etcd: each role, one key of each kind."""
    places = {
        "own": KEYS.beat("gpu07"), "other": KEYS.beat("gpu08"), "longer": KEYS.beat("gpu071"), "rdzv": KEYS.label("l"),
        "orders": KEYS.order("r", 1, "restart"), "cordons": KEYS.cordon("gpu07"), "gates": KEYS.gate("r", 1),
        "leader": KEYS.leader(), "epoch": KEYS.epoch(), "ledger": KEYS.ledger_origin(), "runs": KEYS.run_state("r"),
        "incidents": KEYS.incident("i"), "outbox": KEYS.outgoing("e", "t"), "policy": KEYS.arm(),
        "requests": KEYS.request("q"), "learned": KEYS.spent(), "advice": KEYS.advice("r"),
        "elsewhere": Keys("other").leader(), "outside": "/registry/x",
    }  # fmt: skip
    mine = set(places) - {"elsewhere", "outside"}
    agent_reads = {"own", "rdzv", "orders", "cordons", "gates", "advice"}
    table = {
        ("agent", "gpu07"): (agent_reads, {"own", "rdzv"}),
        ("monitor", ""): (mine, mine),
        ("operator", ""): (mine, {"policy", "requests"}),
        ("reader", ""): (mine, set()),
    }
    for (part, node), (reads, writes) in table.items():
        async with fort.opened(fort.part(part, node)) as store:
            for name, key in places.items():
                for may, call in ((name in reads, store.get(key)), (name in writes, store.put(key, b"x"))):
                    try:
                        await call
                    except Denied:
                        assert not may, (part, name)
                    else:
                        assert may, (part, name)
                if name in writes:
                    await store.delete(key)


@pytest.mark.live
async def test_a_node_has_no_way_around_by_leases_ranges_and_watches(fort: Fort) -> None:
    async with fort.opened(fort.part("monitor")) as monitor, fort.opened(fort.part("agent", "gpu07")) as agent:
        lease = (await monitor.grant(30)).id
        await monitor.put(KEYS.leader(), b"x", lease=lease)
        nodes = KEYS.nodes()
        for what in (
            lambda wire, s: wire.revoke(lease, s),
            lambda wire, s: wire.put(KEYS.beat("gpu07"), b"x", lease, s),
            lambda wire, s: wire.delete(KEYS.node("gpu07"), prefix_end(nodes), s),
            lambda wire, s: wire.range(nodes, prefix_end(nodes), s),
            lambda wire, s: wire.range(KEYS.node("gpu07")[:-1], prefix_end(KEYS.node("gpu07")[:-1]), s),
        ):
            with pytest.raises(Denied):
                await agent.raw(what, write=True)
        found = await monitor.get(KEYS.leader())
        assert found is not None
        assert found.value == b"x"


@pytest.mark.live
def test_an_etcd_whose_roles_can_be_got_around_is_told_of(fort: Fort) -> None:
    version = asyncio.run(_version(fort))
    told = [line for line in init(fort.settings("root"), "gpu07", dry_run=True) if "known ways around" in line]
    assert len(told) == bool(roles_leak(version))


async def _version(fort: Fort) -> str:
    async with fort.opened(fort.settings("root")) as store:
        return (await store.status()).version


def test_names_that_no_certificate_has() -> None:
    with pytest.raises(Failed, match="common name"):
        init(StoreSettings(), "n" * 60)


def test_a_password_file_is_ours_alone_and_made_once(tmp_path: Path) -> None:
    from rankpulse.cli.passwords import Passwords

    made = Passwords(str(tmp_path / "p"))
    first = made.of("u")
    assert len(first) >= 40
    assert made.of("u") == first
    assert os.stat(tmp_path / "p").st_mode & 0o777 == 0o700
    assert Passwords(None).of("u") == ""
