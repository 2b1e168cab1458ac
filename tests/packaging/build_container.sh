#!/bin/sh
# Build packaging/Containerfile with buildah on a Debian base made by debootstrap, and run what the image says: the
# broker as its user, a login, a message, the health check. Run by root. $1: the source tree, $2: an empty directory.
set -eu
source=$1
work=$2
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
b() {
    command=$1
    shift
    buildah --root "$work/storage" --runroot "$work/run" "$command" "$@"
}
debootstrap --variant=minbase --include=python3,ca-certificates bookworm "$work/base" > "$work/debootstrap.log"
cp /etc/ssl/certs/ca-certificates.crt "$work/base/etc/ssl/certs/"  # this machine's registries may have an authority of their own
printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' > "$work/base/etc/pip.conf"
container=$(b from scratch)
b add --quiet "$container" "$work/base" / > /dev/null
b commit --quiet --rm "$container" localhost/base > /dev/null
rm -rf "$work/base"
b build --quiet --build-arg BASE=localhost/base --file "$source/packaging/Containerfile" --tag radiator "$source"
container=$(b from radiator)
test "$(b run "$container" -- id -u)" = 10001
b run "$container" -- radiator --version
b config --user root "$container"
printf 'change me\n' | b run "$container" -- radiator passwd /etc/radiator/users.yaml alice --stdin
b run "$container" -- sed -i 's/^  alice:/&\n    read: "#"\n    write: "#"/' /etc/radiator/users.yaml
b run "$container" -- chmod 644 /etc/radiator/users.yaml
b config --user 10001:10001 "$container"
b run "$container" -- sh -euc '
    radiator check-config /etc/radiator/radiator.yaml
    radiator serve --config /etc/radiator/radiator.yaml &
    broker=$!
    until python3 -c "import urllib.request as r; r.urlopen(\"http://127.0.0.1:8161/ready\", timeout=2)" 2> /dev/null; do sleep 0.2; done
    export RADIATOR_URL=stomp://alice:change%20me@127.0.0.1:61613
    radiator send /queue/hello world
    test "$(radiator tail /queue/hello --consume --count 1)" = world
    kill $broker
    wait $broker
'
b inspect --type image radiator | grep -q '/var/lib/radiator'
b rm "$container" > /dev/null
