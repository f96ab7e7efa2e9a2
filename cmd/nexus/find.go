package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/scenario"
)

// findChild returns the absolute path of nexus-child: the one named, the one
// beside this program, the one on PATH.
func findChild(named string) (string, error) {
	if named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			if e, ok := errors.AsType[*exec.Error](err); ok { // it names the program again
				err = e.Err
			}
			if e, ok := errors.AsType[*fs.PathError](err); ok {
				err = e.Err
			}
			return "", fmt.Errorf("find --child %s: %w", named, err)
		}
		return filepath.Abs(path)
	}
	path, err := findProgram("nexus-child")
	if err != nil {
		return "", fmt.Errorf("%w: say --child PATH", err)
	}
	return path, nil
}

// findProgram returns the absolute path of a program of ours: the one beside this program, else the one on PATH.
func findProgram(name string) (string, error) {
	if self, err := os.Executable(); err == nil {
		if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), name)); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is neither beside nexus nor on PATH", name)
	}
	return filepath.Abs(path)
}

// findScenario returns the absolute path of a scenario file that agents can play; ""
// for "". The file is checked whole here, for each agent would refuse it.
func findScenario(named string) (string, error) {
	if named == "" {
		return "", nil
	}
	path, err := filepath.Abs(named)
	if err != nil {
		return "", fmt.Errorf("resolve --scenario: %w", err)
	}
	text, err := safefile.ReadLinked(path, scenario.MaxBytes)
	if err != nil {
		return "", fmt.Errorf("read --scenario: %w", err)
	}
	if _, err := scenario.Parse(text); err != nil {
		return "", fmt.Errorf("--scenario %s: %w", path, err)
	}
	return path, nil
}
