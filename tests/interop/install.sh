#!/usr/bin/env bash
# Installs the STOMP clients of other makes that tests/interop tries the broker with: those of Perl, Ruby and PHP as
# Debian packages (as root only), those of Node into node_modules beside this file. The Python ones come with the extra
# [dev]. Prometheus (tests/server/test_metrics.py) and Chromium with its driver (tests/console) are Debian packages too.
# What is installed already is left alone.
# Ends with 1, and says what is missing, if not all could be installed.
set -uo pipefail
cd "$(dirname "$0")"

declare -A probes=(
    [libnet-stomp-perl]="perl -MNet::Stomp -MJSON::PP -e1"
    [libio-socket-ssl-perl]="perl -MIO::Socket::SSL -e1"
    [ruby-stomp]="ruby -rstomp -ropenssl -e1"
    [php-cli]="php -v"
    [php-stomp]="php -r exit((int)!class_exists('Stomp'));"
    [nodejs]="node -e process.exit(Number(process.versions.node.split('.')[0]<18))"
    [npm]="npm --version"
    [prometheus]="promtool --version"
    [chromium]="chromium --version"
    [chromium-driver]="chromedriver --version"
)

missing() {
    local package
    for package in "${!probes[@]}"; do
        ${probes[$package]} >/dev/null 2>&1 || printf '%s\n' "$package"
    done | sort
}

mapfile -t wanted < <(missing)
if [ "${#wanted[@]}" -gt 0 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing ${wanted[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt_options=(-qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
    apt-get "${apt_options[@]}" update || echo "note: not all lists of packages could be brought up to date"
    apt-get "${apt_options[@]}" install --yes --no-install-recommends "${wanted[@]}"
    if [[ " ${wanted[*]} " == *" prometheus "* ]]; then
        service prometheus stop >/dev/null 2>&1 # tests start their own
    fi
    mapfile -t wanted < <(missing)
fi

if [ ! node_modules/.package-lock.json -nt package-lock.json ]; then
    echo "installing the packages of package.json into node_modules"
    npm ci --ignore-scripts --no-audit --no-fund || wanted+=("what package.json names")
fi

if [ "${#wanted[@]}" -gt 0 ]; then
    echo "still missing: ${wanted[*]}" >&2
    echo "as root, on Debian or Ubuntu: apt-get install ${wanted[*]}" >&2
    exit 1
fi
echo "all clients are here"
