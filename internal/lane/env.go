package lane

import (
	"fmt"
	"slices"
	"strings"

	"castellan/internal/regex"
)

var (
	envName = &regex.Lazy{Expr: `^[A-Za-z_][A-Za-z0-9_]{0,99}$`}
	locale  = &regex.Lazy{Expr: `^[A-Za-z0-9_.@+:-]{0,64}$`}
	zone    = &regex.Lazy{Expr: `^[A-Za-z0-9_+-]{1,32}(/[A-Za-z0-9_+-]{1,32}){0,2}$`}
)

const maxEnv = 32 << 10 // bytes of one value

// loaders are variables that decide what a program runs, loads or reads as its settings.
var loaders = strings.Fields(`PATH IFS ENV BASH_ENV BASHOPTS SHELLOPTS SHELL HOME CDPATH GLOBIGNORE PROMPT_COMMAND PS0 PS1 PS2 PS4 FPATH ZDOTDIR INPUTRC TERMINFO TERMINFO_DIRS TERMCAP PAGER MANPAGER EDITOR VISUAL
	BROWSER LESSOPEN LESSCLOSE LESS LESSKEY XDG_CONFIG_HOME XDG_CONFIG_DIRS XDG_DATA_HOME XDG_DATA_DIRS XDG_RUNTIME_DIR TMPDIR GCONV_PATH LOCPATH NLSPATH HOSTALIASES LOCALDOMAIN RES_OPTIONS RESOLV_HOST_CONF MALLOC_TRACE GETCONF_DIR NIS_PATH TZDIR
	NODE_OPTIONS NODE_PATH RUBYOPT RUBYLIB JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS CLASSPATH LUA_INIT LUA_PATH LUA_CPATH TCLLIBPATH PHPRC PHP_INI_SCAN_DIR AWKPATH AWKLIBPATH MAKEFLAGS MAKEFILES TAR_OPTIONS RSYNC_RSH
	CURL_HOME WGETRC SSH_ASKPASS SUDO_ASKPASS DISPLAY APT_CONFIG RPM_CONFIGDIR DBUS_SESSION_BUS_ADDRESS DBUS_SYSTEM_BUS_ADDRESS DOCKER_HOST DOCKER_CONFIG DOCKER_CONTEXT KUBECONFIG OPENSSL_CONF OPENSSL_MODULES OPENSSL_ENGINES SSL_CERT_FILE SSL_CERT_DIR
	CEPH_CONF CEPH_ARGS KRB5_CONFIG NOTIFY_SOCKET LISTEN_FDS LISTEN_PID DEBUGINFOD_URLS RIPGREP_CONFIG_PATH GREP_OPTIONS POSIXLY_CORRECT CASTELLAN`)

var loaderPrefixes = []string{"LD_", "DYLD_", "PYTHON", "PERL", "GIT_", "BASH_FUNC_", "SYSTEMD_", "GLIBC_", "LUA_", "PG", "MYSQL_", "DPKG_", "APT_", "LVM_", "CASTELLAN_", "SUDO_", "npm_config_", "NPM_CONFIG_"}

// loads says whether a variable is of those that nobody may set.
func loads(name string) bool {
	return slices.Contains(loaders, name) || slices.ContainsFunc(loaderPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// common says whether it is a variable of language, time zone or terminal with a plain value.
func common(name, value string) bool {
	switch {
	case name == "TZ":
		return zone.MatchString(value)
	case name == "LANG", name == "LANGUAGE", name == "TERM", name == "COLUMNS", name == "LINES", name == "NO_COLOR", strings.HasPrefix(name, "LC_"):
		return locale.MatchString(value) && strings.Trim(value, ".") == value
	}
	return false
}

// checkEnv judges "NAME=value" of a caller; why gives the reason against a variable that is harmless as such.
func checkEnv(env []string, why func(name, value string) string) Verdict {
	if len(env) > maxArgs {
		return refused("env", "there are more than %d variables", maxArgs)
	}
	var seen []string
	for _, e := range env {
		name, value, ok := strings.Cut(e, "=")
		switch {
		case !ok || !envName.MatchString(name):
			return refused("env", "%s does not begin with NAME=, a name of letters, digits and _", show(e))
		case slices.Contains(seen, name):
			return refused("env", "variable %s is set twice", name)
		case loads(name):
			return refused("env", "variable %s decides what is run, loaded or read as settings", name)
		case len(value) > maxEnv || strings.ContainsRune(value, 0):
			return refused("env", "the value of variable %s is longer than %d bytes, or holds a NUL", name, maxEnv)
		}
		seen = append(seen, name)
		if reason := why(name, value); reason != "" {
			return Verdict{Rule: "env", Reason: fmt.Sprintf("variable %s may not be set so: %s", name, reason)}
		}
	}
	return Verdict{Allowed: true}
}

func (r Rule) readEnv() error {
	for _, name := range r.Env {
		if !envName.MatchString(name) {
			return fmt.Errorf("env: %s is no name of a variable", show(name))
		}
		if loads(name) {
			return fmt.Errorf("env: %s decides what is run, loaded or read as settings; no rule can allow it", name)
		}
	}
	return nil
}
