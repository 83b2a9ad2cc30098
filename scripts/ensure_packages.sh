#!/usr/bin/env bash
# Makes sure that a C++ library or a program that the tests need is there, from apt if it must be and may be.
#   scripts/ensure_packages.sh <header> <debian package>
#   scripts/ensure_packages.sh --program <name> <debian package>
# Ends with 1, and says why, where it is missing and cannot be installed.
set -u
if [ "$1" = --program ]; then
    program=$2 what=$2 package=$3
    # Only root has the second folder on the PATH everywhere.
    present() { PATH=$PATH:/usr/sbin command -v "$program" >/dev/null; }
else
    header=$1 what="<$1>" package=$2
    present() { echo "#include <$header>" | "${CXX:-c++}" -E -x c++ - >/dev/null 2>&1; }
fi

present && exit 0
if ! command -v apt-get >/dev/null; then
    echo "$what is missing, and this machine has no apt-get: install what Debian calls $package" >&2
    exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
        echo "$what is missing, and installing it needs root: sudo apt-get install $package" >&2
        exit 1
    fi
    as_root=(sudo -n)
fi
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get install -y -qq "$package" </dev/null >/dev/null 2>&1 ||
    { "${as_root[@]}" apt-get update -qq </dev/null && "${as_root[@]}" apt-get install -y -qq "$package" </dev/null; }
present && exit 0
echo "$what is still missing after apt-get install $package" >&2
exit 1
