"""What a job says of its checkpoints, added up: from one observation to the next state. Values in, values out."""

from collections.abc import Mapping

import msgspec

from rankpulse.core.records import CheckpointState, Heard, Observation, Order, Recent, Refusal, Scalar
from rankpulse.core.words import printable

SAVED, SAVE_FAILED, LOADED, REFUSED = "saved", "save_failed", "loaded", "refused"  # events
UPLOADED, UPLOAD_FAILED = "uploaded", "upload_failed"
LAST_WORDS = "last_words"  # the same: they are offered
REFUSALS_KEPT = 8
RECENT_KEPT = 16
HEARD_MAX = 64  # nodes: rank 0, which tells, may be on another one in every round
COUNT_MAX = 2**53
SECONDS_MAX = 1e9


def told(state: CheckpointState, obs: Observation, round_: int) -> CheckpointState:
    """The state after an observation `checkpoint` of this round; one that is counted already changes nothing."""
    if counted(state, obs):
        return state
    detail, step = obs.detail, _whole(obs.detail, "step", -1)
    times = max(_whole(detail, "times", 1), 1)
    match detail.get("event"):
        case "saved" if step >= 0:
            late = round_ < state.loaded_round
            state = _late(state, saves=times) if late else _saved(state, detail, step, times, (round_, obs.at))
        case "save_failed":
            state = msgspec.structs.replace(
                state,
                failures=state.failures + times,
                failed_since=state.failed_since + times,
                failed_step=step,
                failure=_text(detail, "reason") or "no reason was given",
            )
        case "loaded" if step >= 0:
            late = round_ < state.loaded_round
            state = _late(state, loads=1) if late else _loaded(state, detail, step, round_, obs.at)
        case "uploaded" if step >= 0:
            late = round_ < state.loaded_round
            state = _late(state, uploads=times) if late else _uploaded(state, step, times)
        case "upload_failed":
            state = msgspec.structs.replace(
                state,
                upload_failures=state.upload_failures + times,
                upload_failed_since=state.upload_failed_since + times,
                upload_failed_step=step,
                upload_failure=_text(detail, "reason") or "no reason was given",
            )
        case "last_words" if round_ >= state.last_words_round:
            within_s = _seconds(detail, "within_s")
            state = msgspec.structs.replace(state, last_words_s=within_s, last_words_round=round_)
        case "refused":
            refusals = (*state.refusals, Refusal(round_, step, _text(detail, "reason")))[-REFUSALS_KEPT:]
            state = msgspec.structs.replace(state, refused=state.refused + times, refusals=refusals)
    others = tuple(one for one in state.heard if one.node != obs.node)
    return msgspec.structs.replace(state, heard=(*others, Heard(obs.node, obs.inc, obs.seq))[-HEARD_MAX:])


def counted(state: CheckpointState, obs: Observation) -> bool:
    """Whether the observation is in the state already: those of a node come in order."""
    return any((obs.inc, obs.seq) <= (one.inc, one.seq) for one in state.heard if one.node == obs.node)


def limited(state: CheckpointState, order: Order) -> CheckpointState:
    """The state after a restart order: a person's newest limit replaces the one before."""
    if order.resume_before_step < 0 or order.round <= state.resume_before_round:
        return state
    return msgspec.structs.replace(state, resume_before_step=order.resume_before_step, resume_before_round=order.round)


def _saved(
    state: CheckpointState, detail: Mapping[str, Scalar], step: int, times: int, when: tuple[int, float]
) -> CheckpointState:
    verified, (round_, at) = detail.get("verified") is True, when
    return msgspec.structs.replace(
        state,
        step=step,
        verified_step=step if verified else state.verified_step,
        oldest_step=_whole(detail, "oldest", -1),
        at=at,
        bytes=_whole(detail, "bytes"),
        kind=_text(detail, "kind", 32),
        saved_round=round_,
        shards=_whole(detail, "shards"),
        save_s=_seconds(detail, "save_s"),
        verify_s=_seconds(detail, "verify_s") if verified else state.verify_s,
        saves=state.saves + times,
        verifications=state.verifications + (times if verified else 0),
        failed_since=0,
        failure="",
        local=detail.get("local") is True,
        recent=(*state.recent, Recent(state.saves + times, step))[-RECENT_KEPT:],
    )


def _uploaded(state: CheckpointState, step: int, times: int) -> CheckpointState:
    """Of several places the slower one tells later of an older one: the newest counts."""
    number = next((one.number for one in reversed(state.recent) if one.step == step), 0)
    return msgspec.structs.replace(
        state,
        uploads=state.uploads + times,
        durable_step=max(state.durable_step, step),
        durable_saves=max(state.durable_saves, number),
        upload_failed_since=0,
        upload_failure="",
    )


def _late(state: CheckpointState, saves: int = 0, loads: int = 0, uploads: int = 0) -> CheckpointState:
    """A later round has loaded already, and knows better which one is the newest."""
    return msgspec.structs.replace(
        state, saves=state.saves + saves, loads=state.loads + loads, uploads=state.uploads + uploads
    )


def _loaded(state: CheckpointState, detail: Mapping[str, Scalar], step: int, round_: int, at: float) -> CheckpointState:
    """What is loaded is the newest checkpoint from now on: newer ones were refused, or there are none."""
    obeyed = round_ > state.resume_before_round and step < state.resume_before_step
    return msgspec.structs.replace(
        state,
        step=step,
        verified_step=step,
        oldest_step=min(state.oldest_step, step),
        durable_step=min(state.durable_step, step),
        at=at,
        bytes=_whole(detail, "bytes"),
        load_s=_seconds(detail, "load_s"),
        verify_s=_seconds(detail, "verify_s"),
        verifications=state.verifications + 1,
        loads=state.loads + 1,
        loaded_step=step,
        loaded_round=round_,
        level=_text(detail, "level", 32),
        skipped=_whole(detail, "skipped"),
        resharded_from=_whole(detail, "resharded_from"),
        resume_before_step=-1 if obeyed else state.resume_before_step,
    )


def _whole(detail: Mapping[str, Scalar], name: str, default: int = 0) -> int:
    value = detail.get(name)
    return min(value, COUNT_MAX) if type(value) is int and value >= 0 else default


def _seconds(detail: Mapping[str, Scalar], name: str) -> float:
    value = detail.get(name)
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= SECONDS_MAX  # nan is not
    return float(value) if good and value is not None else 0.0


def _text(detail: Mapping[str, Scalar], name: str, limit: int = 300) -> str:
    value = detail.get(name)
    return printable(value, limit) if isinstance(value, str) else ""
