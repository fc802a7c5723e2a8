"""Reads the storage contract: where data, checkpoints and scratch space are, and how to load and save.

One file, standard library only, and Python 3.9 suffices: a node may copy it and run it with the system's Python. That
is why the dataclasses are not keyword-only, which needs 3.10.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Final, NoReturn, Self

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
        except (OSError, ValueError) as error:  # not UTF-8, or no path
            raise ContractError(
                f"the storage contract {str(file)!r} must be a readable text file, got: {error}"
            ) from None
        return cls.from_json(text, source=str(file))

    @classmethod
    def from_json(cls, text: str, *, source: str = "storage contract") -> Self:
        """Read a contract from its text; `source` names it in errors. Raises like `read`."""
        try:
            values = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_once)
        except RecursionError:
            raise ContractError(f"{source} must be JSON of a few levels, got: text that is nested deeper") from None
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


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object whose keys stand once each: of two, every reader would choose its own."""
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {_shown(twice)} stands twice in one object")
    return values


def _check_version(values: Mapping[str, Any], source: str) -> None:
    version = values["schema_version"]
    if isinstance(version, bool) or not isinstance(version, int):
        raise ContractError(f"{source}: schema_version must be a whole number, got: {_shown(version)}")
    if version > SCHEMA_VERSION:
        needed = values.get("reader_version")
        if not isinstance(needed, str) or not re.fullmatch(PATTERNS["reader_version"], needed):
            needed = "the newest"
        raise ContractError(
            f"{source}: schema_version must be at most {SCHEMA_VERSION} for this version of training-storage, got:"
            f" {_shown(version)}; install {needed} or newer (pip install --upgrade training-storage)"
        )
    if version < SCHEMA_VERSION:
        raise ContractError(
            f"{source}: schema_version must be {SCHEMA_VERSION}, got: {_shown(version)}; deploy the job again with this"
            " version"
        )


_SHOWN_CHARACTERS = 60


