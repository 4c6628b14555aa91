#!/bin/sh
# castellan-helper WORD: looks at the packages and services of this machine, and installs what it is told, for castellan.
# It is root's; the account castellan may run it by sudo with one of its words. Its reports are lines "key<TAB>value...".
#
# What works on packages does so in a process of its own, which no lost connection ends. In $STATE/run is the installation under
# way, or the last one: first of all a mark that it was started, last of all its result. Both are written aside, synced and
# renamed, so that a mark without a result always means that its end is not known.
set -u
umask 077
# Nothing of the caller: not his programs, not his language, no questions to anybody.
PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C LANGUAGE= TERM=dumb
export PATH HOME LC_ALL LANGUAGE TERM
unset IFS ENV CDPATH TMPDIR
HELPER=/usr/local/sbin/castellan-helper STATE=/var/lib/castellan UNIT=castellan-upgrade VERSION=3
run=$STATE/run
tab=$(printf '\t')
tmp=

# line KEY VALUE...: one line of a report.
line() {
	l=$1
	shift
	for v; do
		case $v in *[[:cntrl:]]*) v=$(printf %s "$v" | tr '\001-\037\177' ' ') ;; esac
		l=$l$tab${v:--}
	done
	printf '%s\n' "$l"
}

# lines KEY: what it reads, a line each, at most 50.
lines() { head -n 50 | cut -c 1-500 | while IFS= read -r text; do line "$1" "$text"; done; }

now() { date +%s; }
boot_id() { cat /proc/sys/kernel/random/boot_id; }
has() { command -v "$1" >/dev/null 2>&1; }
# has_open PID FILE...: has the process one of the files open? Names do not tell: anybody may make one that reads alike.
has_open() {
	of=$1
	shift
	same=$(stat -L -c %d:%i "$@" 2>/dev/null)
	[ -n "$same" ] && stat -L -c %d:%i "/proc/$of/fd/"* 2>/dev/null | grep -qxF "$same"
}
systemd() { [ -d /run/systemd/system ]; }

say_system() {
	(
		set +u
		ID='' VERSION_ID='' VERSION_CODENAME='' PRETTY_NAME=''
		. /etc/os-release
		line system "$ID" "$VERSION_ID" "$VERSION_CODENAME" "$(fam_name)" "$PRETTY_NAME"
	) 2>/dev/null
	kind=$(fam_kind)
	[ -z "$kind" ] || line kind "$kind"
	line virt "$(virt)"
	line boot "$(boot_id)"
	line helper $VERSION
}

# cards prints the hardware addresses of this machine's network cards.
cards() {
	{ cat /sys/class/net/*/address 2>/dev/null || ip -o link 2>/dev/null | sed -n 's/.* link\/ether \([0-9a-fA-F:]*\).*/\1/p'; } |
		tr A-F a-f | grep -E '^([0-9a-f]{2}:){5}[0-9a-f]{2}$' | grep -vxF 00:00:00:00:00:00 | sort -u
}

# say_cards tells which machine this is: a copy of it has its keys, and other network cards.
say_cards() { cards | head -n 1000 | while IFS= read -r card; do line card "$card"; done; }

# virt says what this runs on: a container has no kernel of its own.
virt() {
	if tr '\0' '\n' 2>/dev/null </proc/1/environ | grep -q '^container=' || { has systemd-detect-virt && systemd-detect-virt -cq; }; then
		echo container
	elif grep -q '^flags.* hypervisor' /proc/cpuinfo 2>/dev/null; then
		echo vm
	else
		echo metal
	fi
}

# Of a family's functions, those that it may do without.
fam_kind() { :; }
fam_removes() { :; } # prints something where an upgrade may replace one package by another
fam_fetch() { :; }
fam_hook() { exit 1; }

# ---- services ----

# say_services PREFIX
say_services() {
	line "$1boot" "$(boot_id)"
	if systemd; then
		line "$1init" "$(systemctl is-system-running 2>/dev/null)"
		units "$1" || line "$1unread" 'the services: systemctl did not answer'
	elif has rc-status; then
		line "$1init" "$(rc-status --runlevel 2>/dev/null)"
		rc-status --servicelist --format ini 2>/dev/null | awk -F ' *= *' -v p="$1" 'NF == 2 {
			a = $2 == "started" ? "active" : $2 == "crashed" ? "failed" : "inactive"
			printf "%sunit\t%s\t%s\t%s\t%s\t0\n", p, $1, a, $2, a == "active" }'
	else
		line "$1unread" 'the services: neither systemd nor OpenRC runs'
	fi
	ports "$1"
}

