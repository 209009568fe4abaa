"""Jobs whose work is done: all ended without an error, or all but a few that are still at their tear-down."""

import re
from typing import Final

from rankpulse.core import policy
from rankpulse.core import verdict as v
from rankpulse.core.ends import End, Weight
from rankpulse.core.scene import Scene
from rankpulse.core.snapshot import Rank
from rankpulse.core.stacks import ranks_in_words
from rankpulse.core.verdict import Cause, step

NEARLY_ALL: Final = 0.5  # more of the ranks than that have ended without an error
_TEAR_DOWN: Final = re.compile(
    r"destroy_process_group|atexit|shutdown\b|__del__|_exit\b|sys\.exit|finalize", re.IGNORECASE
)


def of_finish(scene: Scene, found: list[End], movers: list[End]) -> Cause | None:
    finished = None if movers else _finished(scene, found)
    return finished or _over(scene, found, movers) or _tail(scene, found)


def _finished(scene: Scene, found: list[End]) -> Cause | None:
    """All ranks ended without an error, or the job itself says that it is done."""
    clean = {end.rank for end in found if end.weight == Weight.CLEAN}
    state = _says_done(scene)
    enough = bool(clean) and len(clean) == len(scene.ranks) >= (scene.snap.job.world_size or 0)
    if not enough and not (state and len(clean) == len(found)):
        return None
    return Cause(
        klass=v.FINISHED,
        confidence=0.95,
        summary="the job has finished",
        reasons=("every rank ended without an error",) if enough else ("the job says so",),
        evidence=("ranks[*].exit_code",) if enough else ("job.state",),
        action=policy.NONE,
    )


def _over(scene: Scene, found: list[End], movers: list[End]) -> Cause | None:
    """The job says that it is done, and who fell did so after all others had ended without an error."""
    fallen = {end.rank for end in movers}
    done = [end.at for end in found if end.rank not in fallen and end.weight == Weight.CLEAN and end.at is not None]
    late = bool(done) and all(end.at is not None and end.at >= max(done) for end in movers)
    if not movers or not late or len(found) < len(scene.ranks) or not _says_done(scene):
        return None
    return Cause(
        klass=v.FINISHED,
        confidence=0.8,
        summary=f"the job has finished; {ranks_in_words(fallen)} fell in the tear-down",
        reasons=(
            "the job says so",
            *(f"rank {end.rank}, after all others had ended: {end.words}" for end in movers[:3]),
        ),
        evidence=("job.state", *(end.ref for end in movers[:4])),
        action=policy.NONE,
    )


def _tail(scene: Scene, found: list[End]) -> Cause | None:
    """All but a few ended without an error: who is still at the tear-down, or fell in it, lost nothing."""
    clean = {end.rank for end in found if end.weight == Weight.CLEAN and end.code == 0}
    left = [rank for rank in scene.snap.ranks if rank.rank not in clean]
    known = len(scene.ranks) >= (scene.snap.job.world_size or 0)
    if not left or not known or len(clean) <= NEARLY_ALL * len(scene.ranks) or not all(map(_tears_down, left)):
        return None
    ranks = tuple(sorted(rank.rank for rank in left))
    living = tuple(rank.rank for rank in left if rank.exit_code is None and rank.signal is None)
    return Cause(
        klass=v.FINISHED,
        confidence=0.8,
        summary=f"the job has finished, but for {ranks_in_words(ranks)} in its tear-down",
        reasons=(f"{len(clean)} ranks ended without an error", "what comes after the work is done loses nothing of it"),
        evidence=("ranks[*].exit_code", *(f"ranks[{rank}].stack" for rank in ranks[:4])),
        action=policy.NONE,
        steps=(step(v.KILL_STEP, *map(str, living)),) if living else (v.NOTHING,),
        hints=("see that the last checkpoint is whole, then end what is left",),
    )


def _tears_down(rank: Rank) -> bool:
    """Whether its innermost frames that mean anything are those of an exit."""
    return any(_TEAR_DOWN.search(frame) for frame in rank.stack[-4:])


def _says_done(scene: Scene) -> bool:
    return scene.snap.job.state.lower() in ("finished", "completed", "succeeded", "done")