def _shown(value: object) -> str:
    """Return a value for an error message: short and in one line, whatever it is."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits; a list nested as deeply
        return f"a {type(value).__name__} that is too large to show"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


# ---- what a value may be, as in storage_contract.schema.json: a test holds the two together -----------------------

_NAME: Final = r"[a-z][a-z0-9-]{0,29}"
_BUCKET: Final = r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]"
_DIRECTORY_BUCKET: Final = r"[a-z0-9-]{3,63}--x-s3"
_ZONE_ID: Final = r"[a-z]{2,6}[0-9](-[a-z]{3}[0-9]{1,2})?-az[1-9][0-9]?"
_PATH: Final = r"/[A-Za-z0-9._/-]*"
_CHECKPOINTS_URI: Final = rf"s3://[a-z0-9][a-z0-9-]{{1,68}}/checkpoints/{_NAME}/"

#: Text by its place, as a pattern of the whole of it.
PATTERNS: Final[Mapping[str, str]] = {
    "reader_version": r"[0-9]+\.[0-9]+\.[0-9]+",
    "job.name": _NAME,
    "job.instance_type": r"[a-z][a-z0-9-]{0,15}\.[a-z0-9]{1,12}",
    "region": r"[a-z]{2}(-[a-z]{2,12}){1,3}-[0-9]{1,2}",
    "zone_id": _ZONE_ID,
    "endpoint.url": r"https?://[a-z0-9.-]+(:[0-9]{1,5})?",
    "s3.bucket": _BUCKET,
    "s3.kms_key_arn": r"arn:aws(-[a-z]{2,6}){0,3}:kms:[a-z0-9-]{1,20}:[0-9]{12}:key/[A-Za-z0-9-]{1,40}",
    **{f"s3.uris.{folder}": rf"s3://{_BUCKET}/{folder}/" for folder in ("raw", "datasets", "finetune", "models")},
    **{f"s3.uris.{folder}": rf"s3://{_BUCKET}/{folder}/{_NAME}/" for folder in ("checkpoints", "logs", "evaluations")},
    "lustre.file_system_id": r"fs-[0-9a-f]{1,17}",
    "lustre.dns_name": r"fs-[0-9a-f]{17}\.fsx\.[a-z0-9-]{1,20}\.[a-z0-9.]{3,20}",
    "lustre.mount_name": r"[A-Za-z0-9_-]{1,8}",
    "lustre.mount_path": _PATH,
    "lustre.version": r"2\.[0-9]{2}",
    **{f"lustre.paths.{purpose}": rf"/[A-Za-z0-9._/-]*{purpose}/" for purpose in _PURPOSES["lustre"]},
    "s3_express.bucket": _DIRECTORY_BUCKET,
    "s3_express.zone_id": _ZONE_ID,
    "s3_express.uris.datasets": rf"s3://{_DIRECTORY_BUCKET}/datasets/",
    "s3_express.uris.checkpoints": rf"s3://{_DIRECTORY_BUCKET}/checkpoints/{_NAME}/",
    "mountpoint.path": _PATH,
    "mountpoint.bucket": _BUCKET,
    "mountpoint.cache_path": _PATH,
    "mountpoint.express_cache_bucket": _DIRECTORY_BUCKET,
    "scratch.path": _PATH,
    "loader.cache_path": _PATH,
    "checkpoints.path": _PATH,
    "checkpoints.uri": _CHECKPOINTS_URI,
    "checkpoints.local_path": _PATH,
    # A folder where the lake is one, as on a machine without a store.
    "checkpoints.durable_uri": rf"({_CHECKPOINTS_URI}|{_PATH})",
    "cluster.engine": r"[a-z][a-z0-9-]{1,15}",
}
#: Text that is one of a few words.
CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "endpoint.addressing_style": ("auto", "path", "virtual"),
    "endpoint.checksums": ("when_supported", "when_required"),
    "checkpoints.mode": ("async", "sync"),
    "cluster.metric_namespace": ("TrainingStorage",),
}
#: The least of each whole number.
LEAST: Final[Mapping[str, int]] = {
    "job.instances": 1,
    "job.accelerators_per_instance": 1,
    "lustre.efa_interfaces": 0,
    "lustre.storage_capacity_gib": 1,
    "lustre.servers": 1,
    "mountpoint.cache_gib": 1,
    "scratch.local_nvme_gb": 0,
    "loader.workers_per_accelerator": 1,
    "loader.prefetch_factor": 1,
    "loader.part_size_mib": 8,
    "checkpoints.kept": 1,
    "checkpoints.durable_kept": 0,
}
#: Numbers that are more than 0.
ABOVE_ZERO: Final = ("checkpoints.interval_minutes", "checkpoints.size_gib", "checkpoints.durable_interval_minutes")
#: The most of every number: 2^53 - 1, up to which JSON readers agree on each whole number.
MOST: Final = 2**53 - 1
#: Purposes that must be there.
NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "s3.uris": _PURPOSES["s3"],
    "lustre.paths": ("logs", "evaluations"),
    "s3_express.uris": (),
}


# ---- reading: the annotations above say what kind each key holds --------------------------------------------------


def _object(kind: type, values: object, source: str, place: str) -> Any:  # noqa: ANN401 -- a dataclass of this module
    if not isinstance(values, dict):
        raise ContractError(f"{source}: {place} must be an object, got: {_shown(values)}")
    fields = {field.name: str(field.type) for field in dataclasses.fields(kind)}
    _check_keys(values, fields, fields, source, place)
    return kind(
        **{
            name: _value(annotation, values[name], source, f"{place}.{name}" if place else name)
            for name, annotation in fields.items()
        }
    )


def _check_keys(
    values: Mapping[str, Any], needed: Iterable[str], allowed: Iterable[str], source: str, place: str
) -> None:
    inside = f" in {place}" if place else ""
    for name in needed:
        if name not in values:
            raise ContractError(f"{source}: the key {name!r} is missing{inside}; deploy the job again")
    for name in values:
        if name not in allowed:
            raise ContractError(
                f"{source}: the key {_shown(name)} is unknown{inside}; allowed are {', '.join(allowed)}. Leave the"
                " file as it was deployed"
            )


_PLAIN: Final[Mapping[str, tuple[type, ...]]] = {"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,)}
_WORDS: Final = {"str": "text", "int": "a whole number", "float": "a number", "bool": "true or false"}


def _value(annotation: str, value: Any, source: str, place: str) -> Any:  # noqa: ANN401 -- JSON
    if annotation.endswith(" | None"):
        return None if value is None else _value(annotation[: -len(" | None")], value, source, place)
    if annotation == "Mapping[str, str]":
        return _places(value, source, place)
    if annotation not in _PLAIN:
        return _object(globals()[annotation], value, source, place)
    of_kind = isinstance(value, _PLAIN[annotation]) and isinstance(value, bool) == (annotation == "bool")
    if not of_kind:
        raise ContractError(f"{source}: {place} must be {_WORDS[annotation]}, got: {_shown(value)}")
    if place != "schema_version" and not _is_allowed(place, value):
        raise ContractError(f"{source}: {place} must be {_allowed(place)}, got: {_shown(value)}")
    return float(value) if annotation == "float" else value


def _places(values: object, source: str, place: str) -> dict[str, str]:
    """Return paths or URIs by purpose."""
    if not isinstance(values, dict) or not all(isinstance(item, str) for item in values.values()):
        raise ContractError(f"{source}: {place} must be an object of texts, got: {_shown(values)}")
    _check_keys(values, NEEDED[place], _PURPOSES[place.split(".", maxsplit=1)[0]], source, place)
    if not values:
        raise ContractError(f"{source}: {place} must name a place, got: none")
    return {purpose: _value("str", value, source, f"{place}.{purpose}") for purpose, value in values.items()}


def _is_allowed(place: str, value: Any) -> bool:  # noqa: ANN401 -- a JSON scalar of the right kind
    if place in PATTERNS:
        return re.fullmatch(PATTERNS[place], value) is not None
    if place in CHOICES:
        return value in CHOICES[place]
    if place in LEAST:
        return bool(LEAST[place] <= value <= MOST)
    # NaN is in no range.
    return isinstance(value, bool) or bool(0 < value <= MOST)


def _allowed(place: str) -> str:
    if place in PATTERNS:
        return f"text of the form {PATTERNS[place]}"
    if place in CHOICES:
        return f"one of {', '.join(CHOICES[place])}"
    if place in LEAST:
        return f"a whole number from {LEAST[place]} to {MOST}"
    return f"a number above 0, at most {MOST}"
