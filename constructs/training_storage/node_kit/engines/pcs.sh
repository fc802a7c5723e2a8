# shellcheck shell=bash
# AWS PCS: the node is drained in Slurm.

# root_owned PATH: the kit's own user (root) owns it, and nobody else may write to it.
root_owned() {
  local owner_and_mode
  owner_and_mode="$(stat --dereference --format '%u %a' "$1")" || return 1
  [[ "${owner_and_mode%% *}" == "$EUID" ]] && ((!(8#${owner_and_mode##* } & 8#022)))
}

# PCS keeps Slurm outside PATH, and an image may hold several versions: the one that slurmd runs is the cluster's. Any
# user can run a program that is called slurmd: only root's counts, and only a program in PCS's own folder is called.
find_scontrol() {
  local process executable scontrol prefix="${KIT_ROOT}/opt/aws/pcs/scheduler"
  for process in "${KIT_ROOT}"/proc/[0-9]*; do
    executable="$(readlink "${process}/exe")" || continue # the process has ended, or is one of the kernel's
    [[ "$executable" =~ ^"${prefix}"/(slurm-[A-Za-z0-9._-]+)/sbin/slurmd$ ]] || continue
    scontrol="${prefix}/${BASH_REMATCH[1]}/bin/scontrol"
    if [[ "$(stat --format %u "$process")" != "$EUID" ]]; then
      log "ignoring ${process}: it runs slurmd and is not root's"
    elif [[ "$(realpath "$scontrol")" != "${prefix}"/slurm-*/bin/scontrol ]] || ! root_owned "$scontrol" ||
      ! root_owned "${scontrol%/*}" || ! root_owned "$prefix"; then
      log "ignoring ${scontrol}: it must lie in ${prefix}, be root's, and be writable by nobody else"
    else
      printf '%s' "$scontrol"
      return
    fi
  done
  later "slurmd does not run yet: the node cannot be found in Slurm"
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
  local nodes line=""
  scontrol="$(find_scontrol)"
  # Read to the end: a reader that stops early ends scontrol with SIGPIPE in a cluster of some hundred nodes.
  nodes="$(slurm --oneliner show nodes)"
  line="$(awk -v host="NodeHostName=$(hostname --short)" '
    !seen { for (i = 1; i <= NF; i++) if ($i == host) { seen = 1; print; break } }' <<<"$nodes")"
  [[ -n "$line" ]] || later "no node in Slurm has the host name $(hostname --short)"
  node="${line#NodeName=}"
  node="${node%% *}"
  state="${line#* State=}"
  state="${state%% *}"
  reason_now=""
  if [[ "$line" == *" Reason="* ]]; then reason_now="${line#* Reason=}"; fi
}

# Whether the drain in Slurm is the kit's: by its reason; or Slurm's own for a prolog that failed, if it was ours.
drained_by_kit() {
  [[ "$reason_now" == training-storage:* ]] ||
    [[ "$reason_now" == "Prolog error"* && -e "${KIT_STATE}/prolog-failed" ]]
}

engine_drain() {
  find_node
  if [[ "$state" == *DRAIN* ]] && ! drained_by_kit; then
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
  if [[ "$state" == *DRAIN* ]] && drained_by_kit; then
    slurm update "NodeName=${node}" State=RESUME
    log "undrained ${node}"
  else
    log "${node} is not drained by this kit (state ${state}): left as it is"
  fi
}

# DRAIN belongs to the node's name, which the next instance gets too.
engine_joined() {
  engine_undrain
}

# Beside the node in `scontrol show node`.
engine_note() {
  find_node
  slurm update "NodeName=${node}" "Comment=$1"
}
