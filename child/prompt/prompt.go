// Package prompt puts the system prompt together.
//
//	p, err := prompt.Load(prompt.Options{System: flag, File: path, Home: home, Cwd: cwd})
//
// What is said on the command line stands alone. Otherwise NEXUS.md in the
// home (personal) comes first and NEXUS.md in the working directory (project)
// after it, so that the project has the last word; with neither, a built-in
// prompt stands in. Functions keep no state. A file that is not UTF-8 text or
// larger than MaxSize is refused. See SPEC.md §4.7.
package prompt

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf8"
)

// MaxSize bounds the text of one source, in bytes.
const MaxSize = 256 << 10

// FileName is what a layer of the prompt is called in its directory.
const FileName = "NEXUS.md"

// Default is the prompt where nobody wrote one.
const Default = `You are an agent that nexus runs. You answer the person or program that prompts you and you may call the tools you are given; their paths are relative to your working directory. Say what you did and what you found, briefly and truthfully. If you cannot do what is asked, say so and say why.`

// Prompt is a system prompt.
type Prompt struct {
	Text string
	// Path is the file it came from, the one with the last word if there were
	// two; "" if none.
	Path string
	// Explicit says that somebody asked for this very prompt, so that it is
	// saved with the session.
	Explicit bool
}

// Options says where to look.
type Options struct {
	// System is the prompt itself; "" for none. It excludes File.
	System string
	// File holds the prompt and must exist; "" for none.
	File string
	// Home and Cwd are the directories of the personal and the project layer.
	Home string
	Cwd  string
}

// Load finds the system prompt.
func Load(o Options) (Prompt, error) {
	switch {
	case o.System != "" && o.File != "":
		return Prompt{}, errors.New("a system prompt and a system prompt file exclude each other")
	case o.System != "":
		if len(o.System) > MaxSize {
			return Prompt{}, fmt.Errorf("system prompt is larger than %d bytes", MaxSize)
		}
		return Prompt{Text: o.System, Explicit: true}, nil
	case o.File != "":
		text, err := read(o.File)
		if err != nil {
			return Prompt{}, fmt.Errorf("read system prompt: %w", err)
		}
		return Prompt{Text: text, Path: absolute(o.File), Explicit: true}, nil
	}
	return layers(o)
}

func layers(o Options) (Prompt, error) {
	var p Prompt
	personal, project := filepath.Join(o.Home, FileName), filepath.Join(o.Cwd, FileName)
	paths := []string{personal}
	if filepath.Clean(personal) != filepath.Clean(project) {
		paths = append(paths, project)
	}
	for _, path := range paths {
		text, err := read(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Prompt{}, fmt.Errorf("read system prompt: %w", err)
		}
		if p.Text != "" {
			p.Text += "\n\n# Instructions of this project (they prevail over those above)\n\n"
		}
		p.Text += text
		p.Path = absolute(path)
	}
	if p.Text == "" {
		return Prompt{Text: Default}, nil
	}
	return p, nil
}

func read(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	switch {
	case err != nil:
		return "", err
	case len(data) > MaxSize:
		return "", fmt.Errorf("%s is larger than %d bytes", path, MaxSize)
	case !utf8.Valid(data):
		return "", fmt.Errorf("%s is not UTF-8 text", path)
	}
	return string(data), nil
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
