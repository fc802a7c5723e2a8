#!/usr/bin/env bash
# The client has the parameters that the plan counts on; they are lost with the mount.
# Needs: contract kernel lustre-client efa-interfaces mounted
set -euo pipefail
# shellcheck source=../lib/common.sh
source "${BASH_SOURCE[0]%/*}/../lib/common.sh"
load_settings
load_contract
[[ -n "$LUSTRE_PATH" ]] || exit 3
(("$(nproc)" > 64)) || exit 3
values="$(lctl get_param -n "osc.*OST*.max_rpcs_in_flight" | sort --unique | tr '\n' ' ')"
if [[ "$values" != "32 " ]]; then
  printf 'osc.*.max_rpcs_in_flight is %s, set is 32 (training-storage-lustre-tuning.service)\n' "$values"
  exit 1
fi
printf 'set\n'
