"""The names inside ministack that this adapter reaches for, most of them private.

ministack is pinned; when a release moves one of these names, :func:`missing_names` says which, a test fails, and the
server refuses to start.
"""

import importlib

_CLOUDFORMATION = "ministack.services.cloudformation"

NAMES: dict[str, tuple[str, ...]] = {
    "ministack.app": ("SERVICE_HANDLERS", "SERVICE_REGISTRY", "_loaded_modules", "app", "main"),
    "ministack.core.responses": (
        "AccountRegionScopedDict",
        "get_account_id",
        "get_region",
        "now_iso",
        "set_request_account_id",
        "set_request_region",
    ),
    "ministack.core.router": ("SERVICE_PATTERNS",),
    "ministack.services.ec2": (
        "_ACTION_MAP",
        "_addresses",
        "_placement_groups",
        "_nat_gateways",
        "_network_acls",
        "_network_interfaces",
        "_rules_match",
        "_security_groups",
        "_subnets",
        "_tags",
        "_vpc_endpoints",
        "_vpcs",
        "_zone_name_for_az_id",
        "_az_id_for_zone_name",
    ),
    "ministack.services.s3": (
        "_bucket_policies",
        "_bucket_versioning",
        "_buckets",
        "_multipart_uploads",
        "_object_versions",
        "_put_object",
        "handle_request",
    ),
    "ministack.services.cloudwatch": ("_dims_key", "_metric_bucket", "record_metric"),
    "ministack.services.ssm": ("_PUBLIC_AMI_PARAMETERS",),
    _CLOUDFORMATION: ("_exports", "_stacks"),
    f"{_CLOUDFORMATION}.engine": (
        "_NO_VALUE",
        "_extract_deps",
        "_evaluate_conditions",
        "_resolve_refs",
        "_topological_sort",
    ),
    "ministack.services.lambda_svc": ("_execute_function_with_config_scope",),
    f"{_CLOUDFORMATION}.custom_resource": ("_pending", "deliver_response"),
    f"{_CLOUDFORMATION}.changesets": ("_RESOURCE_HANDLERS",),
    f"{_CLOUDFORMATION}.handlers": (
        "_ACTION_HANDLERS",
        "_delete_stack",
        "_delete_stack_async",
        "_imported_export_names",
    ),
    f"{_CLOUDFORMATION}.provisioners": (
        "_NAME_SEED",
        "_REPLACING_PROPERTIES",
        "_RESOURCE_HANDLERS",
        "_STACK_TAG_PROPERTY",
        "_delete_resource",
        "_ec2_sg_permissions",
        "_replacing_change",
    ),
    f"{_CLOUDFORMATION}.stacks": (
        "_RETAINING_POLICIES",
        "_add_event",
        "_delete_resource",
        "_delete_stack_async",
        "_replacing_change",
        "_resolve_stack_outputs",
        "_resource_policy",
        "_roll_back_operation",
        "_runs_on_worker_thread",
        "_snapshot_resource",
        "_topological_sort",
        "_with_dependencies",
        "run_reentrant",
    ),
}


def missing_names() -> list[str]:
    """Return each name that this adapter needs and the installed ministack lacks."""
    missing: list[str] = []
    for module_name, names in NAMES.items():
        module = importlib.import_module(module_name)
        missing.extend(f"{module_name}.{name}" for name in names if not hasattr(module, name))
    return missing
