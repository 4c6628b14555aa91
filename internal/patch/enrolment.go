package patch

import (
	"slices"
	"strings"
)

// Enrolment is what the scripts of package helper report about enrolling a guest, and about ending that.
type Enrolment struct {
	Word      string // "enrol", "unenrol", "detect"
	System    System
	HostKeys  []string // "TYPE BASE64", not looked at
	Account   string
	Port      int
	Packages  []string
	Automatic Automatic
	Removed   []string
	Notes     []string
	Refused   string
}

// ParseEnrolment reads it.
func ParseEnrolment(b []byte) (Enrolment, error) {
	r, err := readReport(b, "enrol", "unenrol", "detect")
	if err != nil {
		return Enrolment{}, err
	}
	e := Enrolment{Word: r.word, Account: clip(r.text("account"), 40), Packages: r.texts("installed", maxTexts), Removed: r.texts("removed", maxTexts), Refused: strings.Join(r.texts("refused", 20), "; ")}
	r.text("helper")
	if e.Word != "unenrol" {
		e.System = r.system()
	}
	for _, row := range r.all("host-key", 2, 2, 20) {
		e.HostKeys = append(e.HostKeys, clip(row[0], 100)+" "+clip(row[1], 3000))
	}
	port, _ := r.count("port", 65535)
	e.Port = int(port)
	e.Automatic.State = "unknown"
	if row := r.one("automatic", 1, 2); row != nil && slices.Contains([]string{"on", "off", "download"}, row[0]) {
		e.Automatic = Automatic{State: row[0], By: clip(row[1], 60)}
	}
	e.Notes = append(r.texts("note", maxTexts), r.rest()...)
	return e, nil
}
