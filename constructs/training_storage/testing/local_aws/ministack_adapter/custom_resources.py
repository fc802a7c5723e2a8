"""A custom resource whose function breaks down fails at once.

CloudFormation waits for the answer of such a function until the resource's ServiceTimeout, an hour by default. Nobody
wants to wait for that here; the failure and its reason are the same. Only the function that CloudFormation itself
called counts: CDK's provider framework hands the event on to a poll that ends with an error whenever it is to be
repeated.
"""

# ruff: noqa: SLF001 - ministack has no public way in; names.py lists what is reached for

from typing import Any

from ministack.services import lambda_svc
from ministack.services.cloudformation import custom_resource


def install() -> None:
    """Answer FAILED for a function that ends with an error and without an answer."""
    original = lambda_svc._execute_function_with_config_scope

    def execute(function: dict[str, Any], event: dict[str, Any]) -> Any:  # noqa: ANN401 - as ministack's
        result = original(function, event)
        if _is_called_by_cloudformation(function, event) and isinstance(result, dict) and result.get("error"):
            body = result.get("body")
            reason = body.get("errorMessage") if isinstance(body, dict) else body
            token = str(event["ResponseURL"]).rsplit("/", 1)[1]
            answered = custom_resource._pending.get(token, {}).get("result") is not None
            if not answered:
                text = f"The function of the custom resource failed without an answer: {reason}"
                custom_resource.deliver_response(token, {"Status": "FAILED", "Reason": text})
        return result

    lambda_svc._execute_function_with_config_scope = execute


def _is_called_by_cloudformation(function: dict[str, Any], event: object) -> bool:
    if not isinstance(event, dict) or "ResponseURL" not in event:
        return False
    token = str((event.get("ResourceProperties") or {}).get("ServiceToken", ""))
    return bool(token) and token == (function.get("config") or {}).get("FunctionArn")
