#!/bin/sh
# What no program of an image needs goes, Debian's own tools for installing among it: the last that is done to a system.
# Bytecode is not compared with its sources' times, which not every copying keeps.
set -eu
python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /usr/lib/python3.11
rm -rf /usr/share/doc /usr/share/man /usr/share/info /usr/share/locale /usr/share/zoneinfo \
    /usr/share/bash-completion /usr/share/lintian /usr/share/perl5 \
    /usr/lib/python3.11/test /usr/lib/python3.11/lib2to3 /usr/lib/python3.11/pydoc_data \
    /usr/lib/*-linux-gnu/gconv ~/.cache
find /var/cache /var/lib/apt/lists /var/log /tmp -mindepth 1 -delete
find / -xdev -type f -perm /6000 -exec chmod a-s {} +
