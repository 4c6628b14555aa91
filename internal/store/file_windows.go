package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/windows"
)

// guardFile makes the folder, open to its owner alone, and refuses one that others could read or swap. The files
// in it inherit its access list.
func guardFile(path string) error {
	dir := filepath.Dir(path)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make folder of the store: %w", err)
		}
		if err := closeFolder(dir); err != nil {
			return fmt.Errorf("close folder of the store to others: %w", err)
		}
	}
	if err := private(dir); err != nil {
		return err
	}
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		f, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look at the store: %w", err)
		}
		if !f.Mode().IsRegular() {
			return fmt.Errorf("%s is no plain file; name the file itself", name)
		}
		if err := private(name); err != nil {
			return err
		}
	}
	return nil
}

func self() (*windows.SID, error) {
	u, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return nil, err
	}
	return u.User.Sid, nil
}

func closeFolder(dir string) error {
	me, err := self()
	if err != nil {
		return err
	}
	acl, err := windows.ACLFromEntries([]windows.EXPLICIT_ACCESS{{
		AccessPermissions: windows.GENERIC_ALL,
		AccessMode:        windows.GRANT_ACCESS,
		Inheritance:       windows.SUB_CONTAINERS_AND_OBJECTS_INHERIT,
		Trustee:           windows.TRUSTEE{TrusteeForm: windows.TRUSTEE_IS_SID, TrusteeType: windows.TRUSTEE_IS_USER, TrusteeValue: windows.TrusteeValueFromSID(me)},
	}}, nil)
	if err != nil {
		return err
	}
	return windows.SetNamedSecurityInfo(dir, windows.SE_FILE_OBJECT,
		windows.DACL_SECURITY_INFORMATION|windows.PROTECTED_DACL_SECURITY_INFORMATION, nil, nil, acl, nil)
}

// private refuses access lists that let anybody but the owner, the system and the administrators in.
func private(name string) error {
	sd, err := windows.GetNamedSecurityInfo(name, windows.SE_FILE_OBJECT, windows.OWNER_SECURITY_INFORMATION|windows.DACL_SECURITY_INFORMATION)
	if err != nil {
		return fmt.Errorf("look at access list of %s: %w", name, err)
	}
	me, err := self()
	if err != nil {
		return fmt.Errorf("find own account: %w", err)
	}
	trusted := func(s *windows.SID) bool {
		return s.Equals(me) || s.IsWellKnown(windows.WinLocalSystemSid) || s.IsWellKnown(windows.WinBuiltinAdministratorsSid) ||
			s.IsWellKnown(windows.WinCreatorOwnerSid)
	}
	hint := fmt.Sprintf(`icacls "%s" /inheritance:r /grant:r "%%USERNAME%%:(OI)(CI)F"`, name)
	owner, _, err := sd.Owner()
	if err != nil || !trusted(owner) {
		return fmt.Errorf("%s belongs to another account; take it over, or name another path for the store", name)
	}
	acl, _, err := sd.DACL()
	if err != nil || acl == nil {
		return fmt.Errorf("%s is open to everybody: %s", name, hint)
	}
	for i := range uint32(acl.AceCount) {
		var ace *windows.ACCESS_ALLOWED_ACE
		if err := windows.GetAce(acl, i, &ace); err != nil {
			return fmt.Errorf("read access list of %s: %w", name, err)
		}
		if ace.Header.AceType != windows.ACCESS_ALLOWED_ACE_TYPE {
			continue
		}
		if sid := (*windows.SID)(unsafe.Pointer(&ace.SidStart)); !trusted(sid) {
			return fmt.Errorf("%s can be used by %s: %s", name, sid.String(), hint)
		}
	}
	return nil
}
