"""Checkpoints that are verified before they are trusted.

    from rankpulse.trainer.checkpoint import CheckpointManager

    manager = CheckpointManager("checkpoints", model=model, optimizer=optimizer, every_steps=100)
    resumed = manager.load()
    for step in range(resumed.step + 1 if resumed else 1, steps + 1):
        ...
        manager.step(step, metrics={"loss": loss.item()})

Importing this loads no torch: the commands read checkpoints without it. What needs torch is loaded when it is named.
"""
