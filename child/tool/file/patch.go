package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/tool"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/strict"
)

const (
	maxSaid      = 10       // files that a summary or an error names
	maxRewritten = 64 << 20 // bytes of all files that a patch writes
)

var patchSpec = tool.Spec{
	Name: "apply_patch",
	Description: "Change several files at once, all of them or none. The patch is a unified diff, or has the form\n" +
		"*** Begin Patch\n*** Update File: path\n@@ line of a function or class before the change, if needed\n" +
		" unchanged line\n-old line\n+new line\n*** Add File: path\n+line\n*** Delete File: path\n*** End Patch\n" +
		"*** Move to: path after an Update File line renames the file. Name each file once, with all its hunks in the " +
		"order of the file, and about three unchanged lines around each change.",
	InputSchema: jsontext.Value(`{"type":"object","properties":{` +
		`"patch":{"type":"string","description":"the patch; paths are absolute or relative to the working directory"}},` +
		`"required":["patch"],"additionalProperties":false}`),
}

type patchInput struct {
	Patch string `json:"patch"`
}

// patchTool is apply_patch: what a call touches stands in the patch.
type patchTool struct{ function[patchInput] }

func (t patchTool) Scope(in jsontext.Value) (tool.Scope, error) {
	scope := tool.Scope{Action: t.action}
	var input patchInput
	if err := strict.Unmarshal(in, &input, strict.RejectUnknown); err != nil {
		return scope, err
	}
	files, err := parsePatch(input.Patch)
	if err != nil {
		return scope, err
	}
	var said []string
	add := func(to *[]string, text string) {
		if text != "" && !slices.Contains(*to, text) {
			*to = append(*to, text)
		}
	}
	for _, f := range files {
		said = append(said, f.attempt()+" "+f.named())
		add(&scope.Paths, f.from)
		add(&scope.Paths, f.to)
		add(&scope.AlsoUnder, map[string]string{"update": "edit_file", "delete": "delete_file", "move": "move_file"}[f.attempt()])
	}
	if more := len(said) - maxSaid; more > 0 {
		said = append(said[:maxSaid], fmt.Sprintf("and %d more", more))
	}
	scope.Summary = "patch: " + strings.Join(said, ", ")
	return scope, nil
}

func (patchInput) about() (paths []string, summary string) { return nil, "" }

// attempt is what a patch does to a file.
func (f filePatch) attempt() string {
	switch {
	case f.from == "":
		return "add"
	case f.to == "":
		return "delete"
	case f.from != f.to:
		return "move"
	default:
		return "update"
	}
}

// named are its paths in a few words.
func (f filePatch) named() string {
	switch f.attempt() {
	case "add":
		return f.to
	case "move":
		return f.from + " to " + f.to
	default:
		return f.from
	}
}

// patching is a patch on its way to the files.
type patching struct {
	space              Space
	places             []*place // to be closed
	changes, deletions []*change
	written            int      // bytes, of maxRewritten
	said               []string // a line for each file
	created            []string // absolute paths
}

func (in patchInput) run(ctx context.Context, _ *files, s Space) (tool.Result, error) {
	files, err := parsePatch(in.Patch)
	if err != nil {
		return tool.Result{}, err
	}
	p := &patching{space: s}
	defer func() {
		for _, place := range p.places {
			place.close()
		}
	}()
	var failed []error
	for _, f := range files {
		if err := p.prepare(ctx, f); err != nil {
			failed = append(failed, err)
		}
		if ctx.Err() != nil || len(failed) == maxSaid {
			break
		}
	}
	if len(failed) == 0 {
		failed = p.distinct()
	}
	if len(failed) > 0 {
		return tool.Result{}, fmt.Errorf("%w\nnothing was changed", errors.Join(failed...))
	}
	// If the process is killed, nothing is lost: what moves is at its new place before it is deleted.
	changed, err := carryOut(ctx, append(p.changes, p.deletions...)...)
	switch {
	case err != nil && len(changed) > 0:
		return tool.Result{Text: err.Error(), IsError: true, Changed: changed}, nil
	case err != nil:
		return tool.Result{}, fmt.Errorf("%w\nnothing was changed", err)
	}
	return tool.Result{Text: strings.Join(p.said, "\n") + "\n", Changed: changed, Created: p.created}, nil
}

// prepare finds out what is to become of one file. Its errors are for the model.
func (p *patching) prepare(ctx context.Context, f filePatch) error {
	switch f.attempt() {
	case "add":
		to, err := p.free(f, f.to)
		if err != nil {
			return err
		}
		p.created = append(p.created, to.path)
		p.say(f, "added", lineCount(f.added), -1)
		return p.write(f, to, f.added, &change{arrives: true})
	case "delete":
		return p.delete(ctx, f)
	case "move":
		return p.move(ctx, f)
	default:
		at, err := p.find(f, f.from)
		if err != nil {
			return err
		}
		text, before, err := f.edited(ctx, at)
		if err != nil {
			return err
		}
		p.say(f, "updated", f.count('+'), f.count('-'))
		return p.write(f, at, text, &change{seen: before})
	}
}

