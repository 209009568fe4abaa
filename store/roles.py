"""Who is to exist in etcd, and the steps from what there is to that. Pure; `store.admin` carries them out.

A role may read and write prefixes, as `Keys.roles` says; a user is named like its role, so that a certificate with that
common name is that user. What is not ours is left as it is.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from rankpulse.core.keys import Keys, Role, check_node

READ, WRITE, BOTH = "read", "write", "readwrite"
ROOT: Final = "root"
CN_MAX: Final = 64  # characters of a certificate's common name (X.520)
Range: TypeAlias = tuple[str, str]  # first key, and the first behind; "" as the second: this one key


@dataclass(frozen=True, slots=True)
class Permits:
    """Roles with what each may do where, and users with their roles. Of passwords nothing is known."""

    roles: Mapping[str, Mapping[Range, str]] = field(default_factory=dict)
    users: Mapping[str, frozenset[str]] = field(default_factory=dict)


class AddRole(NamedTuple):
    role: str

    def __str__(self) -> str:
        return f"role {self.role}: made"


class Allow(NamedTuple):
    role: str
    where: Range
    what: str

    def __str__(self) -> str:
        return f"role {self.role}: may {self.what} {self.where[0]}"


class Forbid(NamedTuple):
    role: str
    where: Range

    def __str__(self) -> str:
        return f"role {self.role}: may do nothing at {self.where[0]} any more (not in the table)"


class AddUser(NamedTuple):
    user: str

    def __str__(self) -> str:
        return f"user {self.user}: made"


class GiveRole(NamedTuple):
    user: str
    role: str

    def __str__(self) -> str:
        return f"user {self.user}: has role {self.role}"


Step: TypeAlias = AddRole | Allow | Forbid | AddUser | GiveRole


def wanted(keys: Keys, nodes: Iterable[str]) -> Permits:
    """What should exist for this cluster and these nodes. Raises `BadName`."""
    table: dict[str, Role] = {}
    shared = keys.roles("any")
    for part in ("monitor", "operator", "reader"):
        table[name_of(keys.cluster, part)] = shared[part]
    for node in nodes:
        table[name_of(keys.cluster, "agent", check_node(node))] = keys.roles(node)["agent"]
    return Permits({name: _ranges(role) for name, role in table.items()}, {name: frozenset({name}) for name in table})


def name_of(cluster: str, part: str, node: str = "") -> str:
    """Of a role, its user and the common name of the user's certificate: `rankpulse.prod.agent.gpu07`."""
    return ".".join(("rankpulse", cluster, part, *([node] if node else [])))


def steps(wanted: Permits, there: Permits) -> list[Step]:
    """In the order in which they must be taken; [] when all is as it should be."""
    made: list[Step] = []
    for role, ranges in wanted.roles.items():
        has = there.roles.get(role)
        made += [AddRole(role)] if has is None else []
        made += [Forbid(role, where) for where in has or {} if where not in ranges]
        made += [Allow(role, where, what) for where, what in ranges.items() if (has or {}).get(where) != what]
    for user, roles in wanted.users.items():
        made += [AddUser(user)] if user not in there.users else []
        made += [GiveRole(user, role) for role in sorted(roles - there.users.get(user, frozenset()))]
    return made


def root_steps(there: Permits) -> list[Step]:
    """What must be before etcd lets in only whom it knows."""
    made: list[Step] = [AddRole(ROOT)] if ROOT not in there.roles else []
    made += [AddUser(ROOT)] if ROOT not in there.users else []
    return [*made, GiveRole(ROOT, ROOT)] if ROOT not in there.users.get(ROOT, frozenset()) else made


def doubts(wanted: Permits, there: Permits) -> list[str]:
    """What was found that this does not change, and a person should know."""
    found = []
    for user, roles in wanted.users.items():
        if more := sorted(there.users.get(user, frozenset()) - roles):
            found.append(f"user {user} has roles that are not ours and are left: {', '.join(more)}")
    ours = f"{name_prefix(wanted)}agent."
    if gone := sorted(user for user in there.users if user.startswith(ours) and user not in wanted.users):
        found.append(f"users of nodes that were not named are left: {', '.join(gone)}")
    return found


def too_long_for_certificates(wanted: Permits) -> list[str]:
    return [user for user in wanted.users if len(user) > CN_MAX]


def name_prefix(wanted: Permits) -> str:
    monitor = next(user for user in wanted.users if user.endswith(".monitor"))
    return monitor.removesuffix("monitor")


def node_names(lines: Sequence[str]) -> list[str]:
    """Of a file: a node a line; blank lines and those that begin with # are passed over."""
    return [line for line in map(str.strip, lines) if line and not line.startswith("#")]


def _ranges(role: Role) -> dict[Range, str]:
    """Prefixes as etcd's ranges, each once."""
    kinds = dict.fromkeys(role.read, READ)
    for prefix in role.write:
        kinds[prefix] = BOTH if prefix in kinds else WRITE
    return {(prefix, _behind(prefix)): kind for prefix, kind in kinds.items()}


def _behind(prefix: str) -> str:
    """The first key that does not begin so. Prefixes of ours are ASCII and end in `/`."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
