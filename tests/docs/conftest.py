"""One local AWS and one job for all pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.local_aws.conftest import scale_waits
from training_storage.testing.local_aws import LocalAws

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.docs.surroundings import LocalJob


@pytest.fixture(scope="session")
def local_job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalJob]:
    from tests.docs.surroundings import LocalJob  # noqa: PLC0415 -- starts CDK

    with LocalAws.start(quick=True) as aws:
        # Park looks every three minutes.
        scale_waits(aws, 0.002)
        yield LocalJob(aws=aws, folder=tmp_path_factory.mktemp("node"))
