"""The ladder of an action: order, kill, webhook, page. From what records say to the next rung, with the reason.

The order ends a round gently, but for its culprits, which are killed at once. Where a node does not say that it has
carried it out, or workers live on, all workers of the round are killed. Where no round follows, whoever may start the
job from outside is told by webhook; and where that brings nothing, a person. No rung is taken twice, and each only
when the one below has had its time; whoever leads later finds the rung in the records, and gives it its time anew.
"""

from typing import Final, NamedTuple

ORDER: Final = "order"
KILL: Final = "kill"
WEBHOOK: Final = "webhook"
PAGE: Final = "page"
RUNGS: Final = ("", ORDER, KILL, WEBHOOK, PAGE)
NAMED_MAX: Final = 4


class Patience(NamedTuple):
    """How long each rung has, in seconds."""

    answer_s: float  # for every node to say that it has carried out an order
    round_s: float  # from the order on, for the next round to form
    webhook_s: float  # for the job to be there again


class Standing(NamedTuple):
    """How an action stands: for how long this monitor has seen each rung, None where it was not taken."""

    order_s: float | None = None
    kill_s: float | None = None
    webhook_s: float | None = None
    paged: bool = False
    unanswered: tuple[str, ...] = ()  # nodes that are on time and have not said that they carried out the last order
    living: int = 0  # workers of the round, on nodes on time, of which no end is known
    actuator: bool = False  # a webhook is there that may start the job again
    heir: str = ""  # a run of the same label and owner that has begun meanwhile
    spent: str = ""  # why starting it again is pointless
    barred: str = ""  # why nobody may be killed now


class Rung(NamedTuple):
    name: str
    reason: str


def climb(stands: Standing, patience: Patience) -> Rung | None:
    """The next rung, None while the present one has time, or is the last."""
    if stands.paged:
        return None
    if stands.webhook_s is not None:
        return _after_webhook(stands, patience)
    if stands.order_s is None:
        return None
    in_vain = stands.kill_s is None and stands.order_s >= patience.answer_s and (stands.unanswered or stands.living)
    if in_vain and not (stands.barred and stands.order_s >= patience.round_s):
        return Rung(KILL, _not_carried_out(stands, patience))
    killed = stands.kill_s is None or stands.kill_s >= patience.answer_s
    if stands.order_s >= patience.round_s and killed:
        return outside(f"no round has formed within {patience.round_s:g} s of the order", stands)
    return None


def outside(why: str, stands: Standing) -> Rung:
    """The rung beyond our own means: a webhook, or where none could help, a person."""
    if stands.heir:
        return Rung(PAGE, f"{why}; no webhook, for a scheduler retries: run {stands.heir} has begun under its label")
    if stands.spent:
        return Rung(PAGE, f"{why}; no webhook, for {stands.spent}")
    if not stands.actuator:
        return Rung(PAGE, f"{why}; no webhook takes restarts")
    return Rung(WEBHOOK, why)


def _after_webhook(stands: Standing, patience: Patience) -> Rung | None:
    if stands.webhook_s is None or stands.webhook_s < patience.webhook_s:
        return None
    return Rung(PAGE, f"the job is not there again {patience.webhook_s:g} s after the webhook was told")


def _not_carried_out(stands: Standing, patience: Patience) -> str:
    """Why the order is not enough."""
    if not stands.unanswered:
        return f"{stands.living} workers live on {patience.answer_s:g} s after the order, which was carried out"
    more = len(stands.unanswered) - NAMED_MAX
    who = ", ".join(stands.unanswered[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
    return f"not known to be carried out by {who} within {patience.answer_s:g} s"
