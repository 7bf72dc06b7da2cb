"""The image that was just built is as large as its page says."""

from __future__ import annotations

import pytest
from tools import image_size

pytestmark = pytest.mark.cluster


def test_page_tells_the_size_of_this_image(image: str) -> None:
    assert not image_size.differs(image_size.measure(image_size.ARCHIVE), image_size.PAGE.read_text()), (
        f"{image} has another size by now: tools/image_size.py writes it"
    )
