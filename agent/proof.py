"""What a torchrun says of itself, compared with the store: for an agent that has lost its own memory of it."""

from dataclasses import dataclass

from rankpulse.agent.mirror import Mirror
from rankpulse.core.keys import BadName, Keys
from rankpulse.core.records import Joiner, Launch, Meeting, Place
from rankpulse.core.rendezvous import Met, met_of


@dataclass(frozen=True, slots=True)
class Proof:
    """Of torchruns of this node. A run counts only for the user who launched it."""

    node: str
    keys: Keys
    mirror: Mirror

    def joined(self, owner: int, launcher: str, run_uid: str) -> bool:
        """Whether the torchrun has joined that run."""
        try:
            joiner = self.mirror.get(self.keys.joiner(run_uid, self.node, launcher))
        except BadName:
            return False
        return isinstance(joiner, Joiner) and self._launched(owner, run_uid)

    def meeting(self, owner: int, launcher: str, run_uid: str, round_: int, join: int) -> Met | None:
        """The round as it was met, if it lists this torchrun with this join."""
        try:
            meeting = self.mirror.get(self.keys.meeting(run_uid, round_))
        except BadName:
            return None
        place = Place(self.node, launcher, join)
        if not isinstance(meeting, Meeting) or place not in meeting.places or not self._launched(owner, run_uid):
            return None
        return met_of(meeting, place)

    def _launched(self, owner: int, run_uid: str) -> bool:
        launch = self.mirror.get(self.keys.launch(run_uid))
        return isinstance(launch, Launch) and launch.owner == owner
