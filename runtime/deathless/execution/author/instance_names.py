"""What a service is called whose program calls itself by a name that services can't have.

A service's name is a DNS label. An instance of AMBROSIA is called as a table in Azure may be: letters and digits, of
either case, which counts. `service_of` gives the service of such a name: the name itself if it is one, and else what it
is in lower case with a hash behind it. It is a function of the name alone, so every sender finds the same service.

Guarantees: two names that differ have two services, as far as 48 bits of a hash go; any other text stays as it is. Does
not: know which services there are. Imports codec.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from deathless.codec.peer_messages import is_service_name

HASH_BYTES: Final = 6
KEPT_MAX: Final = 24  # characters of the name
_INSTANCE: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{2,62}")


def is_instance_name(name: str) -> bool:
    """Whether an instance of AMBROSIA can have this name; or a service, which may be one, too."""
    return is_service_name(name) or _INSTANCE.fullmatch(name) is not None


def service_of(name: str) -> str:
    """Give the service whose program has this name.

    Args:
        name: any text; a service's own name is given back, and so is what no instance can be called.
    """
    if is_service_name(name) or not is_instance_name(name):
        return name
    mark = hashlib.blake2b(name.encode(), digest_size=HASH_BYTES).hexdigest()
    return f"{name[:KEPT_MAX].lower()}-{mark}"
