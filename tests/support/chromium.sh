#!/bin/sh
# Starts a Chromium beside the servers that it visits. As root it puts itself above everything else on the machine;
# here it has to stand back, as a visitor's does, who has a machine of his own.
exec setpriv --bounding-set=-sys_nice nice -n 10 "$CHROMIUM" "$@"
