"""Everything that one training job needs, composed from its plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from aws_cdk import Annotations, Stack, Tags
from constructs import Construct

from training_storage.checkpoint_archive import CheckpointArchive
from training_storage.data_lake import DataLakeBase
from training_storage.data_repository_association import DataRepositoryAssociation
from training_storage.directory_bucket import DirectoryBucket
from training_storage.express_gate import ExpressGate
from training_storage.final_export import FinalExport
from training_storage.gpu_cluster import COMPUTE, ENGINES, LOGIN
from training_storage.lustre_file_system import LustreFileSystem
from training_storage.node_kit import NodeKit
from training_storage.operations.lustre_state import JOB_TAG
from training_storage.park import Park, refuse_nested
from training_storage.planning import InvalidJobError, StoragePlan, catalog, choose_engine
from training_storage.planning.catalog.capacity_blocks import capacity_blocks
from training_storage.planning.engines import packages_warning
from training_storage.planning.plan import DATA_LAKE
from training_storage.planning.selection import EXPRESS, LUSTRE
from training_storage.scheduled_release import ScheduledRelease
from training_storage.storage_alarms import StorageAlarms
from training_storage.storage_contract import StorageContractParameter
from training_storage.subnet_addresses import needed_addresses, refuse_small_subnet, several_addresses
from training_storage.training_network import TrainingNetwork, maximum_addresses
from training_storage.validation import ConstructError, is_token, require_flags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aws_cdk import aws_ec2 as ec2
    from aws_cdk import aws_kms as kms
    from aws_cdk import aws_sns as sns

    from training_storage.gpu_cluster import GpuCluster
    from training_storage.planning import EngineChoice, LustrePlan
    from training_storage.planning.catalog import InstanceType

__all__ = ["TrainingStorage"]

# Read by every job: data and weights that jobs share.
_SHARED_FOLDERS = ("raw/", "datasets/", "finetune/", "models/")
# Written by this job alone, each under its own name.
_JOB_FOLDERS = ("checkpoints", "logs", "evaluations", "models")
# Of these, written from the login node.
_LOGIN_FOLDERS = ("logs", "evaluations")


class TrainingStorage(Construct):
    """Network, hot tiers and cluster of one job, as its plan says; the lake is there already.

    Parameters
    ----------
    scope, id
        Where in the construct tree.
    plan
        What `plan_storage` returned.
    data_lake
        The lake, made here or imported. Only identity policies refer to it.
    vpc, subnet
        A network of the caller, both or neither. The subnet must be private and in the plan's zone, which cannot be
        checked at synth.
    egress
        nat or isolated; for a network made here.
    engine
        What starts the nodes: pcs or ec2; None for pcs where it can serve the plan, else ec2
        (`training_storage.planning.choose_engine` says which, and why).
    purchase, capacity_reservation_ids, ami_parameter, home_file_system_id, slurm_version
        See `GpuCluster`.
    security_groups
        Groups of the caller that every node attaches besides those made here.
    encryption_key
        KMS key for what is made here and stores data, such as hot tiers and /home; the lake's if none is given. It must
        outlive this stack, as what it encrypts may.
    alarm_topic
        Told of every alarm; see `StorageAlarms`.
    checkpoints_disposable
        True if checkpoints of the hot tiers may be lost with them: they are neither archived by schedule nor exported
        before the tier goes.
    release_after_days
        Free the space of exported files that nobody has used for so many days, once a day; None never does.
    time_to_live_hours, idle_park_hours
        When to park by itself; see `Park`.

    Attributes
    ----------
    network
        The network made here; None for a caller's.
    file_system, directory_bucket
        The hot tiers; None where the plan has none.
    contract
        The parameter that tells nodes and training code where the storage is.
    node_kit
        What mounts and checks the storage on each node.
    cluster
        The nodes.
    final_export, express_gate
        What lets a hot tier go only after its content is safe; None where the plan has no such tier.
    park
        What ends the job and keeps its data, however long that takes. In a nested stack there is none, which synth
        says: there the gates alone keep the data when the root stack goes.
    checkpoint_archive, scheduled_release
        What runs on a schedule; None where it does not.
    alarms
        Alarms on the file system, its links and the nodes.

    Raises
    ------
    ConstructError
        For a plan without a zone, half a network or one too small, or an engine that cannot serve the plan.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        plan: StoragePlan,
        data_lake: DataLakeBase,
        vpc: ec2.IVpc | None = None,
        subnet: ec2.ISubnet | None = None,
        egress: str = "nat",
        engine: str | None = None,
        purchase: str = "on-demand",
        capacity_reservation_ids: Sequence[str] = (),
        ami_parameter: str | None = None,
        home_file_system_id: str | None = None,
        slurm_version: str | None = None,
        security_groups: Sequence[ec2.ISecurityGroup] = (),
        encryption_key: kms.IKey | None = None,
        alarm_topic: sns.ITopic | None = None,
        checkpoints_disposable: bool = False,
        release_after_days: int | None = None,
        time_to_live_hours: int | None = None,
        idle_park_hours: int | None = None,
    ) -> None:
        zone_id = _checked_zone(plan, data_lake, Stack.of(scope))
        _refuse_network(vpc, subnet)
        try:
            choice = choose_engine(plan, engine=engine, ami_parameter=ami_parameter)
        except InvalidJobError as error:
            raise ConstructError(str(error)) from None
        engine_class = ENGINES[choice.name]
        data_lake.claim_job(plan.job.name or "default")
        super().__init__(scope, id)
        self.plan = plan
        # The lake's key: it outlives this stack, as what it encrypts does.
        self.encryption_key: kms.IKey = encryption_key or data_lake.encryption_key
        self.data_lake = data_lake
        instance_type = catalog.instance_type(plan.job.instance_type or "")

        #: The engine, and why it is not the default one.
        self.engine: EngineChoice = choice
        if egress == "isolated":
            self._warn_of_packages(instance_type, ami_parameter)
        self.network: TrainingNetwork | None = None
        node_apis = engine_class.node_apis
        if vpc is None or subnet is None:
            self.network = TrainingNetwork(
                self,
                "Network",
                zone_id=zone_id,
                addresses=needed_addresses(
                    plan,
                    further=engine_class.further_addresses(),
                    # Without a way out each API needs an endpoint, and each endpoint an address.
                    most=maximum_addresses() - (len(node_apis) if egress == "isolated" else 0),
                ),
                egress=egress,
                node_apis=node_apis,
                s3_express=bool(catalog.region(plan.region).express_zone_ids),
            )
            vpc, subnet = self.network.vpc, self.network.subnet
        else:
            refuse_small_subnet(subnet, plan, further=engine_class.further_addresses())
        self.vpc, self.subnet = vpc, subnet

        self.file_system = self._make_file_system(plan.fsx_lustre) if plan.fsx_lustre else None
        self.directory_bucket: DirectoryBucket | None = None
        if plan.s3_express:
            self.directory_bucket = DirectoryBucket(
                self, "DirectoryBucket", zone_id=zone_id, encryption_key=self.encryption_key
            )
        self.contract = StorageContractParameter(
            self,
            "Contract",
            plan=plan,
            data_lake=data_lake,
            engine=choice.name,
            file_system=self.file_system,
            directory_bucket=self.directory_bucket,
        )
        self.node_kit = NodeKit(
            self,
            "NodeKit",
            contract_parameter=self.contract.parameter_name,
            job_name=self.job_name,
            engine=choice.name,
            purchase=purchase,
            block_end_minutes=capacity_blocks().end_minutes_of(instance_type.name),
        )
        self.cluster: GpuCluster = engine_class(
            self,
            "Cluster",
            vpc=vpc,
            subnet=subnet,
            instance_type=instance_type,
            instances=plan.job.instances,
            client_security_groups=[
                *([self.file_system.client_security_group] if self.file_system else []),
                *security_groups,
            ],
            purchase=purchase,
            capacity_reservation_ids=capacity_reservation_ids,
            ami_parameter=ami_parameter,
            several_addresses=several_addresses(plan),
            encryption_key=self.encryption_key,
            boot_commands=self.node_kit.commands,
            home_file_system_id=home_file_system_id,
            slurm_version=slurm_version,
        )
        links = self.file_system.links if self.file_system else []
        # Links too: what a node writes before its folder is linked does not leave the file system by itself.
        self.cluster.nodes_wait_for(*filter(None, (self.contract, self.file_system, *links, self.directory_bucket)))
        self._grant()
        self.final_export: FinalExport | None = None
        self.express_gate: ExpressGate | None = None
        self.checkpoint_archive: CheckpointArchive | None = None
        self._make_gates(disposable=checkpoints_disposable)
        if self.directory_bucket and self._saves_to(EXPRESS) and not checkpoints_disposable:
            # One zone is no place for the only copy.
            self.checkpoint_archive = self._make_archive(self.directory_bucket, alarm_topic)
        self._park: Park | None = None
        if _can_park(self, time_to_live_hours, idle_park_hours):
            self._park = Park(
                self,
                "Park",
                cluster=self.cluster,
                job_name=self.job_name,
                file_system=self.file_system,
                final_export=self.final_export,
                express_gate=self.express_gate,
                alarm_topic=alarm_topic,
                time_to_live_hours=time_to_live_hours,
                idle_park_hours=idle_park_hours,
                # Checkpoints that go elsewhere are no use of the file system: a run that saves there would look idle.
                checkpoint_interval_minutes=plan.demand.checkpoint_interval_minutes if self._saves_to(LUSTRE) else None,
            )
        self.alarms = StorageAlarms(
            self,
            "Alarms",
            job_name=self.job_name,
            file_system=self.file_system,
            baseline_mb_per_s=plan.fsx_lustre.baseline_mb_per_s if plan.fsx_lustre else None,
            topic=alarm_topic,
        )
        self.scheduled_release: ScheduledRelease | None = None
        if release_after_days is not None:
            self.scheduled_release = self._make_release(release_after_days, alarm_topic)
        Tags.of(self).add(JOB_TAG, self.job_name)

    @property
    def park(self) -> Park:
        """What ends the job and keeps its data, however long that takes.

        Raises
        ------
        ConstructError
            In a nested stack, which has none: see `Park`.
        """
        if self._park is None:
            refuse_nested(self)
        return cast("Park", self._park)

    @property
    def job_name(self) -> str:
        """Name of the job in paths and tags: `default` without a name."""
        return self.plan.job.name or "default"

    def _warn_of_packages(self, instance_type: InstanceType, ami_parameter: str | None) -> None:
        warning = packages_warning(self.engine.name, instance_type, ami_parameter=ami_parameter)
        if warning is not None:
            Annotations.of(self).add_warning_v2("training-storage:packages", warning)

    def _make_file_system(self, plan: LustrePlan) -> LustreFileSystem:
        scratch = plan.deployment_type == "SCRATCH_2"
        file_system = LustreFileSystem(
            self,
            "FileSystem",
            vpc=self.vpc,
            subnet=self.subnet,
            deployment_type=plan.deployment_type,
            storage_capacity_gib=plan.storage_capacity_gib,
            # Scratch has one throughput, which is no parameter.
            per_unit_storage_throughput=None if scratch else plan.per_unit_storage_throughput,
            # What comes with the capacity is left to FSx, so that it grows with it.
            metadata_iops=plan.metadata_iops if plan.metadata_mode == "USER_PROVISIONED" else None,
            efa_enabled=plan.efa_enabled,
            file_system_type_version=plan.file_system_type_version,
            # Never a key of this stack, which would be scheduled for deletion with it, under a retained file system.
            # Scratch takes no key.
            encryption_key=None if scratch else self.encryption_key,
        )
        for link in plan.data_repository_associations:
            DataRepositoryAssociation(
                self,
                "Link" + link.file_system_path.strip("/").title().replace("/", ""),
                file_system=file_system,
                file_system_path=link.file_system_path,
                data_lake=self.data_lake,
                prefix=link.data_repository_path.removeprefix(f"s3://{DATA_LAKE}/"),
                import_events=link.auto_import_events,
                export_events=link.auto_export_events,
                batch_import_metadata_on_create=link.batch_import_metadata,
            )
        return file_system

    def _saves_to(self, tier: str) -> bool:
        return any(place.data == "checkpoints" and place.hot == tier for place in self.plan.placement)

    def _make_gates(self, *, disposable: bool) -> None:
        """Let no hot tier go before its content is safe, and writers before the tier."""
        require_flags(checkpoints_disposable=disposable)
        if disposable:
            self._refuse_disposable()
        if self.file_system:
            self.final_export = self._make_final_export(self.file_system, disposable=disposable)
            self.cluster.node.add_dependency(self.final_export)
        if self.directory_bucket:
            self.express_gate = ExpressGate(
                self,
                "ExpressGate",
                directory_bucket=self.directory_bucket,
                data_lake=self.data_lake,
                job_name=self.job_name,
                disposable=disposable,
            )
            self.cluster.node.add_dependency(self.express_gate)

    def _make_archive(self, bucket: DirectoryBucket, alarm_topic: sns.ITopic | None) -> CheckpointArchive:
        return CheckpointArchive(
            self,
            "Archive",
            directory_bucket=bucket,
            data_lake=self.data_lake,
            job_name=self.job_name,
            durable_interval_minutes=self.plan.job.durable_interval_minutes or 0,
            durable_checkpoints_kept=self.plan.job.durable_checkpoints_kept or 0,
            alarm_topic=alarm_topic,
        )

    def _make_final_export(self, file_system: LustreFileSystem, *, disposable: bool) -> FinalExport:
        checkpoints = [link.file_system_path for link in file_system.links if "checkpoints" in link.file_system_path]
        return FinalExport(
            self,
            "FinalExport",
            file_system=file_system,
            data_lake=self.data_lake,
            job_name=self.job_name,
            disposable_paths=checkpoints if disposable else [],
            network=[self.network] if self.network else [],
        )

    def _refuse_disposable(self) -> None:
        if not (self._saves_to(LUSTRE) or self._saves_to(EXPRESS)):
            raise ConstructError(
                "checkpoints_disposable must be left out, got: True; no hot tier of this plan holds checkpoints"
            )

    def _make_release(self, unused_days: int, alarm_topic: sns.ITopic | None) -> ScheduledRelease:
        if self.file_system is None:
            raise ConstructError(
                f"release_after_days must be left out without fsx-lustre, got: {unused_days}; the tiers of this plan"
                f" are {', '.join(self.plan.tiers)}"
            )
        return ScheduledRelease(
            self, "Release", file_system=self.file_system, unused_days=unused_days, alarm_topic=alarm_topic
        )

    def _grant(self) -> None:
        """Grant each role of nodes what it needs, and no more.

        The login node reads what the job reads and writes, and writes results; checkpoints and weights are the job's
        own, so that no slip of a hand removes them.
        """
        own = {
            COMPUTE: _JOB_FOLDERS,
            LOGIN: _LOGIN_FOLDERS,
        }
        for name, role in self.cluster.roles.items():
            read_only = [folder for folder in _JOB_FOLDERS if folder not in own[name]]
            self.data_lake.grant_read(role, prefixes=[*_SHARED_FOLDERS, *self._own(read_only)])
            self.data_lake.grant_read_write(role, prefixes=self._own(own[name]))
            self.data_lake.grant_list_names(role)
            self.node_kit.grant(role)
            if self.file_system:
                self.file_system.grant_describe(role)
            if self.file_system and name == COMPUTE:
                # Archiving from the job: what it keeps is exported by a task.
                self.file_system.grant_tasks_of_job(role, job_name=self.job_name)
            if self.directory_bucket and name == COMPUTE:
                self.directory_bucket.grant_read_write(role)
                self.data_lake.grant_list_uploads(role)
            elif self.directory_bucket:
                self.directory_bucket.grant_read(role)

    def _own(self, folders: Sequence[str]) -> list[str]:
        return [f"{folder}/{self.job_name}/" for folder in folders]