// find is where a path leads.
func (p *patching) find(f filePatch, path string) (*place, error) {
	found, err := p.space.find(f.attempt(), path, true)
	if err == nil {
		p.places = append(p.places, found)
	}
	return found, err
}

// free is a place where nothing is.
func (p *patching) free(f filePatch, path string) (*place, error) {
	found, err := p.find(f, path)
	if err != nil {
		return nil, err
	}
	switch _, err := found.root.Lstat(found.name); {
	case err == nil:
		return nil, fmt.Errorf("%s %s: %s is there already", f.attempt(), f.named(), path)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, explain(f.attempt(), path, err)
	}
	return found, nil
}

// write makes a file hold the text.
func (p *patching) write(f filePatch, at *place, text string, c *change) error {
	if p.written += len(text); p.written > maxRewritten {
		return fmt.Errorf("%s %s: a patch writes at most %d bytes", f.attempt(), f.named(), maxRewritten)
	}
	c.attempt, c.at, c.content, c.mode.executable = f.attempt(), at, strings.NewReader(text), f.executable
	p.changes = append(p.changes, c)
	return nil
}

// edited is what a file is to hold, and its state before.
func (f filePatch) edited(ctx context.Context, at *place) (text string, before fs.FileInfo, err error) {
	content, e, before, err := at.whole(ctx, f.attempt())
	if err != nil {
		return "", nil, err
	}
	if text, err = applyHunks(ctx, content, f.hunks); err == nil {
		text, err = e.encode(text)
	}
	if err != nil {
		return "", nil, fmt.Errorf("%s %s: %w", f.attempt(), f.from, err)
	}
	return text, before, nil
}

func (p *patching) delete(ctx context.Context, f filePatch) error {
	at, err := p.find(f, f.from)
	if err != nil {
		return err
	}
	if err := at.noLink(f.attempt()); err != nil {
		return err
	}
	file, before, err := at.regular(f.attempt())
	if err != nil {
		return err
	}
	defer file.Close()
	if len(f.hunks) > 0 { // they say what is in it
		var left string
		if left, before, err = f.edited(ctx, at); err != nil {
			return err
		}
		if strings.TrimPrefix(left, byteMark) != "" {
			return fmt.Errorf("delete %s: it holds more than what the patch takes away", f.from)
		}
	}
	head, err := io.ReadAll(io.LimitReader(cancelled{ctx, file}, maxEdit))
	if err != nil {
		return explain(f.attempt(), f.from, err)
	}
	p.say(f, "deleted", -1, lineCount(string(head)))
	p.deletions = append(p.deletions, &change{attempt: f.attempt(), at: at, seen: before})
	return nil
}

func (p *patching) move(ctx context.Context, f filePatch) error {
	from, err := p.find(f, f.from)
	if err != nil {
		return err
	}
	if err := from.noLink(f.attempt()); err != nil {
		return err
	}
	to, err := p.free(f, f.to)
	if err != nil {
		return err
	}
	p.created = append(p.created, to.path)
	if len(f.hunks) == 0 && f.executable == nil {
		if _, err := from.root.Lstat(from.name); err != nil {
			return explain(f.attempt(), f.from, err)
		}
		p.say(f, "moved", -1, -1)
		p.changes = append(p.changes, &change{attempt: f.attempt(), at: to, from: from, arrives: true})
		return nil
	}
	text, before, err := f.edited(ctx, from)
	if err != nil {
		return err
	}
	p.say(f, "moved", f.count('+'), f.count('-'))
	p.deletions = append(p.deletions, &change{attempt: f.attempt(), at: from, seen: before})
	return p.write(f, to, text, &change{arrives: true, mode: mode{perm: before.Mode().Perm()}})
}

// lineCount counts the last line also if it has no end.
func lineCount(text string) int {
	n := strings.Count(text, "\n")
	if text != "" && !strings.HasSuffix(text, "\n") {
		n++
	}
	return n
}

// count is how many lines come or go.
func (f filePatch) count(op byte) (n int) {
	for _, h := range f.hunks {
		for _, l := range h.lines {
			if l.op == op {
				n++
			}
		}
	}
	return n
}

// say puts into the result what becomes of a file; -1 lines are not spoken of.
func (p *patching) say(f filePatch, done string, added, removed int) {
	line := done + " " + f.named()
	switch {
	case added >= 0 && removed >= 0:
		line += fmt.Sprintf(" (+%d -%d)", added, removed)
	case added >= 0 || removed >= 0:
		n := max(added, removed)
		line += fmt.Sprintf(" (%d %s)", n, plural(n, "line"))
	}
	p.said = append(p.said, line)
}

// distinct reports the files that the patch names twice, or as a file and as its directory.
func (p *patching) distinct() (failed []error) {
	for i, one := range p.places {
		for _, other := range p.places[:i] {
			_, in := safefile.Below(other.path, one.path)
			_, contains := safefile.Below(one.path, other.path)
			switch {
			case one.path == other.path:
				failed = append(failed, fmt.Errorf("%s is named twice: name each file once, with all its hunks", one.asked))
			case in, contains:
				failed = append(failed, fmt.Errorf("one of %s and %s is in the other one", other.asked, one.asked))
			}
		}
	}
	return failed[:min(len(failed), maxSaid)]
}
