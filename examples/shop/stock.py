"""Stock: how many of each article there are, and which orders hold some."""

from deathless import Context, Invalid, Service, Struct


class Shelf(Struct):
    """State of one article."""

    free: int = 0
    held: dict[str, int] = {}  # noqa: RUF012  a Struct copies its defaults. By order


class SoldOut(Invalid):
    """There are fewer than were asked for; nothing is held."""

    code = "SHOP01"
    http_status = 409


stock = Service("stock", state=Shelf)


@stock.handler
def refill(shelf: Shelf, ctx: Context, count: int) -> int:
    """Put `count` more on the shelf; gives how many are free."""
    shelf.free += count
    return shelf.free


@stock.handler
def hold(shelf: Shelf, ctx: Context, order: str, count: int) -> int:
    """Set `count` aside for an order; gives how many are still free."""
    if shelf.free < count:
        raise SoldOut(f"{shelf.free} of {ctx.key} are left, not {count}")
    shelf.free -= count
    shelf.held[order] = count
    return shelf.free


@stock.handler
def release(shelf: Shelf, ctx: Context, order: str) -> None:
    """Put back what an order holds."""
    shelf.free += shelf.held.pop(order, 0)


@stock.query
def free(shelf: Shelf) -> int:
    """Give how many are free."""
    return shelf.free


@stock.query
def held(shelf: Shelf) -> dict[str, int]:
    """Give what orders hold."""
    return shelf.held
