"""Conditions whose operands are functions: ministack compares them unresolved, which turns the outcome round."""

# ruff: noqa: SLF001 - ministack has no public way in; names.py lists what is reached for

from typing import Any

from ministack.services.cloudformation import changesets, engine, handlers, provisioners, stacks

_RESOLVED_FIRST = ("Fn::FindInMap", "Fn::Join", "Fn::Select", "Fn::Split", "Fn::Sub")


def install() -> None:
    """Resolve Fn::Join and its kin, and pseudo parameters, before conditions are compared."""
    original = engine._evaluate_conditions

    def evaluate_conditions(template: dict[str, Any], parameters: dict[str, Any]) -> Any:  # noqa: ANN401 - as ministack's
        conditions = template.get("Conditions")
        if not conditions:
            return original(template, parameters)
        mappings = template.get("Mappings", {})
        resolved = {name: _resolved(value, parameters, mappings) for name, value in conditions.items()}
        return original({**template, "Conditions": resolved}, parameters)

    for module in (engine, stacks, handlers, changesets, provisioners):
        if hasattr(module, "_evaluate_conditions"):
            module._evaluate_conditions = evaluate_conditions


def _resolved(node: Any, parameters: dict[str, Any], mappings: dict[str, Any]) -> Any:  # noqa: ANN401 - walks JSON
    if isinstance(node, list):
        return [_resolved(item, parameters, mappings) for item in node]
    if not isinstance(node, dict):
        return node
    [(name, argument)] = node.items() if len(node) == 1 else [("", None)]
    if name in _RESOLVED_FIRST or (name == "Ref" and str(argument).startswith("AWS::")):
        return engine._resolve_refs(node, {}, parameters, {}, mappings, "", "")
    return {key: _resolved(value, parameters, mappings) for key, value in node.items()}
