#!/bin/sh
# Install the package $1 in an overlay over this system, run the broker as its user, send and read, and remove it.
# Run by root inside `unshare --mount`: nothing outside of the overlay changes.
set -eu
package=$1
work=$2
mount -t tmpfs tmpfs "$work"
mkdir "$work/upper" "$work/work" "$work/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/work" "$work/root"
mount --bind /proc "$work/root/proc"
mount --bind /dev "$work/root/dev"
cp "$package" "$work/root/root.deb"
chroot "$work/root" /bin/sh -eu <<'INSIDE'
unset PYTHONPATH VIRTUAL_ENV
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export DEBIAN_FRONTEND=noninteractive
dpkg --install /root.deb
radiator --version
grep -q 'accelerated' <<EOF || exit 9
$(radiator --version)
EOF
radiator check-config /etc/radiator/radiator.yaml
install -d -o radiator -g radiator -m 700 /var/lib/radiator
sed -i 's/127.0.0.1:61613/127.0.0.1:0/; s/^admin:.*//' /etc/radiator/radiator.yaml
mkfifo /ready
setpriv --reuid radiator --regid radiator --clear-groups radiator serve --json --config /etc/radiator/radiator.yaml > /ready &
broker=$!
read -r line < /ready
url=$(expr "$line" : '.*"stomp://\([^"]*\)".*')
cat < /ready > /dev/null &
radiator send --url "$url" /queue/hello world
test "$(radiator tail --url "$url" /queue/hello --consume --count 1)" = world
kill "$broker"
wait "$broker"
test "$(stat -c %U:%a /var/lib/radiator)" = radiator:700
gzip -t /usr/share/man/man1/radiator-send.1.gz
test -s /usr/share/bash-completion/completions/radiator
test -s /lib/systemd/system/radiator.service
dpkg --purge radiator-broker
test ! -e /usr/bin/radiator
test ! -e /etc/radiator/radiator.yaml
test -d /var/lib/radiator
INSIDE