# units prints the services that run, have failed or are enabled, and whatever else has failed. Those that come and go with
# sessions tell nothing.
units() {
	timeout 20 systemctl show '*.service' --property=Id,LoadState,ActiveState,SubState,UnitFileState,NRestarts,WantedBy,RequiredBy,UID >"$tmp/units" 2>/dev/null || return 1
	awk -v p="$1" 'BEGIN { RS = ""; FS = "\n" }
		{
			split("", v)
			for (i = 1; i <= NF; i++) { at = index($i, "="); v[substr($i, 1, at - 1)] = substr($i, at + 1) }
			if (v["LoadState"] != "loaded" || v["Id"] ~ /^(user@|user-runtime-dir@|castellan-)|getty@|^sshd?@/) next
			s = v["UnitFileState"]
			on = s ~ /^(enabled|generated)/ || (s != "disabled" && v["WantedBy"] v["RequiredBy"] != "")
			if (v["ActiveState"] == "inactive" && !on || ++n > 1500) next
			printf "%sunit\t%s\t%s\t%s\t%d\t%d\n", p, v["Id"], v["ActiveState"], v["SubState"], on, v["NRestarts"]
		}' "$tmp/units"
	timeout 20 systemctl list-units --state=failed --plain --no-legend 2>/dev/null |
		awk -v p="$1" '$1 !~ /\.service$/ && ++n <= 100 { printf "%sunit\t%s\tfailed\t%s\t-\t0\n", p, $1, $4 }'
}