def _checked_zone(plan: StoragePlan, data_lake: DataLakeBase, stack: Stack) -> str:
    """Return the zone of the plan, after refusing what is no plan or no lake, or a plan for elsewhere."""
    if not isinstance(plan, StoragePlan):
        raise ConstructError(f"plan must be what plan_storage returned, got: a {type(plan).__name__}")
    if not isinstance(data_lake, DataLakeBase):
        raise ConstructError(
            f"data_lake must be a DataLake or an ImportedDataLake, got: a {type(data_lake).__name__};"
            " wrap a bucket of yours in ImportedDataLake"
        )
    if plan.zone_id is None:
        raise ConstructError(
            f"zone_id must be given: no zone of {plan.region} is known to offer {plan.job.instance_type}; such as"
            f" zone_id={catalog.region(plan.region).zone_id_prefix}-az1 ('aws ec2 describe-instance-type-offerings"
            f" --location-type availability-zone-id' lists the zones that do). {_known_types(plan.region)}"
        )
    region = stack.region
    if not is_token(region) and region != plan.region:
        raise ConstructError(
            f"the plan must be for {region}, the Region of the stack, got: one for {plan.region};"
            f" plan again with region={region}"
        )
    return plan.zone_id


def _can_park(scope: Construct, *times: int | None) -> bool:
    """Whether the stack is one that park may delete; refuses a time to park where it is not, and says so once."""
    if Stack.of(scope).nested_stack_parent is None:
        return True
    if any(time is not None for time in times):
        refuse_nested(scope)
    Annotations.of(scope).add_info_v2(
        "training-storage:no-park",
        "no park in a nested stack: deleting the root stack keeps the data as well, but has an hour for each hot tier;"
        " for park give the job a stack of its own",
    )
    return False


def _known_types(region: str) -> str:
    """Return which other types the catalog knows in `region`, in a sentence."""
    known = catalog.region(region).instance_types
    if not known:
        return f"The catalog knows no accelerated instance of {region}"
    in_zones = [name for name, zones in known.items() if zones]
    where = "with its zone" if in_zones else "without their zones"
    return f"The catalog knows there, {where}: instance_type={' or '.join(sorted(in_zones or known))}"


def _refuse_network(vpc: ec2.IVpc | None, subnet: ec2.ISubnet | None) -> None:
    if (vpc is None) != (subnet is None):
        raise ConstructError(
            "vpc and subnet must be given together, got: only one of them; a subnet of another VPC cannot be used"
        )
    if subnet is not None and vpc is not None and subnet.node.path in {s.node.path for s in vpc.public_subnets}:
        raise ConstructError(
            f"subnet must be private, got: {subnet.node.path}, a public one; nodes and file servers have no public"
            " address and need none"
        )
