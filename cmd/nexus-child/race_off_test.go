//go:build !race

package main

// raced says that the children of these tests are slow to start.
const raced = false
