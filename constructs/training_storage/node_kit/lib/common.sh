# shellcheck shell=bash
# Paths, log, bounded retries and the contract's values, for every script of the kit.
# KIT_ROOT puts every path below another folder, so that the scripts can be tried without being root.
shopt -s inherit_errexit
export KIT_ROOT="${KIT_ROOT:-}"
export KIT_HOME="${KIT_ROOT}/opt/training-storage"
export KIT_ETC="${KIT_ROOT}/etc/training-storage"
export KIT_RUN="${KIT_ROOT}/run/training-storage"     # of this boot
export KIT_STATE="${KIT_ROOT}/var/lib/training-storage" # of this instance

# Under systemd a <N> at the start of a line is its priority in the journal.
_priority() {
  if [[ -n "${JOURNAL_STREAM:-}" ]]; then printf '<%s>' "$1"; fi
}

log() {
  printf '%s%s: %s\n' "$(_priority 6)" "${0##*/}" "$*" >&2
}

fail() {
  printf '%s%s: %s\n' "$(_priority 3)" "${0##*/}" "$*" >&2
  exit 1
}

# What is asked for does not exist yet, so that whoever called may ask again: sysexits.h, EX_TEMPFAIL.
export LATER=75
later() {
  log "$*"
  exit "$LATER"
}

# retry ATTEMPTS BASE CAP COMMAND...: exponential backoff from BASE to CAP seconds with full jitter, so that hundreds of
# nodes that start together do not knock together.
retry() {
  local attempts="$1" limit="$2" cap="$3" attempt=1 pause
  shift 3
  until "$@"; do
    if ((attempt >= attempts)); then
      log "gave up after ${attempts} attempts: $*"
      return 1
    fi
    pause=$((1 + RANDOM % limit))
    log "attempt ${attempt} of ${attempts} failed, again in ${pause} s: $*"
    sleep "$pause"
    attempt=$((attempt + 1))
    limit=$((limit * 2 > cap ? cap : limit * 2))
  done
}

# have COMMAND...: all of them are there. `command -v` itself is content with one.
have() {
  local name
  for name in "$@"; do
    command -v "$name" >/dev/null || return 1
  done
}

# What install.sh was told: KIT_PARAMETER, KIT_REGION, KIT_JOB, KIT_ENGINE, KIT_ROLE, KIT_PURCHASE, KIT_RESERVATIONS,
# KIT_BLOCK_END_MINUTES.
load_settings() {
  [[ -r "${KIT_ETC}/kit.env" ]] || fail "${KIT_ETC}/kit.env is missing: run install.sh"
  # shellcheck source=/dev/null
  source "${KIT_ETC}/kit.env"
}

# The contract's values as the scripts use them: folders without the slash at the end, empty where the contract has null.
load_contract() {
  [[ -r "${KIT_ETC}/storage.env" ]] || fail "${KIT_ETC}/storage.env is missing: training-storage-contract.service failed"
  # shellcheck source=/dev/null
  source "${KIT_ETC}/storage.env"
  export LUSTRE_PATH="${TRAINING_STORAGE_LUSTRE_MOUNT_PATH:-}"
  LUSTRE_PATH="${LUSTRE_PATH%/}"
  export CHECKPOINTS_PATH="${TRAINING_STORAGE_CHECKPOINTS_PATH:-}"
  CHECKPOINTS_PATH="${CHECKPOINTS_PATH%/}"
  export SCRATCH_PATH="${TRAINING_STORAGE_SCRATCH_PATH:-}"
  SCRATCH_PATH="${SCRATCH_PATH%/}"
  export LAKE_PATH="${TRAINING_STORAGE_MOUNTPOINT_PATH:-}"
  LAKE_PATH="${LAKE_PATH%/}"
  export CACHE_PATH="${TRAINING_STORAGE_MOUNTPOINT_CACHE_PATH:-}"
  CACHE_PATH="${CACHE_PATH%/}"
  # A login node has no EFA interfaces: it mounts over TCP, whatever the nodes do.
  export EFA_INTERFACES=0
  if [[ "${TRAINING_STORAGE_LUSTRE_EFA_ENABLED:-false}" == true && "${KIT_ROLE:?}" == compute ]]; then
    EFA_INTERFACES="${TRAINING_STORAGE_LUSTRE_EFA_INTERFACES:-0}"
  fi
}

