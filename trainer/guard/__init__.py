"""Silent corruption: replicas of a model that should be alike, compared.

    from rankpulse.trainer.guard import ReplicaGuard

Needs torch.
"""

from rankpulse.trainer.guard.watching import ReplicaGuard

__all__ = ["ReplicaGuard"]
