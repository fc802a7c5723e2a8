"""Reads the storage contract: where data, checkpoints and scratch space are, and how to load and save.

One file, standard library only, and Python 3.9 suffices: a node may copy it and run it with the system's Python. That
is why the dataclasses are not keyword-only, which needs 3.10.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Final, Self

SCHEMA_VERSION: Final = 1
DEFAULT_PATH: Final = "/etc/training-storage/storage.json"
#: Names another file than the default one.
PATH_VARIABLE: Final = "TRAINING_STORAGE_CONTRACT"
_PREFIX = "TRAINING_STORAGE"


class ContractError(ValueError):
    """There is no contract, or it is not one that this version reads; one line that says what to do."""


@dataclass(frozen=True)
class Job:
    """The job: its name (``default`` without one), its nodes and their accelerators."""

    name: str
    instances: int
    instance_type: str
    accelerators_per_instance: int


@dataclass(frozen=True)
class Endpoint:
    """Where S3 requests go. `url` is None for AWS; `addressing_style` and `checksums` are boto3's words."""

    url: str | None
    addressing_style: str
    checksums: str


@dataclass(frozen=True)
class S3:
    """The data lake; `uris` by purpose: raw, datasets, finetune, models, checkpoints, logs, evaluations."""

    bucket: str
    kms_key_arn: str
    uris: Mapping[str, str]


@dataclass(frozen=True)
class Lustre:
    """The mounted file system; `paths` by purpose, for the folders that are linked to the lake."""

    file_system_id: str
    dns_name: str
    mount_name: str
    mount_path: str
    version: str
    efa_enabled: bool
    efa_interfaces: int
    storage_capacity_gib: int
    servers: int
    paths: Mapping[str, str]


@dataclass(frozen=True)
class S3Express:
    """The directory bucket; `uris` by purpose."""

    bucket: str
    zone_id: str
    uris: Mapping[str, str]


@dataclass(frozen=True)
class Mountpoint:
    """The read-only mount of the lake and its bounded cache."""

    path: str
    bucket: str
    cache_path: str
    cache_gib: int
    express_cache_bucket: str | None


@dataclass(frozen=True)
class Scratch:
    """Local disks of the node, or a folder of its root volume (`local_nvme_gb` is 0); gone with the node."""

    path: str
    local_nvme_gb: int


@dataclass(frozen=True)
class Loader:
    """What a data loader starts with; `part_size_mib` is the size of a ranged request or an uploaded part."""

    workers_per_accelerator: int
    prefetch_factor: int
    part_size_mib: int
    cache_path: str


@dataclass(frozen=True)
class Checkpoints:
    """Where checkpoints are written first (exactly one of `path` and `uri`), how often, and where key ones are kept."""

    path: str | None
    uri: str | None
    local_path: str
    mode: str
    interval_minutes: float
    size_gib: float
    kept: int
    durable_uri: str
    durable_interval_minutes: float
    durable_kept: int

    @property
    def write_to(self) -> str:
        """The path or the URI under which checkpoints are written first."""
        return self.path or self.uri or ""


@dataclass(frozen=True)
class Cluster:
    """What starts the nodes, and the CloudWatch namespace of what they publish."""

    engine: str
    metric_namespace: str


