# Arch Linux, with pacman.
#
# There are no partial upgrades here: what is installed is all that the distribution's repositories hold, or nothing. Lists are
# fetched into a database beside the system's own, as checkupdates does, so that looking changes nothing; an installation goes
# by the very lists that were compared. Repositories of third parties are not asked at all.

fam_name() { echo pacman; }
fam_removes() { echo yes; }

pac_db=/var/lib/pacman

pac_working() { for p in pacman pamac packagekitd yay paru; do pgrep -x -o "$p" && return; done; }

fam_lock() {
	[ -e $pac_db/db.lck ] || return 0
	pid=$(pac_working) || return 0 # what nobody holds any more is for repair
	printf 'lock\t%s\t%s\t%s\n' "$pid" "$(tr -d '\t\n' <"/proc/$pid/comm")" "$(ps -o etimes= -p "$pid" | tr -d ' ')"
}

fam_database() {
	if [ -e $pac_db/db.lck ] && ! pac_working >/dev/null; then
		printf 'database\tbroken\nproblem\tpacman was interrupted: its lock %s is there, and nobody holds it\nrepair\tyes\n' $pac_db/db.lck
	elif ! pacman -Dk >"$tmp/dk" 2>&1 && grep -q '^error' "$tmp/dk"; then
		printf 'database\tbroken\n'
		grep '^error' "$tmp/dk" | lines problem
	else
		printf 'database\tclean\n'
	fi
}

fam_packages() {
	LC_ALL=C awk '
		function out() { if (n != "") print n "\t" a "\t" v "\tok" }
		FNR == 1 { out(); n = a = v = "" }
		key == "%NAME%" { n = $0 } key == "%VERSION%" { v = $0 } key == "%ARCH%" { a = $0 }
		{ key = $0 }
		END { out() }' $pac_db/local/*/desc | sort
}

# pac_config prints the configuration with the distribution's repositories alone. It fails where their packages need not be signed.
pac_config() {
	awk '
		/^[ \t]*\[/ { s = $0; gsub(/[][ \t]/, "", s); keep = s ~ /^(options|core|extra|multilib)$/ }
		keep' /etc/pacman.conf
	for repo in $(pacman-conf --repo-list | grep -xE 'core|extra|multilib'); do
		levels=$(pacman-conf --repo "$repo" SigLevel)
		[ -n "$levels" ] || levels=$(pacman-conf SigLevel)
		case $levels in
		*PackageTrustAll* | *PackageNever* | *PackageOptional*) echo "packages of $repo need not be signed by a key that is trusted" >&2 && return 1 ;;
		*PackageRequired*) ;;
		*) echo "whether packages of $repo must be signed is not known" >&2 && return 1 ;;
		esac
	done
}

# pac_fetch FOLDER: fetches the lists into a database there.
pac_fetch() {
	mkdir -p "$1/sync" && ln -sfn $pac_db/local "$1/local" && pac_config >"$1/conf" 2>"$tmp/err" || return 1
	pacman-conf --config "$1/conf" --repo-list | grep -qx core || { echo 'the repository core is not switched on' >"$tmp/err"; return 1; }
	pacman --config "$1/conf" --dbpath "$1" --logfile /dev/null --noconfirm -Sy >"$tmp/table" 2>"$tmp/err" </dev/null
}

pac_why() { grep -hE '^(error|warning)|signed|switched' "$tmp/err" "$tmp/table" 2>/dev/null | tr '\t\n' '  ' | cut -c1-300; }

