package command

// Watcher is told what a text would do, part by part, whether or not it is risky. What is nil is not called.
type Watcher struct {
	Command func(Simple)          // a command at command position, also one that another starts
	Write   func(file string)     // a file that is written, made or removed: its full path as far as it is told
	Unread  func(reason string)   // a part that cannot be read, or is filled in when it runs
	Repeats func(function string) // a function that starts itself again and again
}

// Simple is one command.
type Simple struct {
	Name   string // without folders, version and build
	Args   []Part
	Folder string // where cd led to, "" where that is not told
	Input  string // what it is fed, as far as that stands in the text
}

// Part is an argument after quotes are gone.
type Part struct {
	Text    string // without what is filled in
	Unknown bool   // a part of it is filled in when it runs
	Glob    bool   // it holds an unquoted pattern
}

// Walk reads a shell script as Shell does and tells what is in it.
func Walk(text string, w Watcher) Verdict {
	j := newJudge()
	j.watch = w
	j.shell(text)
	return j.verdict()
}

// WalkArgv reads a command that is run without a shell, as Argv does, and tells what is in it.
func WalkArgv(argv []string, w Watcher) Verdict {
	j := newJudge()
	j.watch = w
	j.argv(argv)
	return j.verdict()
}

// unread raises for what cannot be read.
func (j *judge) unread(format string, args ...any) {
	j.raise(High, format, args...)
	if j.watch.Unread != nil {
		j.watch.Unread(printable(sprintf(format, args...)))
	}
}

func (j *judge) tell(name string, args []word, inv invocation) {
	if j.watch.Command == nil {
		return
	}
	s := Simple{Name: name, Folder: j.cwd}
	if inv.feed != nil {
		s.Input = *inv.feed
	}
	for _, r := range inv.redirects {
		s.Input += r.body
	}
	for _, a := range args {
		s.Args = append(s.Args, Part{Text: a.text, Unknown: a.unknown, Glob: a.glob})
	}
	j.watch.Command(s)
}

func (c *call) unread(format string, args ...any) { c.j.unread(format, args...) }
