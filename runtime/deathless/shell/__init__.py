"""The real world: files, sockets, processes. Thin: it carries out and reports, it decides nothing."""
