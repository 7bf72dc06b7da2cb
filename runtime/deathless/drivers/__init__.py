"""Out-drivers: what a service sends reaches a database, a file or an HTTP address (docs/design/0007-drivers.md).

`port` is what a sink must be, `host` the process that speaks with the primary; each kind of sink is a module of its
own, which imports its library when it is opened. May import sdk, shell's packets, codec and base; only cli imports it.
"""
