"""The figures: what the runtime costs, beside what the same disk, loopback and machine cost anybody.

Every figure that has a floor or a peer measures it in the same call, in turns with its own runs, so that a machine that
slows down slows all of them. Run it as `python -m bench`.
"""
