//go:build race

package main_test

// raceEnabled builds the programs as the tests are built.
const raceEnabled = true
