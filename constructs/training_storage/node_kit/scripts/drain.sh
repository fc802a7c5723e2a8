#!/usr/bin/env bash
# Concern: the node's state in its engine follows run/unhealthy: drained while the file is there, with its first line as
# the reason; undrained when it is gone, and only if this kit drained the node.
set -euo pipefail
# shellcheck source=../lib/common.sh
source "${BASH_SOURCE[0]%/*}/../lib/common.sh"
load_settings
if [[ "$KIT_ROLE" == login ]]; then
  log "a login node only reports"
  exit 0
fi
engine="${KIT_HOME}/engines/${KIT_ENGINE}.sh"
[[ -r "$engine" ]] || fail "no engine is called ${KIT_ENGINE}"
# An engine defines engine_drain REASON and engine_undrain.
# shellcheck source=../engines/pcs.sh
source "$engine"
mkdir --parents "$KIT_STATE"
exec 8>"${KIT_STATE}/drain.lock"
flock 8
ours="${KIT_STATE}/drained" # outlives a reboot, as the drained state in Slurm does
if [[ -e "${KIT_RUN}/unhealthy" ]]; then
  reason=""
  read -r reason <"${KIT_RUN}/unhealthy"
  reason="training-storage: ${reason}"
  # Said before it is done: a node that is drained and not known to be ours would stay drained for ever.
  printf '%s\n' "$reason" >"$ours"
  engine_drain "$reason"
elif [[ -e "$ours" ]]; then
  engine_undrain
  rm "$ours"
fi