@dataclass(frozen=True)
class StorageContract:
    """What the plan and its deployment say to training code; docs/contract.md explains every key.

    Examples
    --------
    >>> contract = StorageContract.read()  # doctest: +SKIP
    >>> contract.checkpoints.write_to  # doctest: +SKIP
    '/fsx/checkpoints/'
    """

    schema_version: int
    reader_version: str
    job: Job
    region: str
    zone_id: str
    endpoint: Endpoint
    s3: S3
    lustre: Lustre | None
    s3_express: S3Express | None
    mountpoint: Mountpoint
    scratch: Scratch
    loader: Loader
    checkpoints: Checkpoints
    cluster: Cluster

    @classmethod
    def read(cls, path: str | os.PathLike[str] | None = None) -> Self:
        """Read the contract of this node.

        Parameters
        ----------
        path
            The file; by default what the variable TRAINING_STORAGE_CONTRACT names, else
            ``/etc/training-storage/storage.json``.

        Raises
        ------
        ContractError
            If there is no such file, or it is not a contract of this version.
        """
        file = Path(path or os.environ.get(PATH_VARIABLE) or DEFAULT_PATH)
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ContractError(
                f"no storage contract at {str(file)!r}: run on a node of the job, or set {PATH_VARIABLE} to a file with"
                " the value of the SSM parameter /training-storage/NAME/contract (NAME is the job's name or default)"
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise ContractError(
                f"the storage contract {str(file)!r} must be a readable text file, got: {error}"
            ) from None
        return cls.from_json(text, source=str(file))

    @classmethod
    def from_json(cls, text: str, *, source: str = "storage contract") -> Self:
        """Read a contract from its text; `source` names it in errors. Raises like `read`."""
        try:
            values = json.loads(text)
        except ValueError as error:
            raise ContractError(f"{source} must be JSON, got text that is not: {error}") from None
        return cls.from_dict(values, source=source)

    @classmethod
    def from_dict(cls, values: object, *, source: str = "storage contract") -> Self:
        """Read a contract from JSON values; `source` names it in errors. Raises like `read`."""
        if not isinstance(values, dict) or "schema_version" not in values:
            raise ContractError(f"{source} must be an object with schema_version, got: something else")
        _check_version(values, source)
        contract: Self = _object(cls, values, source, "")
        if (contract.checkpoints.path is None) == (contract.checkpoints.uri is None):
            raise ContractError(f"{source}: checkpoints must name exactly one of path and uri")
        return contract

    def location(self, purpose: str) -> str:
        """Return the fastest place of a kind of data: a path on Lustre, else a URI of S3 Express, else one of the lake.

        Raises
        ------
        ContractError
            For a purpose that the lake has no folder for.
        """
        for places in (
            self.lustre.paths if self.lustre else {},
            self.s3_express.uris if self.s3_express else {},
            self.s3.uris,
        ):
            if purpose in places:
                return places[purpose]
        raise ContractError(f"purpose must be one of {', '.join(self.s3.uris)}, got: {purpose!r}")

    def environment(self) -> dict[str, str]:
        """Return the contract as environment variables, see `environment`."""
        return environment(self)


#: Purposes that may have a place of their own, by section: every environment has a variable for each.
_PURPOSES: Final = {
    "s3": ("raw", "datasets", "finetune", "models", "checkpoints", "logs", "evaluations"),
    "lustre": ("datasets", "checkpoints", "logs", "evaluations"),
    "s3_express": ("datasets", "checkpoints"),
}
_SECTIONS: Final = {"lustre": Lustre, "s3_express": S3Express}


def environment(contract: StorageContract) -> dict[str, str]:
    """Return the contract as variables such as ``TRAINING_STORAGE_CHECKPOINTS_PATH``.

    The names are the same for every contract, so that a script may run with ``set -u``; what a contract does not have
    is empty. Truth values are true and false. No value needs quotes in a shell or a unit file.
    """
    variables: dict[str, str] = {}
    for field in dataclasses.fields(contract):
        value = getattr(contract, field.name)
        for path, leaf in _leaves(field.name, _SECTIONS.get(field.name, type(value)), value):
            variables["_".join((_PREFIX, *path)).upper()] = _text(leaf)
    return variables


def _leaves(section: str, kind: type, value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:  # noqa: ANN401 -- JSON
    if not dataclasses.is_dataclass(kind):
        yield (section,), value
        return
    for field in dataclasses.fields(kind):
        inner = getattr(value, field.name, None)
        if field.type == "Mapping[str, str]":
            for purpose in _PURPOSES[section]:
                yield (section, field.name, purpose), (inner or {}).get(purpose)
        else:
            yield (section, field.name), inner


def _text(value: Any) -> str:  # noqa: ANN401 -- a JSON scalar
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if whole else value)


def _check_version(values: Mapping[str, Any], source: str) -> None:
    version = values["schema_version"]
    if isinstance(version, bool) or not isinstance(version, int):
        raise ContractError(f"{source}: schema_version must be a whole number, got: {version!r}")
    if version > SCHEMA_VERSION:
        needed = values.get("reader_version")
        raise ContractError(
            f"{source}: schema_version must be at most {SCHEMA_VERSION} for this version of training-storage, got:"
            f" {version}; install {needed or 'the newest'} or newer (pip install --upgrade training-storage)"
        )
    if version < SCHEMA_VERSION:
        raise ContractError(
            f"{source}: schema_version must be {SCHEMA_VERSION}, got: {version}; deploy the job again with this version"
        )


# ---- reading: the annotations above say what each key holds -------------------------------------------------------


def _object(kind: type, values: object, source: str, place: str) -> Any:  # noqa: ANN401 -- a dataclass of this module
    inside = f" in {place}" if place else ""
    if not isinstance(values, dict):
        raise ContractError(f"{source}: {place} must be an object, got: {values!r}")
    fields = {field.name: str(field.type) for field in dataclasses.fields(kind)}
    missing = [name for name in fields if name not in values]
    if missing:
        raise ContractError(f"{source}: the key {missing[0]!r} is missing{inside}; deploy the job again")
    unknown = [name for name in values if name not in fields]
    if unknown:
        raise ContractError(
            f"{source}: the key {unknown[0]!r} is unknown{inside}; allowed are {', '.join(fields)}. Leave the file as"
            " it was deployed"
        )
    return kind(
        **{
            name: _value(annotation, values[name], source, f"{place}.{name}" if place else name)
            for name, annotation in fields.items()
        }
    )


_PLAIN: Final[Mapping[str, tuple[type, ...]]] = {"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,)}
_WORDS: Final = {"str": "text", "int": "a whole number", "float": "a number", "bool": "true or false"}


def _value(annotation: str, value: Any, source: str, place: str) -> Any:  # noqa: ANN401 -- JSON
    if annotation.endswith(" | None"):
        return None if value is None else _value(annotation[: -len(" | None")], value, source, place)
    if annotation == "Mapping[str, str]":
        if isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
            return dict(value)
        raise ContractError(f"{source}: {place} must be an object of texts, got: {value!r}")
    if annotation not in _PLAIN:
        return _object(globals()[annotation], value, source, place)
    of_kind = isinstance(value, _PLAIN[annotation]) and isinstance(value, bool) == (annotation == "bool")
    if not of_kind:
        raise ContractError(f"{source}: {place} must be {_WORDS[annotation]}, got: {value!r}")
    return float(value) if annotation == "float" else value
