//go:build !linux

package main

import "testing"

const asNode = "CASTELLAN_TEST_AS_NODE"

func onNode(m *testing.M) int { return m.Run() }