# Folders of the file system that training writes to, those of the contract only.
writable_folders() {
  local folder
  for folder in \
    "$CHECKPOINTS_PATH" \
    "${TRAINING_STORAGE_LUSTRE_PATHS_CHECKPOINTS:-}" \
    "${TRAINING_STORAGE_LUSTRE_PATHS_LOGS:-}" \
    "${TRAINING_STORAGE_LUSTRE_PATHS_EVALUATIONS:-}"; do
    if [[ -n "$folder" ]]; then printf '%s\n' "${folder%/}"; fi
  done | sort --unique
}

# mounted PATH [COLUMN]: the value from the kernel's mount table; it does not touch the file system, so it cannot hang.
mounted() {
  findmnt --noheadings --mountpoint "${KIT_ROOT}$1" --output "${2:-FSTYPE}"
}

# put_file FILE MODE: standard input becomes FILE, in one step, and only if it differs. Says on standard output if so.
put_file() {
  local file="$1" mode="$2" new
  mkdir --parents "${file%/*}"
  new="$(mktemp "${file%/*}/.new.XXXXXX")"
  cat >"$new"
  if [[ -e "$file" ]] && cmp --silent "$new" "$file"; then
    rm "$new"
    return
  fi
  chmod "$mode" "$new"
  mv "$new" "$file"
  printf 'changed\n'
}

# read_lines ARRAY COMMAND...: the lines that a command prints; a command that fails ends the script.
read_lines() {
  local -n into="$1"
  local text
  shift
  text="$("$@")"
  into=()
  if [[ -n "$text" ]]; then
    # shellcheck disable=SC2034 # a reference to the caller's array
    mapfile -t into <<<"$text"
  fi
}

# "amzn 2023" or "ubuntu 24.04". In a subshell, for the file sets a dozen names.
distribution() (
  # shellcheck source=/dev/null
  source "${KIT_ROOT}/etc/os-release"
  printf '%s %s' "$ID" "$VERSION_ID"
)

# Ask the distribution's own tool for packages. The lock of another installer at boot (Session Manager's agent,
# unattended upgrades) is waited for.
install_packages() {
  log "installing: $*"
  case "$(distribution)" in
    amzn*) retry 6 5 60 dnf install --assumeyes --quiet "$@" ;;
    ubuntu*)
      DEBIAN_FRONTEND=noninteractive retry 6 5 60 \
        apt-get install --yes --quiet --option DPkg::Lock::Timeout=120 "$@"
      ;;
    *) fail "the kit knows Amazon Linux 2023 and Ubuntu, got: $(distribution)" ;;
  esac
}

# Instance-store devices only, never EBS: /dev/nvme1n1 …, one a line. The model's name is what EC2 documents.
instance_store_devices() {
  local line
  lsblk --nodeps --noheadings --pairs --output PATH,MODEL | while read -r line; do
    if [[ "$line" =~ PATH=\"([^\"]+)\".*MODEL=\"Amazon\ EC2\ NVMe\ Instance\ Storage ]]; then
      printf '%s\n' "${BASH_REMATCH[1]}"
    fi
  done
}

# lnet_interfaces NET: interfaces of an LNet net (tcp, efa), one a line.
lnet_interfaces() {
  lnetctl net show | awk -v net="$1" '/net type:/ { inside = ($NF == net) } inside && /^ +[0-9]+: / { print $2 }'
}

# Of EC2's metadata service, version 2.
instance_metadata() {
  local token
  token="$(curl --silent --show-error --fail --max-time 10 --request PUT \
    --header 'X-aws-ec2-metadata-token-ttl-seconds: 60' http://169.254.169.254/latest/api/token)"
  curl --silent --show-error --fail --max-time 10 --header "X-aws-ec2-metadata-token: ${token}" \
    "http://169.254.169.254/latest/meta-data/$1"
}

# check_metric VALUE [CHECK]: one datum of CloudWatch's.
check_metric() {
  local check=""
  if (($# > 1)); then check=",{\"Name\":\"Check\",\"Value\":\"$2\"}"; fi
  printf '{"MetricName":"NodeCheckFailed","Value":%s,"Dimensions":[{"Name":"Job","Value":"%s"}%s]}' "$1" "$KIT_JOB" "$check"
}

# send_metrics DATA: to CloudWatch, within some minutes.
send_metrics() {
  retry 3 2 10 timeout --kill-after=5 60 aws cloudwatch put-metric-data --region "$KIT_REGION" \
    --namespace TrainingStorage --metric-data "$1"
}