# pac_plan FOLDER prints what an upgrade by the lists there would do: CHANGE<TAB>BYTES.
pac_plan() {
	pacman --config "$1/conf" --dbpath "$1" --logfile /dev/null --noconfirm --print --print-format 'castellan %r %n %v %s' -Su >"$tmp/table" 2>"$tmp/err" </dev/null || return 1
	fam_packages >"$tmp/now"
	sed -n 's/^castellan //p' "$tmp/table" >"$tmp/rows"
	[ -s "$tmp/rows" ] || return 0
	# Architecture and what is replaced are in the lists.
	pacman --config "$1/conf" --dbpath "$1" -Si $(awk '{ print $1 "/" $2 }' "$tmp/rows") 2>/dev/null >"$tmp/info" || return 1
	awk -v now="$tmp/now" -v info="$tmp/info" '
		BEGIN {
			while ((getline line <now) > 0) { split(line, p, "\t"); old[p[1]] = p[3]; arch[p[1]] = p[2] }
			while ((getline line <info) > 0) {
				value = line; sub(/^[^:]*: /, "", value)
				if (line ~ /^Name  /) name = value
				if (line ~ /^Architecture  /) is[name] = value
				if (line ~ /^Replaces  /) over[name] = value
			}
		}
		{
			archive = "arch:" $1
			if ($2 in old) print "upgrade " $2 ":" is[$2] " " old[$2] " " $3 " " archive "\t" $4
			else print "install " $2 ":" is[$2] " - " $3 " " archive "\t" $4
			k = split(over[$2], r, " ")
			for (i = 1; i <= k; i++) {
				sub(/[<>=].*/, "", r[i])
				if (r[i] != $2 && r[i] in old && !(r[i] in gone)) { gone[r[i]] = 1; print "remove " r[i] ":" arch[r[i]] " " old[r[i]] " - -\t0" }
			}
		}' "$tmp/rows" | sort
}

fam_check() (
	db=$tmp/db
	if ! pac_fetch "$db"; then
		printf 'stale\t%s\n' "$(pac_why)"
		return
	fi
	if ! pac_plan "$db" >"$tmp/all"; then
		printf 'stale\twhat an upgrade would do is not known: %s\n' "$(pac_why)"
		return
	fi
	printf 'fresh\tyes\n'
	awk -F '\t' -v OFS='\t' '{ print "all", $1, 0, $2 }' "$tmp/all"
	pacman --config "$db/conf" --dbpath "$db" -Qu >"$tmp/newer" 2>/dev/null
	awk -F '[ \t]' -v OFS='\t' -v all="$tmp/all" '
		BEGIN { while ((getline line <all) > 0) { split(line, p, /[ \t]/); archive[p[2]] = p[5]; split(p[2], q, ":"); full[q[1]] = p[2]; old[p[2]] = p[3]; new[p[2]] = p[4] } }
		{
			if ($5 == "[ignored]") print "pending", $1, "-", $2, $4, "-", "official", "held", "IgnorePkg or IgnoreGroup of pacman.conf"
			else if ($1 in full) { split(full[$1], q, ":"); print "pending", $1, q[2], $2, $4, archive[full[$1]], "official", "-", "-" }
		}' "$tmp/newer"
	# What third parties have is told by the lists that the system itself has.
	pacman -Qu 2>/dev/null | awk -v OFS='\t' -v seen="$tmp/newer" '
		BEGIN { while ((getline line <seen) > 0) { split(line, p, " "); known[p[1] " " p[4]] = 1 } }
		!($1 " " $4 in known) { print $1, $2, $4 }' >"$tmp/other"
	while read -r name old new; do
		repo=$(pacman -Si "$name" 2>/dev/null | sed -n 's/^Repository *: //p' | grep -vxE 'core|extra|multilib' | head -1)
		[ -z "$repo" ] || printf 'pending\t%s\t-\t%s\t%s\tarch:%s\tthird_party\tthird_party\trepository %s, by lists that may be old\n' "$name" "$old" "$new" "$repo" "$repo"
	done <"$tmp/other"
	n=$(pacman -Qmq 2>/dev/null | wc -l)
	[ "$n" = 0 ] || line uncovered "$n packages of no repository, as those built from the AUR: $(pacman -Qmq | head -5 | tr '\n' ' ')"
	bytes=$(awk -F '\t' '{ n += $2 } END { printf "%d", n }' "$tmp/all")
	printf 'space\t/\t%s\t%s\n' "$(df -Pk / | awk 'END { printf "%.0f", $4 * 1024 }')" $((bytes * 5 + 50000000))
)

