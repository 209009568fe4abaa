"""What speaks against sending a run back to a checkpoint of before: for whatever reason it is to go back. Pure."""

from rankpulse.core import policy
from rankpulse.core.policy import Choice, Facts


def barred(facts: Facts, refusal: str, limit: int) -> Choice | None:
    """Why nothing is restarted now, and what is done instead; None: nothing speaks against it.

    refusal: why the job could not go on from there, "" when it can. limit: what is resumed from is of an earlier step.
    """
    if not (facts.elastic and facts.launcher_alive):
        return Choice(policy.PAGE, "no torchelastic is there to start the next round: ending it would end the job")
    if refusal:
        return Choice(policy.PAGE, f"no restart: {refusal}")
    if facts.parted:
        return Choice(policy.PAGE, "a node has ended its work and meets nobody any more: there would be no next round")
    if facts.orders_left <= 0 or facts.spent:
        return Choice(policy.PAGE, policy.RUN_SPENT if facts.orders_left <= 0 else facts.spent)
    if not facts.armed:
        return Choice(policy.OBSERVE, f"would go on from before step {limit} now, but {facts.unarmed}")
    if facts.rests_s:
        return Choice(policy.WAIT, f"the last order did not help: no other within {facts.rests_s:g} s of it")
    return None
