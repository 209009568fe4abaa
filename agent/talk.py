"""Conversations with torchruns on the agent's socket."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rankpulse.agent import messages
from rankpulse.agent.host import version
from rankpulse.agent.rdzv import Rendezvous
from rankpulse.agent.sock import Garbage, Line, Peer
from rankpulse.agent.torchruns import Torchrun
from rankpulse.core.rendezvous import Me, Met
from rankpulse.core.words import printable

_LEAVE_S: Final = 1.5  # how long a torchrun waits to hear that its leaving is written


@dataclass(slots=True)
class Talk:
    """One per agent."""

    node: str
    rendezvous: Rendezvous

    async def session(self, line: Line, peer: Peer, pidfd: int, _hello: Mapping[str, Any]) -> None:
        """Until either side ends it. A second conversation of the same torchrun replaces the first."""
        torchruns = self.rendezvous.torchruns
        one = torchruns.take(peer, pidfd)
        if one is None:
            raise Garbage("too many torchruns of this user on this node")
        if one.line:
            one.line.close()
        one.line, one.watching, one.said, one.pushed = line, False, "", 0
        line.send({"ok": {"node": self.node, "version": version()}})
        try:
            while one.line is line and (message := await line.receive()) is not None:
                await self._hear(one, message)
        finally:
            torchruns.hang_up(one, line)

    async def _hear(self, one: Torchrun, message: dict[str, Any]) -> None:
        name, said = messages.only(message, "join", "watch", "restarting", "leave")
        if name == "join":
            self._join(one, messages.understand(messages.Join, said))
        elif name == "watch":
            self._watch(one, messages.understand(messages.Watch, said))
        elif name == "restarting":
            one.stopping = messages.understand(messages.Restarting, said).round
            one.moved.set()
        else:
            await self._leave(one, messages.understand(messages.Leave, said))

    def _join(self, one: Torchrun, said: messages.Join) -> None:
        if one.left:
            one.begin_anew()
        if one.met and one.sure and said.join == one.join:  # it did not hear the answer
            one.watching = True
            one.send({"met": one.met.told()})
            return self.rendezvous.look()
        if said.join < one.join:
            raise Garbage(f"join: number {said.join} after {one.join}; it only grows while a torchrun is in a run")
        one.leaving = None
        if one.me is None or one.me.join != said.join:
            one.me = self._me(one, said)
            one.retry_at, one.attempts = 0.0, 0
        one.said = ""
        one.moved.set()
        self.rendezvous.look()

    def _me(self, one: Torchrun, said: messages.Join) -> Me:
        """Its run and last round are what we know, not what it says."""
        run_uid = one.run_uid or self._run_of(one, said.run_uid)
        return Me(
            node=self.node,
            launcher=one.launcher,
            owner=one.owner,
            label=said.label,
            min_nodes=said.min_nodes,
            max_nodes=said.max_nodes,
            join=said.join,
            address=said.address,
            port=said.port,
            asked_at=self.rendezvous.clock.monotonic(),
            run_uid=run_uid,
            after=one.round or (said.after if run_uid else 0),
            last_call_s=said.last_call_s,
            timeout_s=said.timeout_s,
        )

    def _run_of(self, one: Torchrun, said: str) -> str:
        """The run that it says it is in, if the store has it there: for an agent that has lost its own memory."""
        if said and self.rendezvous.proof.joined(one.owner, one.launcher, said):
            one.run_uid = said
        return one.run_uid

    def _watch(self, one: Torchrun, said: messages.Watch) -> None:
        """It is in a round already: ours to know, else the store's to tell, else believed until the store is seen."""
        if (one.run_uid, one.round, one.join) != (said.run_uid, said.round, said.join) or not one.met:
            found = self.rendezvous.proof.meeting(one.owner, one.launcher, said.run_uid, said.round, said.join)
            if found is None and (self.rendezvous.mirror.ready or one.met):
                raise Garbage(f"watch: this torchrun is not in round {said.round} of run {said.run_uid}")
            one.sure = found is not None
            one.met = found or Met(said.run_uid, said.round, -1, 0, "", 0)
            one.run_uid, one.join, one.left, one.leaving = said.run_uid, said.join, False, None
            self.rendezvous.saved()
        one.me, one.watching = None, True
        self.rendezvous.look()

    async def _leave(self, one: Torchrun, said: messages.Leave) -> None:
        self.rendezvous.leave(one, said.outcome, printable(said.reason, 200))
        deadline = asyncio.get_running_loop().time() + _LEAVE_S
        while one.leaving and not one.left and asyncio.get_running_loop().time() < deadline:
            one.moved.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await one.moved.wait()
            except TimeoutError:
                break
        one.send({"left": True})
