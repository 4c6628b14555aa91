#!/bin/sh
# enter.sh DIR COMMAND...: the first process of the lab's namespaces. Makes the node that guests run on, then runs COMMAND.
# That this shell stays is what collects orphans.
set -e
dir=$1
shift
mount --make-rprivate /
mount -t proc proc /proc
# A new /sys shows the devices of this network; without it the bridge is not found.
mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir /sys/fs/cgroup/init.scope
echo $$ >/sys/fs/cgroup/init.scope/cgroup.procs # a group with processes has no groups with controllers below it

mount -t tmpfs -o mode=755 guestlab "$dir/lab"
mkdir -m 755 "$dir/lab/guests" "$dir/lab/taken" "$dir/lab/over"
mount -t tmpfs -o mode=755 run /run
mkdir -m 755 /run/sshd /run/lxc /run/lock
# over FOLDER: changes to it are seen in here only.
over() {
	mkdir -p "$dir/lab/over$1/upper" "$dir/lab/over$1/work"
	mount -t overlay -o "lowerdir=$1,upperdir=$dir/lab/over$1/upper,workdir=$dir/lab/over$1/work" over "$1"
}
for folder in /etc /usr /opt /var/lib /var/log; do
	case "$PWD/:${TMPDIR:-/tmp}/:$GUESTLAB_CACHE/" in
	"$folder"/* | *:"$folder"/*) # what the tests write there has to stay
		case $folder in /etc | /usr) echo "guestlab: cannot work below $folder" >&2 && exit 1 ;; esac
		;;
	*) over $folder ;;
	esac
done
mkdir -p /var/lib/lxc
mount -t tmpfs -o mode=755 lxc /var/lib/lxc

hostname "$GUESTLAB_NODE"
ip link set lo up
# Fixed addresses of hardware: a bridge takes the lowest one of its ports, and peers that remember another wait.
ip link add vmbr0 address 02:00:00:63:00:01 type bridge forward_delay 0
ip address add 10.99.0.1/16 dev vmbr0
ip link set vmbr0 up
# Another home for sessions of root: what this machine's root has in its own would run in each of them.
mkdir -m 700 "$dir/lab/root"
sed -i "s#^\(root:[^:]*:[^:]*:[^:]*:[^:]*\):[^:]*:.*#\1:$dir/lab/root:/bin/bash#" /etc/passwd
printf 'root:100000:65536\n' >/etc/subuid
printf 'root:100000:65536\n' >/etc/subgid
: >"$dir/entered"
set +e
"$@"
exit $?
