#!/usr/bin/env bash
# The toolchains of the official clients that the tests run: Java 17 with Maven, Go, Node with npm; and
# the browser that walks through the console: Chromium with its driver, and a Chinese font; Prometheus, which
# tries the alerts; `ip`, for tests on a network that is cut; etcd, which keeps the sets of several controllers.
# What is there is used; what is missing is installed by apt where that is possible (root on Debian or
# Ubuntu); else one line says what to install. The libraries come by Maven, Go and npm themselves.
set -euo pipefail

missing=()
need() { # command, package
  command -v "$1" >/dev/null 2>&1 || missing+=("$2")
}
need java openjdk-17-jdk-headless
need javac openjdk-17-jdk-headless
need mvn maven
need go golang-go
need node nodejs
need npm npm
need chromium chromium
need chromedriver chromium-driver
need ip iproute2
need etcd etcd-server
need zsh zsh
need fish fish
need man man-db
need systemd-analyze systemd
need promtool prometheus
# Pictures of the console in Chinese.
[ -z "$(fc-list :lang=zh 2>/dev/null)" ] && missing+=(fonts-wqy-microhei)
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  apt-get update -q
  DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
else
  echo "setup: not found: ${missing[*]}. The tests with official clients and a browser need them; on Debian:" >&2
  echo "  sudo apt-get install ${missing[*]}" >&2
  # At home those tests are skipped with that reason; where CI=true they fail.
fi
