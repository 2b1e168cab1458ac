#!/bin/sh
# Build dist/radiator-broker_VERSION_ARCH.deb from the committed tree. Needs debhelper, dh-virtualenv and fakeroot.
set -eu
cd "$(dirname "$0")/.."
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' radiator/__init__.py)
build=build/deb/radiator-$version
rm -rf build/deb
mkdir -p "$build" dist
git archive HEAD | tar -x -C "$build"
cp -r packaging/debian "$build/debian"
(cd "$build" && dpkg-buildpackage --build=binary --unsigned-changes --unsigned-source)
mv build/deb/*.deb dist/
