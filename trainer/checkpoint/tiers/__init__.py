"""A fast tier on the disks of nodes: saved there first, brought to the shared directory beside the training.

From the inside out: who shares a local disk (`placed`), a save onto the disks of nodes (`saving`), room there
(`rooms`), the shared directory as a target that is brought to (`shared`), the copies of peers (`peers`), what is held
where (`holdings`), how files move (`moving`), asking what may not answer (`reach`), a load from the nearest copies
(`resuming`), all of it for the manager (`keeping`).
"""
