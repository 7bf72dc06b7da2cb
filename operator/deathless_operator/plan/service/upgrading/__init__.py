"""Which code a service runs, and how it gets other code (0005, "Rolling a change", and 0027).

    accepted       which code was accepted, which one serves, and which one it is upgraded to
    image_check    whether a changed image or module is the same code, and may be rolled
    upgrade        whether other code is upgraded to, and how far that is
    driving        the pod that leads through an upgrade

Guarantees: all of it is pure. Does not: make StatefulSets (`objects`), or say how many pods there are (`rollout`).
"""
