"""What to do about a DeathlessService, from a snapshot of it.

    plan           the whole plan: what is done, in which order, and what is told
    unchanged      plans while the spec can't be read, or the service is paused

    objects        every object of the service, as it should be; `replica_config` makes the replicas' settings
    placement      the template of its pods and the StatefulSet around it
    pod_settings   the names of ConfigMaps and Secrets that pods mount, and which of them nothing refers to any more
    certificates   when certificates are issued
    access         the lock store, and the Secrets that open it
    lock_users     users of the chart's lock store
    erasure        the keys that a deleted service leaves in the lock store

    installation   which operator looks after the service
    upgrading      which code it runs: whether a changed image may be rolled, or is upgraded to
    shards         one shard: its StatefulSet as it is, and as it is to be for now
    rollout        how many pods there are to be for now, and which one is replaced next
    loss           replicas on lost nodes, and fenced pods
    covering       whether an object has to be applied

    reading        views of raw objects of the API server
    pods           questions about pods that are there: which replica one is, who leads, what is wrong with it
    trouble        conditions and remedies for what replicas, pods and Kubernetes say is wrong
    open_access    whether callers need no proof of who they are
    conditions     the conditions in words, and the events when they change
    summary        the status: counts, members, and the conditions that sum up the others

Guarantees: all of it is pure. Does not: read the API server, or carry anything out (`cluster` does).
"""
