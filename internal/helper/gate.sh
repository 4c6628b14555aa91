#!/bin/sh
# The forced command of castellan's key. It takes one of these words, whole and exact, and nothing else; whatever else came with
# the connection (arguments, environment, a terminal) ends here.
case ${SSH_ORIGINAL_COMMAND-} in
check | status | services | upgrade-security | upgrade-all | progress | result | repair) ;;
*)
	echo "castellan-gate: this key takes fixed words only" >&2
	exit 64
	;;
esac
exec /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin sudo -n /usr/local/sbin/castellan-helper "$SSH_ORIGINAL_COMMAND"
