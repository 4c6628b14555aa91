# What the families of rpm have in common: reading the database, its lock, and what an interrupted installation left in it.

fam_packages() {
	rpm -qa --qf '%{NAME}\t%{ARCH}\t%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\tok\n' | sed 's/\t(none)\t/\tnoarch\t/; /^gpg-pubkey\t/d' | sort
}

# rpm_many prints "name.arch" of what may be installed in several versions at once, as kernels are.
rpm_many() {
	rpm -q --qf '%{NAME}.%{ARCH}\n' --whatprovides 'installonlypkg(kernel)' 'installonlypkg(kernel-module)' 'installonlypkg(vm)' \
		'multiversion(kernel)' kernel kernel-core 2>/dev/null | grep -v ' ' | sort -u
}

# rpm_twice prints "name<TAB>arch<TAB>version" of what is there in several versions and must not be: the old one is removed last.
rpm_twice() {
	rpm_many >"$tmp/many"
	fam_packages | awk -F '\t' -v many="$tmp/many" '
		BEGIN { while ((getline line <many) > 0) skip[line] = 1 }
		skip[$1 "." $2] { next }
		{ key = $1 "\t" $2; if (++n[key] == 2) print key "\t" first[key]; if (n[key] > 1) print key "\t" $3; else first[key] = $3 }'
}

fam_database() {
	if ! rpm -qa >/dev/null 2>"$tmp/rpm"; then
		printf 'database\tbroken\nproblem\tthe database of rpm cannot be read: %s\n' "$(tr '\t\n' '  ' <"$tmp/rpm" | cut -c1-200)"
		return
	fi
	rpm_twice >"$tmp/twice"
	if [ -s "$tmp/twice" ]; then
		printf 'database\tbroken\n'
		awk -F '\t' '{ v[$1 ":" $2] = v[$1 ":" $2] " " $3 }
			END { for (p in v) printf "problem\t%s is there in several versions (%s): an installation was interrupted\n", p, substr(v[p], 2) }' "$tmp/twice" | sort | head -50
		printf 'repair\tyes\n'
		return
	fi
	printf 'database\tclean\n'
}

# rpm_lock FILE...: the line lock, of who holds a lock on one of the files, or on rpm's own.
rpm_lock() {
	set -- "$@" "$(rpm --eval '%{_dbpath}')/.rpm.lock"
	for file; do
		[ -e "$file" ] || continue
		node=$(stat -L -c %i "$file") || continue
		for pid in $(awk -v node="$node" '$4 == "WRITE" && $6 ~ ":" node "$" { print $5 }' /proc/locks); do
			# The number of a file may be another's on another file system.
			[ "$pid" != $$ ] && has_open "$pid" "$file" || continue
			lock_line "$pid"
			return
		done
	done
}

# lock_line PID prints the line lock.
lock_line() {
	printf 'lock\t%s\t%s\t%s\n' "$1" "$(tr -d '\t\n' <"/proc/$1/comm" 2>/dev/null || echo unknown)" \
		"$(ps -o etimes= -p "$1" 2>/dev/null | tr -d ' ' | grep . || echo -)"
}

# rpm_kept prints the files that a transaction of rpm kept or put aside since the installation under way began, and the scripts
# of packages that failed: the database does not remember them.
rpm_kept() {
	grep -E 'scriptlet failed|[Ee]rror in [A-Za-z-]+ scriptlet|scriptlet: ' "$run/log" | grep -iE 'fail|error' | sort -u | lines problem
	find /etc /usr/local /var/lib /boot -xdev -cnewer "$run/asked" \( -name '*.rpmnew' -o -name '*.rpmsave' -o -name '*.rpmorig' \) 2>/dev/null | sort | head -100 |
		while read -r file; do
			case $file in
			*.rpmnew) printf 'conffile\t%s\n' "${file%.rpmnew}" ;;
			*) printf 'note\t%s was replaced by the package; what it was is now %s\n' "${file%.rpm*}" "$file" ;;
			esac
		done
}

# rpm_after_boot prints what of a list of packages was installed after this system was started.
rpm_after_boot() {
	rpm -q --qf '%{NAME} %{INSTALLTIME}\n' "$@" 2>/dev/null | awk -v boot="$(stat -c %Y /proc/1)" 'NF == 2 && $2 > boot { print $1 }' | sort -u
}

# rpm_changes: reads "action name arch version archive bytes" of a transaction from its input, columns set apart by tabs, versions
# without an epoch of 0; prints CHANGE<TAB>BYTES with what is installed now as old version.
rpm_changes() {
	fam_packages >"$tmp/now"
	rpm_many >"$tmp/many"
	awk -F '\t' -v now="$tmp/now" -v many="$tmp/many" '
		BEGIN {
			while ((getline <now) > 0) { old[$1 ":" $2] = only[$1] = $3; n[$1]++ }
			while ((getline <many) > 0) { sub(/\.[^.]*$/, ""); several[$0] = 1 }
		}
		{ key = $2 ":" $3; bytes = $6 == "" ? 0 : $6 }
		$1 == "remove" { print "remove " key " " $4 " - -\t0"; next }
		several[$2] || !($2 in n) { print "install " key " - " $4 " " $5 "\t" bytes; next }
		key in old { print "upgrade " key " " old[key] " " $4 " " $5 "\t" bytes; next }
		n[$2] == 1 { print "upgrade " key " " only[$2] " " $4 " " $5 "\t" bytes; next } # its architecture changes
		{ print "install " key " - " $4 " " $5 "\t" bytes }' | sort -u
}

# rpm_finish removes the old versions that an interrupted installation left beside the new ones, as it would have done itself.
rpm_finish() {
	rpm_twice | awk -F '\t' '{ key = $1 "\t" $2; if (key in v) print $1 "-" v[key] "." $2; v[key] = $3 }' >"$tmp/left"
	[ -s "$tmp/left" ] || return 0
	echo "castellan: removing $(tr '\n' ' ' <"$tmp/left")"
	rpm -e $(cat "$tmp/left")
}
