#!/bin/sh
# Makes the access tokens of a new installation, each in a file of this folder: `admin` for people, `metrics` for Prometheus.
# A token whose file is there is not made again.
#
#   tokens.sh FOLDER
set -eu

make() { # NAME SCOPE MODE
    file="$1"; scope="$2"; mode="$3"
    test ! -s "$file" || return 0
    made=$(windlass token create --name "compose-$file" --scope "$scope" --output table)
    token=$(printf '%s\n' "$made" | sed -n '/^wl_/p')
    test -n "$token"
    umask 077
    printf '%s\n' "$token" > "$file.new"
    chmod "$mode" "$file.new"
    mv "$file.new" "$file"
}

cd "$1"
make admin admin 600
# Prometheus is another user.
make metrics read 644
