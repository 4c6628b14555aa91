//go:build windows

package seal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"unsafe"
)

// Constants that the standard library does not name.
const (
	flagOpenReparsePoint = 0x00200000
	flagBackupSemantics  = 0x02000000
	readControl          = 0x00020000
	fileObject           = 1 // SE_FILE_OBJECT
	ownerInformation     = 1
	daclInformation      = 4
	accessAllowed        = 0 // ACCESS_ALLOWED_ACE_TYPE
	inheritOnly          = 8
	revision             = 1 // SDDL_REVISION_1
)

// openPrivate opens the file itself where it is a link or another reparse
// point, which is then refused.
func openPrivate(path string) (*os.File, error) {
	p, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	h, err := syscall.CreateFile(p, syscall.GENERIC_READ|readControl, syscall.FILE_SHARE_READ, nil,
		syscall.OPEN_EXISTING, flagOpenReparsePoint|flagBackupSemantics, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	var info syscall.ByHandleFileInformation
	if err := syscall.GetFileInformationByHandle(h, &info); err != nil {
		syscall.CloseHandle(h)
		return nil, err
	}
	if info.FileAttributes&syscall.FILE_ATTRIBUTE_REPARSE_POINT != 0 {
		syscall.CloseHandle(h)
		return nil, errors.New("it is a symbolic link or junction; give the file itself")
	}
	return os.NewFile(uintptr(h), path), nil
}

// trusted are the identities that may have access: this user, the system and
// the administrators, who can take it anyway.
func trusted() (map[string]bool, string, error) {
	t, err := syscall.OpenCurrentProcessToken()
	if err != nil {
		return nil, "", fmt.Errorf("ask for the current user: %w", err)
	}
	defer t.Close()
	u, err := t.GetTokenUser()
	if err != nil {
		return nil, "", fmt.Errorf("ask for the current user: %w", err)
	}
	me, err := u.User.Sid.String()
	if err != nil {
		return nil, "", fmt.Errorf("ask for the current user: %w", err)
	}
	return map[string]bool{me: true, "S-1-5-18": true, "S-1-5-32-544": true}, me, nil
}

// checkPrivate reads owner and access list of the open handle: the owner must
// be trusted and every entry that allows anything must name a trusted identity.
func checkPrivate(f *os.File, _ fs.FileInfo) error {
	ok, _, err := trusted()
	if err != nil {
		return err
	}
	var owner *syscall.SID
	var dacl *acl
	var sd uintptr
	get := syscall.NewLazyDLL("advapi32.dll").NewProc("GetSecurityInfo")
	if r, _, _ := get.Call(f.Fd(), fileObject, ownerInformation|daclInformation,
		uintptr(unsafe.Pointer(&owner)), 0, uintptr(unsafe.Pointer(&dacl)), 0, uintptr(unsafe.Pointer(&sd))); r != 0 {
		return fmt.Errorf("read its access list: %w", syscall.Errno(r))
	}
	defer syscall.LocalFree(syscall.Handle(sd))
	name, err := owner.String()
	if err != nil {
		return fmt.Errorf("read its owner: %w", err)
	}
	if !ok[name] {
		return fmt.Errorf("%w: it belongs to %s", ErrExposed, name)
	}
	if dacl == nil {
		return fmt.Errorf("%w: it has no access list, so everybody may use it", ErrExposed)
	}
	getAce := syscall.NewLazyDLL("advapi32.dll").NewProc("GetAce")
	for i := range uint32(dacl.aceCount) {
		var a *ace
		if r, _, err := getAce.Call(uintptr(unsafe.Pointer(dacl)), uintptr(i), uintptr(unsafe.Pointer(&a))); r == 0 {
			return fmt.Errorf("read its access list: %w", err)
		}
		if a.flags&inheritOnly != 0 || a.kind == 1 { // ACCESS_DENIED_ACE_TYPE
			continue
		}
		if a.kind != accessAllowed {
			return fmt.Errorf("%w: its access list has an entry of a kind that is not understood", ErrExposed)
		}
		who, err := (*syscall.SID)(unsafe.Pointer(&a.sid)).String()
		if err != nil {
			return fmt.Errorf("read its access list: %w", err)
		}
		if a.mask != 0 && !ok[who] {
			return fmt.Errorf("%w: its access list allows %s; remove that entry (icacls FILE /inheritance:r)", ErrExposed, who)
		}
	}
	return nil
}

type acl struct {
	revision, _       byte
	size              uint16
	aceCount, padding uint16
}

type ace struct {
	kind, flags byte
	size        uint16
	mask        uint32
	sid         uint32
}

// onlyMe is a security descriptor that inherits nothing.
func onlyMe() (*syscall.SecurityAttributes, func(), error) {
	_, me, err := trusted()
	if err != nil {
		return nil, nil, err
	}
	text, err := syscall.UTF16PtrFromString("O:" + me + "D:P(A;OICI;FA;;;" + me + ")(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)")
	if err != nil {
		return nil, nil, err
	}
	var sd uintptr
	conv := syscall.NewLazyDLL("advapi32.dll").NewProc("ConvertStringSecurityDescriptorToSecurityDescriptorW")
	if r, _, err := conv.Call(uintptr(unsafe.Pointer(text)), revision, uintptr(unsafe.Pointer(&sd)), 0); r == 0 {
		return nil, nil, fmt.Errorf("make access list: %w", err)
	}
	sa := &syscall.SecurityAttributes{SecurityDescriptor: sd}
	sa.Length = uint32(unsafe.Sizeof(*sa))
	return sa, func() { syscall.LocalFree(syscall.Handle(sd)) }, nil
}

func createPrivate(path string) (*os.File, error) {
	sa, free, err := onlyMe()
	if err != nil {
		return nil, err
	}
	defer free()
	p, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	h, err := syscall.CreateFile(p, syscall.GENERIC_WRITE, 0, sa, syscall.CREATE_NEW, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "create", Path: path, Err: err}
	}
	return os.NewFile(uintptr(h), path), nil
}

func makePrivateDir(path string) error {
	sa, free, err := onlyMe()
	if err != nil {
		return err
	}
	defer free()
	p, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return err
	}
	if err := syscall.CreateDirectory(p, sa); err != nil {
		return &fs.PathError{Op: "mkdir", Path: path, Err: err}
	}
	return nil
}

// syncDir has no counterpart on Windows: NTFS journals names itself.
func syncDir(string) error { return nil }
