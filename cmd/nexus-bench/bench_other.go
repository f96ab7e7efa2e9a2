//go:build !linux

package main

import "errors"

var errNotLinux = errors.New("measured on Linux only")

func playParent(string, string) error { return errNotLinux }

func killTree(int) (float64, error) { return 0, errNotLinux }

func processorTime(int) (spent, error) { return spent{}, errNotLinux }

// callCounter counts nothing here.
type callCounter struct{}

func countCalls(int) *callCounter { return nil }

func (*callCounter) count() float64 { return 0 }

func (*callCounter) close() {}
