"""What is to be said about a store before it hurts: its version, its size against its quota, how much it is asked.

Sizes and rates come from `docs/scale.md`, where they are measured and reasoned.
"""

import re
from collections.abc import Iterator
from typing import Final

OLDEST: Final = (3, 4)  # the first that answers requests for progress
WALLED: Final = (3, 6, 11)  # the first whose roles hold; see `roles_leak`
FULL_SHARE: Final = 0.75  # of its quota: days before it refuses writes, where history is compacted
WRITES_MAX: Final = 2500.0  # a second, of beats and renewals together: half of what one etcd took with two cores
RENEWALS: Final = 0.15  # writes' worth of work per beat besides: leases of beats and of presence
INTERVAL_MAX_S: Final = 10.0  # slower beats find a death by its peers before they find it themselves


def advised_interval_s(nodes: int, interval_s: float) -> float:
    """The heartbeat interval at which so many nodes ask at most `WRITES_MAX` of one etcd; never below `interval_s`.

    In steps of half a second. It is advice: how soon a death is found follows from the interval, and who is called at
    night has chosen it.
    """
    needed = nodes * (1.0 + RENEWALS) / WRITES_MAX
    stretched = -(-needed // 0.5) * 0.5
    return max(interval_s, min(stretched, max(INTERVAL_MAX_S, interval_s)))


def crowded(nodes: int, interval_s: float) -> str:
    """What to do about a fleet that beats too fast for one etcd, "" when nothing is to be done."""
    if nodes * (1.0 + RENEWALS) / interval_s <= WRITES_MAX:
        return ""
    advised = advised_interval_s(nodes, interval_s)
    remedy = (
        f"set detect.heartbeat_interval_s to {advised:g} on agents and monitors, or " if advised > interval_s else ""
    )
    return (
        f"{nodes} nodes with a heartbeat every {interval_s:g} s ask more of one etcd than it takes calmly: "
        f"{remedy}divide the fleet among clusters"
    )


def roles_leak(version: str) -> str:
    """Why users and roles of this etcd can be got around, "" where they hold as far as is known.

    Before GHSA-q8m4-xhhv-38mg was mended, whoever has any certificate could renew every lease and raise the alarm of a
    full store; and until 3.6, while that alarm stands, nobody's rights are asked for deletes and for changes of users
    (etcd's pull request 22386). Before 3.6.11, leases could be taken by transactions (CVE-2026-44283).
    """
    numbers = tuple(map(int, re.findall(r"\d+", version)[:3]))
    if not numbers or numbers >= WALLED:
        return ""
    return (
        f"etcd {version} has known ways around its users and roles: whoever has a certificate for it can become root "
        "or stop it (docs/threat-model.md); use 3.6.11 or later"
    )


def complaints(version: str, db_bytes: int, quota_bytes: int) -> Iterator[str]:
    """What is wrong with the store as it says itself."""
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers and numbers < OLDEST:
        yield f"etcd {version} is too old: its watches cannot be asked whether they live; use 3.4 or newer, best 3.5"
    if quota_bytes and db_bytes > FULL_SHARE * quota_bytes:
        yield (
            f"etcd's file has {db_bytes / 1e6:.0f} MB of the {quota_bytes / 1e6:.0f} MB at which it refuses writes: "
            "defragment its members one by one, or raise --quota-backend-bytes"
        )
