package command

import "testing"

// TestNamesAndOptionsThatRun: what sets a variable that decides what runs, what a shell evaluates though it is quoted, and
// options of programs that otherwise only read.
func TestNamesAndOptionsThatRun(t *testing.T) {
	for text, least := range map[string]Risk{
		"export PATH=/tmp; ls": High, "declare PATH=/tmp; ls": High, "typeset -x LD_PRELOAD=/x; ls": High, "readonly PATH=/tmp; ls": High, "export LD_PRELOAD; ls": High, "builtin export BASH_ENV=/x": High,
		"read PATH <<< /tmp; ls": High, "read -r a PATH; ls": High, "read -aPATH; ls": High, "printf -v PATH /tmp; ls": High, "for PATH in /tmp; do ls; done": High,
		": ${LD_PRELOAD:=/tmp/x.so}; ls": High, "echo ${PATH=/tmp}": High, "declare -n p=PATH; p=/tmp; ls": High, "getopts x: PATH -x /tmp; ls": High, "PSQLRC=/tmp/x psql -c 'select 1'": High,
		"HOME=/tmp sqlite3 x 'select 1'": High, "APT_CONFIG=/tmp/x apt list": High,
		"[ -v 'a[$(reboot)]' ]": High, "test -v 'a[$(reboot)]'": High, "printf -v 'a[$(reboot)]' x": High, "read 'a[$(reboot)]'": High, "let 'a[`reboot`]=1'": High, "x='a[$(reboot)]'; echo $((x))": High,
		"x='a[$(reboot)]'; [[ $x -eq 1 ]]": High, "[[ -v 'a[$(reboot)]' ]]": High, "unset 'a[b[0]$(reboot)]'": High,
		"hash -p /tmp/x ls; ls": High, "rpm -q --define 'x %(reboot)' bash": High, "rpm -q --pipe reboot -a": High, "rpm -qE '%(reboot)'": High, "rpmquery --pipe reboot -a": High,
		"apt-cache -o Dir::Cache::pkgcache=/etc/x search y": High, "apt list -oAPT::x=y": High, "apt list -c /x": High, "pidstat -e /tmp/x": High,
		"ss -D /etc/passwd": High, "dmidecode --dump-bin /etc/passwd": High, "lshw -dump /etc/passwd": High, "hwinfo --log /etc/passwd": High, "atop -w /etc/passwd 1 1": High, "blkid -c /etc/passwd": High,
		"file -m /tmp/x -C": Medium, "needrestart -r a": Medium, "sensors -s": Medium, "pvscan --cache": Medium, "vgs --config 'global{}'": Medium,
	} {
		if got := Shell(text); got.Risk < least {
			t.Errorf("%s: %s %v, want at least %s", text, got.Risk, got.Reasons, least)
		}
	}
	for _, text := range []string{"export LANG=C; ls", "read -r line; echo hi", "declare -r x=1", "for f in a b; do ls; done", "printf '%s' x", "grep '[0-9]$' f", "grep '[$(]' f", "echo ${x:=1}", "hash -r", "file f", "rpm -qa",
		"apt list --upgradable", "apt-cache policy x", "pvs", "ss -tlnp", "needrestart -b", "sensors", "blkid", "export HOME=/root", "export PATH=/usr/sbin:/usr/bin; ls", "unset x"} {
		if got := Shell(text); got.Risk != Low {
			t.Errorf("%s: %s %v, want low", text, got.Risk, got.Reasons)
		}
	}
}
