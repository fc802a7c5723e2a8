# shellcheck shell=bash
# EC2 with a scheduler of the user's own: /run/training-storage/unhealthy is there while the node is unfit, and every
# executable in /etc/training-storage/drain.d is called, in order of name: HOOK drain REASON, HOOK undrain.

run_hooks() {
  local hook broken=0
  for hook in "${KIT_ETC}"/drain.d/*; do
    if [[ -f "$hook" && -x "$hook" ]]; then
      "$hook" "$@" || {
        log "${hook} $1 failed"
        broken=1
      }
    fi
  done
  return "$broken"
}

# Called at every failed run, as the file is written anew: a hook may be called twice for one fault.
engine_drain() {
  run_hooks drain "$1"
}

engine_undrain() {
  run_hooks undrain
}
