# For scripts that run the program gradus of a build folder, in a folder of their own that goes when they end:
# . tests/shell/gradus.sh BUILD_FOLDER
gradus=$1/gradus
[ -x "$gradus" ] || { echo "there is no $gradus"; exit 77; }
gradus=$(realpath "$gradus")
. tests/shell/expect.sh
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

# run ARGUMENT...: its output in $out, its exit status in $status.
run() {
  out=$("$gradus" "$@" 2>&1 < /dev/null)
  status=$?
}