# ports prints what listens, and for whom: "system" where it is root's, a system account's or a system unit's, "account" where it is
# that of somebody who has an account here. The kernel tells who made a socket.
ports() {
	if has ss && ss -H -t -u -l -n -p >"$tmp/ports" 2>/dev/null; then
		# Whose they are is asked for apart: what a program calls itself stands in no line of that. "uid:" is absent for root, and
		# comes before "ino:"; then comes the control group, which begins with what systemd made of it.
		[ -e "$tmp/units" ] || : >"$tmp/units"
		ss -H -t -u -l -n -e >"$tmp/whose" 2>/dev/null || : >"$tmp/whose"
		awk -F = 'function done() { if (id != "" && uid != "") print id, uid; id = uid = "" }
			$0 == "" { done() } $1 == "Id" { id = $2 } $1 == "UID" && $2 ~ /^[0-9]+$/ { uid = $2 } END { done() }' "$tmp/units" >"$tmp/owners"
		awk -v p="$1" -v owners="$tmp/owners" -v whose="$tmp/whose" '
			function socket() {
				at = match($5, /:[0-9]+$/)
				if (!at) return ""
				address = substr($5, 1, at - 1); port = substr($5, at + 1)
				gsub(/[][]/, "", address); sub(/%.*/, "", address)
				return $1 "\t" address "\t" port
			}
			FILENAME == owners { own[$1, $2]; next }
			(key = socket()) == "" { next }
			FILENAME == whose {
				at = index($0, " ino:"); uid = 0; unit = ""
				if (!at) next
				head = substr($0, 1, at - 1); rest = substr($0, at)
				if (match(head, / uid:[0-9]+$/)) uid = substr(head, RSTART + 5) + 0
				if (match(rest, / cgroup:\/[^ ]*/)) {
					k = split(substr(rest, RSTART + 9, RLENGTH - 9), path, "/")
					for (i = 1; i <= k && path[1] != "user.slice" && path[i] ~ /\.slice$/; ) i++
					if (path[i] ~ /\.service$/) unit = path[i]
				}
				o = uid < 1000 || uid >= 61184 && uid <= 65519 || (unit, uid) in own ? "system" : "account"
				if (owner[key] != "system") owner[key] = o
				next
			}
			{
				program = "-"
				if (match($0, /users:\(\("[^"]*"/)) program = substr($0, RSTART + 9, RLENGTH - 10)
				if (!seen[key]++ && ++n <= 1000) printf "%sport\t%s\t%s\t%s\n", p, key, program, owner[key] == "" ? "-" : owner[key]
			}' "$tmp/owners" "$tmp/whose" "$tmp/ports"
		return
	fi
	# Without ss: the kernel tells all but the program. State 0A listens; a UDP socket without a peer has 07.
	for proto in tcp tcp6 udp udp6; do
		[ -r /proc/net/$proto ] || continue
		awk -v p="$1" -v proto="${proto%6}" -v state="$(case $proto in tcp*) echo 0A ;; *) echo 07 ;; esac)" '
			function hex(s, i, n) { n = 0; for (i = 1; i <= length(s); i++) n = n * 16 + index("0123456789ABCDEF", substr(s, i, 1)) - 1; return n }
			NR > 1 && $4 == state {
				split($2, a, ":")
				if (length(a[1]) == 8) address = hex(substr(a[1], 7, 2)) "." hex(substr(a[1], 5, 2)) "." hex(substr(a[1], 3, 2)) "." hex(substr(a[1], 1, 2))
				else address = a[1] ~ /^0+$/ ? "::" : a[1] == "00000000000000000000000001000000" ? "::1" : tolower(a[1])
				if (!seen[address, a[2]]++ && ++n <= 500) printf "%sport\t%s\t%s\t%d\t-\t%s\n", p, proto, address, hex(a[2]), $8 < 1000 ? "system" : "account"
			}' "/proc/net/$proto"
	done
}

# ---- what this does not look after ----

say_uncovered() {
	for tool in docker podman; do
		has $tool || continue
		n=$(timeout 10 $tool ps -q </dev/null 2>/dev/null | wc -l)
		line uncovered "$tool: images of containers are updated by pulling them ($n run)"
	done
	if has snap && n=$(timeout 10 snap list 2>/dev/null | tail -n +2 | wc -l) && [ "$n" -gt 0 ]; then line uncovered "$n snaps, which snapd updates"; fi
	if has flatpak && n=$(timeout 10 flatpak list 2>/dev/null | wc -l) && [ "$n" -gt 0 ]; then line uncovered "$n flatpaks"; fi
	found "programs in /usr/local" /usr/local/bin /usr/local/sbin
	found "software in /opt" /opt
	n=$(ls -d /usr/local/lib/python3*/*-packages/*.dist-info 2>/dev/null | wc -l)
	[ "$n" = 0 ] || line uncovered "$n Python packages in /usr/local, installed by pip"
}

# found WHAT FOLDER...: how many entries there are that are not castellan's, and the first of them.
found() {
	what=$1
	shift
	ls -A "$@" 2>/dev/null | grep -v -e '^/' -e '^$' -e '^castellan-' >"$tmp/found"
	n=$(wc -l <"$tmp/found")
	[ "$n" = 0 ] || line uncovered "$n $what: $(head -n 5 "$tmp/found" | tr '\n' ' ')"
}

# ---- the installation under way, and the last one ----

# started_at PID: when a process was started, by its own number of the kernel: a number that is used again has another.
started_at() { sed 's/^.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20; }

# under_way: is the installation in $run at work?
under_way() {
	[ -s "$run/began" ] && [ ! -s "$run/result" ] && [ "$(cat "$run/boot")" = "$(boot_id)" ] || return 1
	if [ -s "$run/pid" ]; then
		read -r pid at <"$run/pid"
		[ "$(started_at "$pid")" = "$at" ] && return 0
	elif [ $(($(now) - $(cat "$run/began"))) -lt 60 ]; then
		return 0 # it was asked for just now
	fi
	systemd && systemctl is-active -q $UNIT
}

say_running() { ! under_way || line running "$(cat "$run/id")"; }

refuse() {
	line refused "$1"
	finish 0
}

finish() {
	echo end
	exit "$1"
}

# read_input MODE: puts what was asked on standard input into $tmp/id, newer and asked. Everything in it is spelt out here; what
# is spelt otherwise is refused.
read_input() {
	timeout 30 head -c 400001 >"$tmp/input"
	[ "$(wc -c <"$tmp/input")" -le 400000 ] || refuse 'the input is longer than 400000 bytes'
	[ "$(tr -d '\n -~' <"$tmp/input" | wc -c)" = 0 ] || refuse 'the input holds characters that are not plain'
	why=$(awk -v mode="$1" -v removes="$(fam_removes)" -v dir="$tmp" '
		function bad(text) { print text; failed = 1; exit }
		ended { bad("the input goes on after its end") }
		NR == 1 { if ($0 !~ /^id [A-Za-z0-9][A-Za-z0-9._-]*$/ || length($2) > 80) bad("the first line of the input names no id"); print $2 >(dir "/id"); next }
		NR == 2 { if ($0 != "newer 0" && $0 != "newer 1") bad("the second line of the input does not say whether newer versions will do"); print $2 >(dir "/newer"); next }
		NR == 3 { if ($0 !~ /^guest (-|[0-9a-f][0-9a-f:]*(,[0-9a-f][0-9a-f:]*)*)$/ || length($0) > 1000) bad("the third line of the input does not say which guest is meant"); print $2 >(dir "/meant"); next }
		$0 == "end" { ended = 1; next }
		{
			if (length($0) > 600 || ++n > 2000) bad("the input is too long")
			if ($0 != $1 " " $2 " " $3 " " $4 " " $5) bad("line " NR " of the input is not a change")
			if ($1 == "remove" && (mode == "full" || removes)) { if ($3 == "-" || $4 $5 != "--") bad("line " NR " of the input is not a change") }
			else if ($1 == "install") { if ($3 != "-" || $4 == "-" || $5 == "-") bad("line " NR " of the input is not a change") }
			else if ($1 != "upgrade" || $3 == "-" || $4 == "-" || $5 == "-" || $3 == $4) bad("line " NR " of the input is not a change of mode " mode)
			if ($2 !~ /^[A-Za-z0-9][A-Za-z0-9+._@~-]*:[A-Za-z0-9][A-Za-z0-9_-]*$/) bad("line " NR " of the input names no package")
			if ($3 !~ /^(-|[A-Za-z0-9][A-Za-z0-9.+:~^_-]*)$/ || $4 !~ /^(-|[A-Za-z0-9][A-Za-z0-9.+:~^_-]*)$/) bad("line " NR " of the input has no valid version")
			if ($5 !~ /^(-|[A-Za-z0-9][A-Za-z0-9._:\/+@~-]*)$/) bad("line " NR " of the input names no archive")
			if (seen[$1 == "upgrade" ? "upgrade " $2 : $0]++) bad($2 " is in the input twice")
			print >(dir "/asked")
		}
		END { if (!failed && !ended) print "the input is cut off"; else if (!failed && !n && mode != "repair") print "the input names no packages" }' "$tmp/input") || refuse 'the input could not be read'
	[ -z "$why" ] || refuse "$why"
	[ -e "$tmp/asked" ] || : >"$tmp/asked"
	id=$(cat "$tmp/id")
	meant || refuse "this is another machine than the one that is meant: none of its network cards has the address $(cut -c 1-100 "$tmp/meant"). A copy of a guest takes the same key; enrol each by itself"
}

# meant: is this the machine that the input is for? A copy of it (a clone, a restored backup) has its keys, and other network cards.
meant() {
	[ "$(cat "$tmp/meant")" = - ] && return 0
	cards >"$tmp/cards"
	tr , '\n' <"$tmp/meant" | grep -qixF -f - "$tmp/cards"
}

# start MODE: begins an installation in a process of its own and answers at once.
start() {
	read_input "$1"
	mkdir -p "$STATE/log" && touch "$STATE/lock" || refuse "$STATE cannot be written"
	exec 9>"$STATE/lock"
	flock -w 20 9 || refuse 'another ask holds the lock for more than 20 s'
	if [ "$id" = "$(cat "$run/id" 2>/dev/null)" ] || grep -qxF "$id" "$STATE/ids" 2>/dev/null; then
		line already "$id"
		finish 0
	fi
	! under_way || refuse "the installation $(cat "$run/id") is under way"
	new=$STATE/run.new
	rm -rf "$new"
	# The reserve is given back when the result is written: a file system that was filled up must not cost that.
	{ mkdir "$new" && cp "$tmp/id" "$tmp/newer" "$tmp/asked" "$new" && echo "$1" >"$new/mode" && boot_id >"$new/boot" &&
		fam_packages >"$new/packages" && say_services before- >"$new/before" && head -c 262144 /dev/zero >"$new/reserve" && : >"$new/log" &&
		now >"$new/began" && [ -s "$new/began" ] && [ -s "$new/packages" ] && sync "$new"/* "$new"; } 2>/dev/null || {
		rm -rf "$new"
		refuse "$STATE has no space for the records of an installation, or the package database cannot be read; nothing was changed"
	}
	if [ -s "$run/id" ]; then
		mv "$run/log" "$STATE/log/$(cat "$run/id")"
		ls -t "$STATE/log" | tail -n +11 | while read -r old; do rm -f "$STATE/log/$old"; done
	fi
	rm -rf "$run"
	mv "$new" "$run" && sync "$STATE" || refuse "$STATE cannot be written"
	{ tail -n 500 "$STATE/ids" 2>/dev/null; echo "$id"; } >"$STATE/ids.new" && mv "$STATE/ids.new" "$STATE/ids"
	# The name of the unit is a lock too. On shutdown it is waited for, rather than killed in the middle.
	if systemd; then
		systemd-run --quiet --collect --no-block --unit=$UNIT --property=KillSignal=SIGCONT --property=TimeoutStopSec=900 \
			--property=OOMScoreAdjust=-500 $HELPER detached 9>&- >"$tmp/said" 2>&1
	else
		setsid $HELPER detached </dev/null 9>&- >"$tmp/said" 2>&1 &
	fi || {
		result refused "stale${tab}it could not be started: $(head -n 1 "$tmp/said")"
		refuse "it could not be started: $(head -n 1 "$tmp/said")"
	}
	line started "$id"
}

# detached is the installation itself.
detached() {
	[ -s "$run/began" ] && [ ! -s "$run/result" ] && [ ! -e "$run/pid" ] || exit 1
	echo "$$ $(started_at $$)" >"$run/pid"
	exec </dev/null >>"$run/log" 2>&1
	mode=$(cat "$run/mode")
	wait_for_lock || {
		result refused "stale${tab}$(cat "$run/note"), and has for $limit s"
		return
	}
	# What others did until now, while they were waited for, is not of this installation.
	fam_packages >"$run/packages.new" && [ -s "$run/packages.new" ] && sync "$run/packages.new" && mv "$run/packages.new" "$run/packages" || {
		result refused "stale${tab}the package database cannot be read, or $run cannot be written"
		return
	}
	if [ "$mode" = repair ] && [ -s "$run/asked" ] && [ "$(fam_name)" != apt ]; then
		result refused "stale${tab}a repair takes no packages here"
		return
	elif [ "$mode" = repair ]; then
		fam_repair
		code=$?
	else
		fam_database >"$tmp/database"
		if ! grep -q "^database${tab}clean" "$tmp/database"; then
			result refused "stale${tab}the package database is not clean: $(sed -n "s/^problem$tab//p" "$tmp/database" | head -n 5 | tr '\n' ';')"
			return
		fi
		fam_ready "$mode" >"$tmp/stale" || echo "what would be installed now could not be found out" >>"$tmp/stale"
		[ -s "$tmp/stale" ] || fam_fetch "$mode" >"$tmp/stale"
		if [ -s "$tmp/stale" ]; then
			result refused "$(lines stale <"$tmp/stale")"
			return
		fi
		fam_install "$mode"
		code=$?
		if [ -s "$run/stopped" ] && fam_packages | cmp -s - "$run/packages"; then
			result refused "$(lines stale <"$run/stopped")"
			return
		fi
	fi
	settle
	result ended "exit$tab$code"
}

# lock_limit SECONDS: for how long others are waited for; a file may say otherwise.
lock_limit() { cat "$STATE/lock-wait" 2>/dev/null || echo "$1"; }

# wait_for_lock waits until nobody else works on packages, and says for whom.
wait_for_lock() {
	limit=$(lock_limit 600)
	end=$(($(now) + limit))
	while held=$(fam_lock) && [ -n "$held" ]; do
		printf '%s\n' "$held" | awk -F "$tab" '{ print "the lock of the package manager is held by " $3 " (pid " $2 ")" }' >"$run/note"
		[ "$(now)" -lt $end ] || return 1
		sleep 1
	done
	rm -f "$run/note"
}

# settle gives services that were just restarted the time to fail, and those that still start the time to be there.
settle() {
	sleep 3
	systemd || return 0
	for i in 1 2 3 4 5 6 7 8 9 10; do
		[ -n "$(systemctl list-units --type=service --state=activating --plain --no-legend 2>/dev/null)" ] || break
		sleep 1
	done
}

# result OUTCOME LINES: writes how it ended.
result() {
	rm -f "$run/reserve"
	{
		line outcome "$1"
		printf '%s\n' "$2"
		line ended "$(now)"
		[ "$1" = refused ] || afterwards
		echo complete
	} >"$run/result.new" 2>/dev/null
	# Without the last line it did not fit; then there is no result, and what can be seen tells.
	[ "$(tail -n 1 "$run/result.new" 2>/dev/null)" = complete ] && sync "$run/result.new" "$run/log" && mv "$run/result.new" "$run/result" && sync "$run"
}

# afterwards is how things are now, and what is different.
afterwards() {
	fam_packages >"$tmp/packages" 2>/dev/null && changed "$run/packages" "$tmp/packages"
	fam_kept
	fam_database
	fam_reboot
	say_services after-
}

# changed BEFORE AFTER: what came, went and was replaced. What is halfway is not done; the database's problems name it.
changed() {
	awk -F "$tab" '
		FNR == NR { before[$1]++; next1[NR] = $0; n1 = NR; next }
		{ after[$1]++; next2[++n2] = $0; if ($4 != "ok") halfway[$1] = 1 }
		function group(f) { return before[f[1]] == 1 && after[f[1]] == 1 ? f[1] : f[1] ":" f[2] }
		END {
			for (i = 1; i <= n1; i++) { split(next1[i], f, "\t"); if (!(f[1] in halfway)) { g = group(f); old[g, f[3]] = f[2]; if (!(g in names)) { names[g] = f[1]; order[++m] = g } versions[g] = versions[g] " " f[3] } }
			for (i = 1; i <= n2; i++) { split(next2[i], f, "\t"); if (!(f[1] in halfway)) { g = group(f); if ((g, f[3]) in old) { delete old[g, f[3]]; continue } if (!(g in names)) { names[g] = f[1]; order[++m] = g } came[g] = came[g] " " f[2] " " f[3]; ncame[g]++ } }
			for (i = 1; i <= m; i++) {
				g = order[i]; gone = 0
				k = split(versions[g], v, " ")
				for (j = 1; j <= k; j++) if ((g, v[j]) in old) gonev[++gone] = v[j]
				split(came[g], c, " ")
				if (gone == 1 && ncame[g] == 1) { print "done\tupgrade " names[g] ":" c[1] " " gonev[1] " " c[2] " -"; continue }
				for (j = 1; j <= gone; j++) print "done\tremove " names[g] ":" old[g, gonev[j]] " " gonev[j] " - -"
				for (j = 1; j <= ncame[g]; j++) print "done\tinstall " names[g] ":" c[2 * j - 1] " - " c[2 * j] " -"
			}
		}' "$1" "$2"
}

# say_run prints what is known of the installation in $run in any case.
say_run() {
	line id "$(cat "$run/id")"
	line mode "$(cat "$run/mode")"
	line began "$(cat "$run/began")"
}

# log [HEAD] TAIL: the output of the package manager, its middle cut out, and how long it is.
log() {
	[ -e "$run/log" ] || return 0
	bytes=$(wc -c <"$run/log")
	if [ "$bytes" -le $(($1 + $2)) ]; then
		cat "$run/log"
	else
		head -c "$1" "$run/log"
		echo
		[ "$1" = 0 ] || echo "... $((bytes - $1 - $2)) bytes are left out ..."
		tail -c "$2" "$run/log"
	fi | tr '\r' '\n' | tr '\000-\010\013-\037\177' ' ' | awk 'length($0) { print "log\t" substr($0, 1, 900) }'
	line log-bytes "$bytes"
}

word_result() {
	if [ ! -s "$run/began" ]; then
		line outcome none
		return
	fi
	say_run
	sed 's/^/asked\t/' "$run/asked"
	if [ ! -s "$run/result" ] && under_way; then
		line outcome running
	elif [ -s "$run/result" ]; then # it may have come while that was found out
		cat "$run/before"
		grep -vx complete "$run/result"
	else
		# It was started and nothing tells how it ended. What there is to see now is told all the same.
		line outcome lost
		cat "$run/before"
		afterwards
	fi
	[ ! -s "$run/note" ] || lines note <"$run/note"
	log 24576 49152
}

word_progress() {
	if [ ! -s "$run/began" ]; then
		line outcome none
		return
	fi
	say_run
	if [ ! -s "$run/result" ] && under_way; then
		line outcome running
	elif [ -s "$run/result" ]; then
		grep "^outcome$tab" "$run/result"
	else
		line outcome lost
	fi
	[ ! -s "$run/note" ] || lines note <"$run/note"
	log 0 4096
}

main() {
	[ $# = 1 ] && [ "$(id -u)" = 0 ] || {
		echo "castellan-helper: takes one word, as root" >&2
		exit 64
	}
	word=$1
	# /run is memory: a full disk leaves it as it is.
	tmp=$(mktemp -d /run/castellan.XXXXXX) || tmp=$(mktemp -d) || exit 70
	trap 'rm -rf "$tmp"' EXIT
	trap 'exit 1' HUP INT TERM PIPE
	case $word in
	hook) fam_hook ;;
	detached) detached ;;
	check | status | services | upgrade-security | upgrade-all | progress | result | repair)
		echo "castellan 1 $word"
		case $word in check | status | services | result) say_cards ;; esac
		case $word in
		check | status)
			say_system
			say_running
			if [ $word = check ]; then # it may wait for others, whose lock is told as it is afterwards
				fam_check
				say_uncovered
			fi
			fam_lock
			fam_database
			fam_reboot
			fam_automatic
			line clock "$(now)" # last, since what is above can take a while
			;;
		services)
			say_services ''
			;;
		upgrade-security) start security ;;
		upgrade-all) start "$(fam_mode)" ;;
		repair) start repair ;;
		progress) word_progress ;;
		result) word_result ;;
		esac
		finish 0
		;;
	*)
		echo "castellan-helper: no such word" >&2
		exit 64
		;;
	esac
}

# fam_mode is what mode all is called: of a Proxmox host it is the full upgrade.
fam_mode() { [ -n "$(fam_kind)" ] && echo full || echo all; }
