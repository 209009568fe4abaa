"""Where `rankpulse up` puts its etcd, and what it tells the other terminal."""

import pytest

from rankpulse.cli.up import asked_for, what_next
from rankpulse.core.settings import Settings, StoreSettings


def with_store(*endpoints: str, **more: str) -> Settings:
    return Settings(store=StoreSettings(endpoints=endpoints, **more))


@pytest.mark.parametrize(
    ("settings", "port"),
    [
        (Settings(), 2379),
        (with_store("localhost:4001"), 4001),
        (with_store("etcd1:2379"), None),  # somebody's cluster: never its place
        (with_store("127.0.0.1:2379", "etcd2:2379"), None),
        (with_store("https://127.0.0.1:2379"), None),  # ours speaks no TLS
        (with_store("127.0.0.1:2379", cert_file="c.pem", key_file="k.pem"), None),
        (with_store("127.0.0.1:2379", user="monitor", password_file="p"), None),
    ],
)
def test_etcd_is_put_where_the_commands_look_if_that_is_this_machine(settings: Settings, port: int | None) -> None:
    assert asked_for(settings) == port


def test_the_other_terminal_is_told_where_etcd_is_only_if_it_would_look_elsewhere() -> None:
    usual = what_next(Settings(), "127.0.0.1:2379")
    assert "RANKPULSE_STORE" not in usual
    assert "    rankpulse run --nproc-per-node 2 --max-restarts 3 train.py\n" in usual
    elsewhere = what_next(Settings(), "127.0.0.1:40001")
    assert "    export RANKPULSE_STORE=127.0.0.1:40001 RANKPULSE_CLUSTER=default\n" in elsewhere
    assert "RANKPULSE_CLUSTER=lab" in what_next(Settings(cluster="lab"), "127.0.0.1:2379")