fam_ready() (
	if [ "$1" != all ]; then
		echo 'Arch Linux knows no partial upgrades and has no advisories: only mode all can be, with everything in it'
		return
	fi
	db=$run/db
	if ! pac_fetch "$db"; then
		echo "the package lists could not be refreshed: $(pac_why)"
		return
	fi
	if ! pac_plan "$db" >"$tmp/would"; then
		echo "pacman does not say what it would do: $(pac_why)"
		return
	fi
	cut -f 1 "$tmp/would" | sort >"$tmp/will"
	if [ "$(cat "$run/newer" 2>/dev/null)" = 1 ]; then
		awk -v will="$tmp/will" '
			BEGIN { while ((getline line <will) > 0) { split(line, p, " "); now[p[1] " " p[2] " " p[3] " " p[5]] = p[4] } }
			{ key = $1 " " $2 " " $3 " " $5; print $1, $2, $3, (key in now ? now[key] : $4), $5 }' "$run/asked" >"$run/asked.new" && mv "$run/asked.new" "$run/asked"
	fi
	sort "$run/asked" >"$tmp/asked"
	comm -23 "$tmp/asked" "$tmp/will" | sed 's/^/it would not do: /' | head -50
	comm -13 "$tmp/asked" "$tmp/will" | sed 's/^/it would also do, and there are no partial upgrades: /' | head -50
)

fam_fetch() (
	pacman --config "$run/db/conf" --dbpath "$run/db" --logfile /dev/null --noconfirm -Suw >"$tmp/table" 2>"$tmp/err" </dev/null || echo "the packages could not be fetched: $(pac_why)"
)

fam_install() (
	cp "$run"/db/sync/*.db $pac_db/sync/ || return 1
	pacman --config "$run/db/conf" --noconfirm --noprogressbar -Su </dev/null
	code=$?
	[ $code = 0 ] || grep -E '^error|exists in filesystem' "$run/log" | head -20 >"$run/stopped"
	return $code
)

fam_repair() (
	if pac_working >/dev/null; then echo 'castellan: somebody works on packages'; return 1; fi
	rm -f $pac_db/db.lck
	pacman -Dk
)

fam_kept() {
	awk '/^(upgrading|installing|removing) / { what = $0 } /^error: command failed to execute correctly/ { print what " a script failed" }' "$run/log" | lines problem
	find /etc /usr /boot -xdev -cnewer "$run/asked" \( -name '*.pacnew' -o -name '*.pacsave' \) 2>/dev/null | sort | head -100 | while read -r file; do
		case $file in
		*.pacnew) printf 'conffile\t%s\n' "${file%.pacnew}" ;;
		*) printf 'note\t%s went with its package; what it was is now %s\n' "${file%.pacsave}" "$file" ;;
		esac
	done
}

fam_reboot() {
	set -- systemd glibc dbus dbus-broker
	if [ "$(virt)" != container ]; then
		set -- "$@" linux linux-lts linux-zen linux-hardened linux-firmware amd-ucode intel-ucode
		[ -d "/usr/lib/modules/$(uname -r)" ] || printf 'reboot\tyes\tthe kernel %s runs, and its modules are gone\n' "$(uname -r)"
	fi
	boot=$(stat -c %Y /proc/1)
	for name; do
		awk -v boot="$boot" -v name="$name" '
			key == "%NAME%" && $0 != name { exit } key == "%NAME%" { is = 1 } key == "%INSTALLDATE%" && is && $0 > boot { late = 1 } { key = $0 }
			END { if (late) print "reboot\tyes\t" name " was updated since the start" }' $pac_db/local/"$name"-[0-9]*/desc 2>/dev/null
	done
	printf 'reboot\tno\n' # the worst line counts
}

fam_automatic() { printf 'automatic\toff\n'; }
