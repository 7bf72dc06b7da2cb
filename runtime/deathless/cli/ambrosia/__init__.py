"""The tools of AMBROSIA, `Ambrosia` and `ImmortalCoordinator`, as launchers that run programs on our log.

arguments       words of a command line, as the original reads them
registrations   what RegisterInstance wrote
tool            `Ambrosia`
coordinator     `ImmortalCoordinator`
launchers       the two files, which `deathless ambrosia install` writes
entry           what these start
"""
