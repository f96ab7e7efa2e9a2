// Package prompt puts the system prompt together.
//
//	p, err := prompt.Load(prompt.Options{System: flag, File: path, Home: home, Cwd: cwd})
//	text := p.With(prompt.Surroundings{Cwd: cwd, Now: time.Now(), Notes: notes})
//
// What somebody said is the prompt stands alone. Otherwise NEXUS.md in the home
// (personal) comes first, and after it each CLAUDE.md, AGENTS.md and NEXUS.md from the
// project's root (the nearest directory with a .git) down to the working directory, so that
// the nearest has the last word, and in a directory NEXUS.md; with none, a built-in prompt
// stands in.
// Functions keep no state. A file must be regular and UTF-8 text, all files together
// at most MaxSize, and no link leads out of the directory of a project in which it stands. A file of the project that is
// anything else is left out, as the agent itself may have put it there; one of the
// home is an error. No file is waited for. A .git or a file of the project that belongs
// neither to our user nor to root is left out, too: any user may make one in a directory
// such as /tmp. See child/AGENT.md §4.7.
package prompt

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"nexus.internal/protocol/safefile"
)

// MaxSize bounds the text of a prompt, all its files together, in bytes.
const MaxSize = 256 << 10

// FileName is what a layer of the prompt is called in its directory.
const FileName = "NEXUS.md"

// fileNames are the layers of a directory of a project: what others of our kind read, and
// then our own.
var fileNames = [...]string{"CLAUDE.md", "AGENTS.md", FileName}

// Default is the prompt where nobody wrote one.
const Default = `You are an agent that nexus runs. You answer the person or program that prompts you and you may call the tools you are given; their paths are relative to your working directory. Say what you did and what you found, briefly and truthfully. If you cannot do what is asked, say so and say why.`

// Prompt is a system prompt.
type Prompt struct {
	Text string
	// Path is the file it came from, the one with the last word if there were
	// several; "" if none.
	Path string
	// Layers are all the files that it came from, the one with the last word last.
	Layers []string
	// Explicit says that somebody asked for this very prompt, so that it is
	// saved with the session.
	Explicit bool
	// LeftOut says which files of the project are not used, and why.
	LeftOut []error
}

// Saved is the prompt that a session has, and the file that it came from, "" if none.
func Saved(text, path string) Prompt {
	p := Prompt{Text: text, Path: path, Explicit: true}
	if path != "" {
		p.Layers = []string{path}
	}
	return p
}

// Options says where to look.
type Options struct {
	// System is the prompt itself; "" for none. It excludes File.
	System string
	// File holds the prompt and must exist; "" for none.
	File string
	// Home and Cwd are the directories of the personal layer and of the last
	// one of the project; "" for none. No symbolic link leads through Cwd: where
	// one does all the same, it was put there later, and the project's files are left out.
	Home string
	Cwd  string
	// Bounds are those of the agent; nil for none.
	Bounds safefile.Bounds
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
		f, err := safefile.OpenNamed(o.File)
		if err != nil {
			return Prompt{}, fmt.Errorf("read system prompt: %w", err)
		}
		defer f.Close()
		text, err := readAll(f, MaxSize)
		if err != nil {
			return Prompt{}, fmt.Errorf("read system prompt %s: %w", o.File, err)
		}
		return Saved(text, absolute(o.File)), nil
	}
	return layers(o)
}

// layers reads what there is.
func layers(o Options) (p Prompt, err error) {
	if o.Home != "" {
		// The home is the user's own: a link in it may lead anywhere.
		open := func(name string) (*os.File, error) { return safefile.OpenLinked(filepath.Join(o.Home, name)) }
		text, err := p.read(open, FileName, absolute(o.Home))
		if err != nil {
			return Prompt{}, err
		}
		p.add(text, filepath.Join(absolute(o.Home), FileName), "")
	}
	if o.Cwd != "" {
		p.addProject(absolute(o.Cwd), absolute(o.Home), o.Bounds)
	}
	if p.Text == "" {
		p.Text = Default
	}
	return p, nil
}

// addProject adds the layers of the project that cwd lies in.
func (p *Prompt) addProject(cwd, home string, bounds safefile.Bounds) {
	top, leftOut := projectRoot(cwd)
	p.LeftOut = append(p.LeftOut, leftOut...)
	below, err := filepath.Rel(top, cwd)
	if err != nil {
		p.leaveOut(err)
		return
	}
	dirs := []string{"."}
	if below != "." {
		parts := strings.Split(filepath.ToSlash(below), "/")
		for i := range parts {
			dirs = append(dirs, strings.Join(parts[:i+1], "/"))
		}
	}
	foreign := "" // the first directory below top that is another user's
	for _, dir := range dirs {
		if filepath.Join(top, dir) == home {
			continue // it came first
		}
		root, err := safefile.OpenRealRoot(filepath.Join(top, dir))
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err != nil {
			p.leaveOut(err)
			return
		}
		if info, err := root.Stat("."); dir != "." && foreign == "" && (err != nil || !safefile.OursOrRoots(info)) {
			foreign = dir
		}
		p.addDirectory(root, top, dir, foreign, bounds)
		_ = root.Close() // nothing was written
	}
}

