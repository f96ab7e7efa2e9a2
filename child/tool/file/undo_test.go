package file_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/child/snapshot"
	"nexus.internal/child/tool"
	"nexus.internal/child/tool/file"
)

// within implements [file.Rewriter]: all changes are taken back in the same spaces.
type within struct{ space, unasked file.Space }

func (w within) Rewrite(*snapshot.Entry) (s, unasked file.Space, err error) {
	return w.space, w.unasked, nil
}

// Whatever two turns did to two files, undoing one after the other brings back what was there before each.
func TestUndoTurnAfterTurn(t *testing.T) {
	calls := [][]any{
		{"write_file", "path", "f", "content", "1\n"},
		{"write_file", "path", "f", "content", "22\n"},
		{"move_file", "from", "f", "to", "g", "overwrite", true},
		{"move_file", "from", "g", "to", "f", "overwrite", true},
		{"delete_file", "path", "f"},
		{"delete_file", "path", "g"},
		{"copy_file", "from", "f", "to", "g", "overwrite", true},
		{"copy_file", "from", "g", "to", "f", "overwrite", true},
	}
	dir := t.TempDir()
	for n := range 3 * 4 * len(calls) * len(calls) {
		r := &room{t: t, dir: filepath.Join(dir, fmt.Sprint(n)), tools: map[string]tool.Tool{}}
		r.must(os.Mkdir(r.dir, 0o777))
		if begin := n % 3; begin > 0 {
			r.put([]string{"", "f", "g"}[begin], "0\n")
		}
		space := file.Space{Cwd: r.dir, Snapshots: snapshot.New(snapshot.Options{Dir: filepath.Join(dir, fmt.Sprint(n, ".was"))})}
		r.open(space)
		var before []map[string]string
		for turn, calls := range [][][]any{{calls[0], calls[n/3%4]}, {calls[n/12%8], calls[n/96%8]}} {
			before = append(before, r.tree())
			space.Snapshots.BeginTurn(time.Unix(int64(turn), 0))
			for _, call := range calls {
				_, _ = r.run(call[0].(string), call[1:]...) // a file that is not there is moved in vain
			}
		}
		for turn := 1; turn >= 0; turn-- {
			_, left := file.Undo(t.Context(), space.Snapshots, within{space, space}, time.Unix(int64(turn), 0))
			if diff := cmp.Diff(before[turn], r.tree()); diff != "" || len(left) > 0 {
				t.Fatalf("history %d, turn %d: left %v\n%s", n, turn, left, diff)
			}
		}
	}
}

// A program of the agent can change a file that was moved to where it writes, and set its time back. So undo does
// not bring it to where a person would have to be asked.
func TestUndoMovesNothingOut(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	r := &room{t: t, dir: dir, tools: map[string]tool.Tool{}}
	own := file.Space{Cwd: dir}
	space := file.Space{Cwd: dir, AllowedPaths: []string{outside}, Snapshots: snapshot.New(snapshot.Options{Dir: filepath.Join(t.TempDir(), "was")})}
	r.open(space)
	turn := time.Unix(1, 0)
	space.Snapshots.BeginTurn(turn)
	tool := filepath.Join(outside, "tool")
	r.must(os.WriteFile(tool, []byte("good"), 0o777))
	if _, err := r.run("move_file", "from", tool, "to", "tool"); err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(dir, "tool")
	info, err := os.Stat(moved)
	r.must(err)
	f, err := os.OpenFile(moved, os.O_WRONLY, 0)
	r.must(err)
	_, err = f.WriteString("evil")
	r.must(err)
	r.must(f.Close())
	r.must(os.Chtimes(moved, time.Time{}, info.ModTime()))
	restored, left := file.Undo(t.Context(), space.Snapshots, within{space, own}, turn)
	if _, err := os.Lstat(tool); !os.IsNotExist(err) || len(restored) > 0 || len(left) != 2 {
		t.Errorf("restored %v, left %v; at its old place: %v", restored, left, err)
	}
	r.must(os.WriteFile(filepath.Join(dir, "a"), nil, 0o666))
	space.Snapshots.BeginTurn(turn.Add(time.Second))
	if _, err := r.run("move_file", "from", "a", "to", "b"); err != nil {
		t.Fatal(err)
	}
	if restored, left := file.Undo(t.Context(), space.Snapshots, within{space, own}, turn.Add(time.Second)); len(restored) != 2 || len(left) > 0 {
		t.Errorf("within: restored %v, left %v", restored, left)
	}
}
