// Package regex holds regular expressions that are compiled when they are first used: a program pays for those that it
// needs, and not before it needs them.
package regex

import (
	"regexp"
	"sync"
)

// Lazy is one regular expression in the syntax of package regexp. It is safe for concurrent use; an expression that
// does not compile panics at its first use.
type Lazy struct {
	Expr string

	once sync.Once
	re   *regexp.Regexp
}

func (p *Lazy) compiled() *regexp.Regexp {
	p.once.Do(func() { p.re = regexp.MustCompile(p.Expr) })
	return p.re
}

// String is the expression.
func (p *Lazy) String() string { return p.Expr }

// MatchString says whether s holds a match.
func (p *Lazy) MatchString(s string) bool { return p.compiled().MatchString(s) }

// Match says whether b holds a match.
func (p *Lazy) Match(b []byte) bool { return p.compiled().Match(b) }

// FindString is the leftmost match in s, or "".
func (p *Lazy) FindString(s string) string { return p.compiled().FindString(s) }

// FindStringSubmatch is the leftmost match in s and its groups, or nil.
func (p *Lazy) FindStringSubmatch(s string) []string { return p.compiled().FindStringSubmatch(s) }

// FindAllString lists up to n matches in s; all of them when n < 0.
func (p *Lazy) FindAllString(s string, n int) []string { return p.compiled().FindAllString(s, n) }

// FindAllStringSubmatch lists up to n matches in s with their groups; all of them when n < 0.
func (p *Lazy) FindAllStringSubmatch(s string, n int) [][]string {
	return p.compiled().FindAllStringSubmatch(s, n)
}

// FindIndex is where the leftmost match in b begins and ends, or nil.
func (p *Lazy) FindIndex(b []byte) []int { return p.compiled().FindIndex(b) }

// FindStringIndex is where the leftmost match in s begins and ends, or nil.
func (p *Lazy) FindStringIndex(s string) []int { return p.compiled().FindStringIndex(s) }

// ReplaceAllString puts to in place of every match in s; $1 in it stands for a group.
func (p *Lazy) ReplaceAllString(s, to string) string { return p.compiled().ReplaceAllString(s, to) }

// ReplaceAllStringFunc puts what to makes of it in place of every match in s.
func (p *Lazy) ReplaceAllStringFunc(s string, to func(string) string) string {
	return p.compiled().ReplaceAllStringFunc(s, to)
}

// FindAllStringIndex lists where up to n matches in s begin and end; all of them when n < 0.
func (p *Lazy) FindAllStringIndex(s string, n int) [][]int {
	return p.compiled().FindAllStringIndex(s, n)
}

// FindAllStringSubmatchIndex lists where up to n matches in s and their groups begin and end; all of them when n < 0.
func (p *Lazy) FindAllStringSubmatchIndex(s string, n int) [][]int {
	return p.compiled().FindAllStringSubmatchIndex(s, n)
}