// addDirectory adds the layers of one directory of a project. No link leads out of it: the agent may
// have made one in its own directory to what it may not read beside that.
func (p *Prompt) addDirectory(root *os.Root, top, dir, foreign string, bounds safefile.Bounds) {
	open := func(name string) (*os.File, error) {
		name = filepath.Base(name)
		if _, err := root.Lstat(name); err != nil || foreign == "" {
			return safefile.OpenBounded(root, name, bounds)
		}
		return nil, fmt.Errorf("is in %s, which %w", foreign, safefile.ErrForeign)
	}
	head := "# Instructions of this project (they prevail over those above)"
	if dir != "." {
		head = "# Instructions for " + dir + " (they prevail over those above)"
	}
	var here []string // one is often a link to the other, or a copy
	for _, file := range fileNames {
		name := strings.TrimPrefix(dir+"/"+file, "./")
		text, err := p.read(open, name, top)
		if err != nil {
			p.LeftOut = append(p.LeftOut, err)
			continue
		}
		if !slices.Contains(here, text) {
			here = append(here, text)
			p.add(text, filepath.Join(top, filepath.FromSlash(name)), head)
		}
	}
}

func (p *Prompt) leaveOut(err error) {
	p.LeftOut = append(p.LeftOut, fmt.Errorf("read system prompt: %w", err))
}

// projectRoot is the nearest directory from cwd upwards that has a .git, or cwd
// itself if none has. The search ends below a directory that belongs to another user, and
// takes no .git of one; leftOut says where it would have ended otherwise.
func projectRoot(cwd string) (top string, leftOut []error) {
	for dir := cwd; ; dir = filepath.Dir(dir) {
		git, err := os.Lstat(filepath.Join(dir, ".git"))
		if above, failed := os.Stat(dir); dir != cwd && failed == nil && !safefile.OursOrRoots(above) {
			if err == nil {
				leftOut = append(leftOut, fmt.Errorf("directory %s is not the project's root: it %w", dir, safefile.ErrForeign))
			}
			return cwd, leftOut
		}
		switch {
		case err == nil && safefile.OursOrRoots(git):
			return dir, leftOut
		case err == nil:
			leftOut = append(leftOut, fmt.Errorf("directory %s is not the project's root: its .git %w", dir, safefile.ErrForeign))
		}
		if dir == filepath.Dir(dir) {
			return cwd, leftOut
		}
	}
}

// add adds one layer, unless it is blank.
func (p *Prompt) add(text, path, head string) {
	if strings.TrimSpace(text) == "" {
		return
	}
	if p.Text != "" {
		text = p.Text + "\n\n" + head + "\n\n" + text
	}
	p.Text, p.Path, p.Layers = text, path, append(p.Layers, path)
}

// read is the text of a layer, as far as there is room; "" if there is none.
func (p *Prompt) read(open func(name string) (*os.File, error), name, top string) (string, error) {
	text, err := read(open, name, MaxSize-len(p.Text))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read system prompt %s: %w", filepath.Join(top, filepath.FromSlash(name)), err)
	}
	return text, nil
}

// read reads a regular file of at most limit bytes of text.
func read(open func(name string) (*os.File, error), name string, limit int) (string, error) {
	f, err := open(name)
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return "", e.Err // the caller names the path
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	return readAll(f, limit)
}

func readAll(r io.Reader, limit int) (string, error) {
	data, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	switch {
	case err != nil:
		return "", err
	case len(data) > limit:
		return "", fmt.Errorf("the prompt is larger than %d bytes", MaxSize)
	case !utf8.Valid(data):
		return "", errors.New("is not UTF-8 text")
	}
	return string(data), nil
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil && path != "" {
		return abs
	}
	return path
}

// Surroundings are what a model gets beside the prompt.
type Surroundings struct {
	Cwd string
	Now time.Time // the model gets its day
	// Walls are lines about what the agent and its programs may do; "" for none.
	Walls string
	// Notes are what the parent wants the agent to know.
	Notes []Note
}

// Note is one thing that the parent wants the agent to know.
type Note struct {
	Title string // one line
	Text  string
}

// With is the prompt of one turn: its text, the environment unless the prompt is
// Explicit, and the notes. It is the same from one day to the next change, since
// providers cache what requests begin with.
func (p Prompt) With(s Surroundings) string {
	var b strings.Builder
	b.Grow(len(p.Text) + len(s.Cwd) + len(s.Walls) + 128) // all of it where there are no notes
	b.WriteString(p.Text)
	if !p.Explicit {
		b.WriteString("\n\n# Environment\n\n")
		s.write(&b)
	}
	for i, note := range s.Notes {
		if i == 0 {
			b.WriteString("\n\n# Context\n\nThe program that runs you wants you to know, as of now:")
		}
		fmt.Fprintf(&b, "\n\n## %s\n\n%s", note.Title, note.Text)
	}
	return strings.TrimLeft(b.String(), "\n")
}

// Environment is where the agent works, line by line, what changes most often last.
func (s Surroundings) Environment() string {
	var b strings.Builder
	s.write(&b)
	return b.String()
}

func (s Surroundings) write(b *strings.Builder) {
	b.WriteString("Working directory: ")
	b.WriteString(s.Cwd)
	b.WriteString("\nPlatform: " + runtime.GOOS + "/" + runtime.GOARCH + "\n")
	if s.Walls != "" {
		b.WriteString(s.Walls)
		b.WriteByte('\n')
	}
	b.WriteString("Today: ")
	b.Write(s.Now.AppendFormat(make([]byte, 0, len(time.DateOnly)), time.DateOnly))
}
