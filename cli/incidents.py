"""`rankpulse incidents`: what happened, one line each; and the one that a command names."""

from collections import Counter

from rankpulse.cli import books, show
from rankpulse.cli.failing import Failed
from rankpulse.core.keys import Keys
from rankpulse.core.records import Incident
from rankpulse.core.settings import Settings


async def every(settings: Settings, everything: bool) -> list[Incident]:
    """Open incidents and those of the last day, or `everything` the store remembers; in order of opening."""
    import time

    async with books.opened(settings) as store:
        keys = Keys(settings.cluster)
        known = (await books.read(store, keys, keys.incidents())).incidents()
    since = time.time() - 86400
    return [i for i in known if everything or i.state == "open" or i.opened_at >= since]


async def one(settings: Settings, name: str) -> Incident:
    """The incident called `name`: its id, the beginning of it, or `last`. Raises `Failed`."""
    known = await every(settings, everything=True)
    if not known:
        raise Failed(f"no incident is recorded in cluster {settings.cluster!r}")
    if name == "last":
        return known[-1]
    found = [i for i in known if i.id == name] or [i for i in known if i.id.startswith(name)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise Failed(f"no incident {show.plain(name)!r}: `rankpulse incidents --all` lists them, `last` is the newest")
    raise Failed(f"{show.plain(name)!r} is the beginning of several: {', '.join(i.id for i in found)}")


def listing(incidents: list[Incident]) -> None:
    out = show.console()
    if not incidents:
        out.print("no incidents (older than a day: --all)")
        return
    before: Counter[str] = Counter()
    rows = [
        (i.id, show.ago(i.opened_at), _named(i, before), i.outcome or i.state, i.run_id or i.run_uid or "-", i.action,
         i.summary)
        for i in incidents
    ]  # fmt: skip
    show.table(out, ("incident", "opened", "class", "state", "run", "action", "summary"), rows)
    out.print("\nThe whole story of one: rankpulse explain INCIDENT")


def _named(i: Incident, before: Counter[str]) -> str:
    """Its class, and the how-manieth of those that are listed with the same signature it is."""
    before[i.signature] += 1
    return f"{i.klass}, alike: {before[i.signature]}" if i.signature and before[i.signature] > 1 else i.klass
