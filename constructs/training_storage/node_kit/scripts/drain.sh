#!/usr/bin/env bash
# Concern: the node's state in its engine follows run/unhealthy: drained while the file is there, with its first line as
# the reason; undrained when it is gone, and only if this kit drained the node. Exit 75: the engine is not there yet.
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
# An engine defines engine_drain REASON and engine_undrain; and engine_joined, if a node's name outlives the instance.
# shellcheck source=../engines/pcs.sh
source "$engine"
mkdir --parents "$KIT_RUN" "$KIT_STATE"
exec 8>"${KIT_STATE}/drain.lock"
flock 8
ours="${KIT_STATE}/drained" # outlives a reboot, as the drained state in Slurm does
# ready.sh refused a job in Slurm's prolog, for the reason in this file. Slurm then drains the node with the reason
# "Prolog error", possibly a little later than this runs: so the file stays for some minutes, and says that it was us.
prolog="${KIT_STATE}/prolog-failed"
prolog_minutes=15

drain() {
  local reason="training-storage: $1"
  # Said before it is done: a node that is drained and not known to be ours would stay drained for ever.
  printf '%s\n' "$reason" >"$ours"
  engine_drain "$reason"
}

# An engine may know nodes by names that instances inherit: a new instance, and with it a repaired node, would come into
# the drain that another one was given. Once for each instance; an image may hold the state of the one it was made from.
join() {
  local instance
  if [[ -e "${KIT_RUN}/joined" ]] || ! declare -F engine_joined >/dev/null; then return; fi
  instance="$(instance_metadata instance-id)"
  if [[ ! -e "${KIT_STATE}/instance" || "$(<"${KIT_STATE}/instance")" != "$instance" ]]; then
    engine_joined
    printf '%s\n' "$instance" >"${KIT_STATE}/instance"
  fi
  touch "${KIT_RUN}/joined"
}

if [[ -e "${KIT_RUN}/unhealthy" ]]; then
  reason=""
  read -r reason <"${KIT_RUN}/unhealthy"
  drain "$reason"
elif [[ -e "$prolog" && "$prolog" -nt "${KIT_RUN}/ready" ]]; then
  # No run of the checks has passed since.
  drain "$(<"$prolog")"
elif [[ -e "$ours" || -e "$prolog" ]]; then
  engine_undrain
  rm --force "$ours"
  find "$prolog" -maxdepth 0 -mmin "+${prolog_minutes}" -delete 2>/dev/null || [[ ! -e "$prolog" ]]
else
  join
fi
