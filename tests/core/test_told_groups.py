"""Groups whose members the ranks know: believed where nobody says otherwise and all of them are of the round."""

import pytest

from rankpulse.core import assembling
from rankpulse.core.dossier import Part
from rankpulse.core.dossiers import Dossier
from rankpulse.core.records import Member
from rankpulse.core.snapshot import Group
from rankpulse.core.snapshot_nodes import Node
from rankpulse.core.views import RoundView


def found(*told: tuple[Group, ...]) -> list[Group]:
    dossier = Dossier(0.0)
    for number, groups in enumerate(told):
        name = f"n{number}"
        dossier.parts[name] = (Part(node=name, order_id="c1", taken_at=0.0, report=Node(name), groups=groups), 0.0)
    members = {rank: Member(rank, "n0", rank, 100 + rank, 1) for rank in range(4)}
    return list(assembling._groups(RoundView(2, "m", 4, 0.0, members=members), dossier))


TP, DP = Group("tp", (0, 1), "tp"), Group("dp", (0, 2), "dp")


@pytest.mark.parametrize(
    ("told", "believed"),
    [
        (((TP,), (DP,)), [TP, DP]),
        (((TP,), (Group("tp", (1, 0), "tp"),)), [TP]),
        (((TP,), (Group("tp", (0, 3), "tp"),)), []),
        (((Group("tp", (0, 4), "tp"),),), []),
        ((), []),
    ],
    ids=["each its own", "the same", "they differ", "nobody of the round", "nothing"],
)
def test_groups(told: tuple[tuple[Group, ...], ...], believed: list[Group]) -> None:
    assert found(*told) == believed
