"""Sans-IO state machines: events in, effects out, the next deadline named. No clock, no socket, no random number."""
