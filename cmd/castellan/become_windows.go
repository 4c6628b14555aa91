package main

// become does nothing: this system has no such accounts.
func (a *app) become(string) error { return nil }
