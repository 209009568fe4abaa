"""What lives in the training process: the pulse.

    from rankpulse.trainer import attach

    pulse = attach()
    for step, batch in enumerate(batches):
        ...
        pulse.step(step, loss=loss)

Importing this loads the standard library only, and little of it: no torch, no threads, no logging, no store client.
"""

from rankpulse.trainer.attaching import attach
from rankpulse.trainer.launch import identity
from rankpulse.trainer.pulse import Pulse

__all__ = ["Pulse", "attach", "identity"]
