# shellcheck shell=bash
# AWS PCS: the node is drained in Slurm.

# PCS keeps Slurm outside PATH, and an image may hold several versions: the one that slurmd runs is the cluster's.
find_scontrol() {
  local process executable=""
  for process in "${KIT_ROOT}"/proc/[0-9]*/exe; do
    executable="$(readlink "$process")" || continue # the process has ended
    if [[ "${executable##*/}" == slurmd ]]; then
      printf '%s' "${executable%/sbin/slurmd}/bin/scontrol"
      return
    fi
  done
  fail "slurmd does not run yet: the node cannot be found in Slurm"
}

# Calls Slurm; its answer is on standard output.
slurm() {
  if [[ -z "${SLURM_CONF:-}" && -e "${KIT_ROOT}/var/spool/slurmd/conf-cache/slurm.conf" ]]; then
    export SLURM_CONF="${KIT_ROOT}/var/spool/slurmd/conf-cache/slurm.conf"
  fi
  timeout --kill-after=5 60 "$scontrol" "$@"
}

# PCS names nodes by group and number (compute-1); the host's name stands beside it.
find_node() {
  local line
  scontrol="$(find_scontrol)"
  line="$(slurm --oneliner show nodes | grep --fixed-strings --max-count=1 " NodeHostName=$(hostname --short) ")" ||
    fail "no node in Slurm has the host name $(hostname --short)"
  node="${line#NodeName=}"
  node="${node%% *}"
  state="${line#* State=}"
  state="${state%% *}"
  reason_now=""
  if [[ "$line" == *" Reason="* ]]; then reason_now="${line#* Reason=}"; fi
}

engine_drain() {
  find_node
  if [[ "$state" == *DRAIN* && "$reason_now" != training-storage:* ]]; then
    log "${node} is drained for another reason, which stays: ${reason_now}"
    rm "${KIT_STATE}/drained"
  elif [[ "$state" == *DRAIN* && "$reason_now" == "$1"* ]]; then
    log "${node} is drained: $1"
  else
    slurm update "NodeName=${node}" State=DRAIN "Reason=$1"
    log "drained ${node}: $1"
  fi
}

engine_undrain() {
  find_node
  if [[ "$state" == *DRAIN* && "$reason_now" == training-storage:* ]]; then
    slurm update "NodeName=${node}" State=RESUME
    log "undrained ${node}"
  else
    log "${node} is not drained by this kit (state ${state}): left as it is"
  fi
}
