package sessions_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile/safefiletest"
	"nexus.internal/protocol/transcript"
)

// A session of another home comes as it stands, with all that is kept of its agent, or under another name that it and what it says of its creator bear.
func TestBring(t *testing.T) {
	from, c := sessions.New(t.TempDir(), nil), sessions.New(t.TempDir(), nil)
	save(t, from, "a", 3, transcript.Settings{Cwd: new("/site"), ParentAgentID: new("boss")})
	saveParts(t, from, "a", "of a")
	saveParts(t, c, "a", "of an earlier a")
	write(t, filepath.Join(filepath.Dir(image(from, "a")), "program.sh"), "no image") // which does not come
	want, err := os.ReadFile(from.Path("a"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, from.Path("a"), string(want)+`{"type":"mess`) // a write that was cut off
	if err := os.Chtimes(from.Path("a"), begun, begun); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sessions.Bring(t.Context(), c, from, "a", "a", ""), sessions.Bring(t.Context(), c, from, "a", "old-a", "old-boss")); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(c.Path("a"))
	if diff := cmp.Diff(string(want), string(got)); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, name := range []string{"a", "old-a"} {
		if diff := cmp.Diff(there(t, from, "a"), there(t, c, name)); diff != "" {
			t.Errorf("what belongs to %s (-there +here):\n%s", name, diff)
		}
		if info, err := os.Stat(c.Path(name)); err != nil || !info.ModTime().Equal(begun) {
			t.Errorf("%s was used at %v, %v, want %v", name, info.ModTime(), err, begun)
		}
	}
	renamed, err := c.Summary("old-a")
	if err != nil || renamed.Header.Name != "old-a" || renamed.Header.SessionID != "id-a" || protocol.Value(renamed.Settings.ParentAgentID) != "old-boss" || renamed.Messages != 3 {
		t.Errorf("under another name: %+v, %v", renamed, err)
	}
	if images, err := os.ReadDir(filepath.Dir(image(c, "a"))); err != nil || len(images) != 1 {
		t.Errorf("beside it there are %v, %v, want the image alone", images, err)
	}
	if !from.Exists("a") {
		t.Error("the other home has lost it")
	}
}

// What cannot come leaves nothing here.
func TestBringRefused(t *testing.T) {
	from, c := sessions.New(t.TempDir(), nil), sessions.New(t.TempDir(), nil)
	save(t, from, "a", 1, transcript.Settings{})
	save(t, from, "held", 1, transcript.Settings{})
	save(t, c, "taken", 2, transcript.Settings{})
	write(t, from.Path("damaged"), "not a session\n")
	save(t, from, "linked", 1, transcript.Settings{})
	outside := t.TempDir()
	write(t, filepath.Join(outside, "image"), "secret\n")
	if err := os.Symlink(outside, filepath.Dir(image(from, "linked"))); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"piped-records", "piped-image"} {
		save(t, from, id, 1, transcript.Settings{})
		saveParts(t, from, id, "x")
	}
	records, err := filepath.Glob(beside(from, "piped-records", ".records/*.jsonl"))
	if err != nil || len(records) != 1 {
		t.Fatal(records, err)
	}
	for _, path := range []string{records[0], image(from, "piped-image")} {
		if err := errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	header, err := os.ReadFile(from.Path("a"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, from.Path("torn"), string(header[:bytes.IndexByte(header, '\n')]))
	held, err := os.Open(from.Path("held"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, id, as string
		want         error
	}{
		{"nothing", "nobody", "x", sessions.ErrNotFound},
		{"onto another", "a", "taken", sessions.ErrExists},
		{"what is in use", "held", "x", sessions.ErrInUse},
		{"what is damaged", "damaged", "x", transcript.ErrNoSession},
		{"with another directory in the place of its images", "linked", "x", sessions.ErrUnreadable},
		{"with a pipe among its records", "piped-records", "x", sessions.ErrUnreadable},
		{"with a pipe in the place of an image", "piped-image", "x", sessions.ErrUnreadable},
		{"with a header that is not whole", "torn", "x", transcript.ErrNoSession},
		{"out of the directory", "a", "../x", sessions.ErrNotFound},
		{"from out of the directory", "../a", "x", sessions.ErrNotFound},
	} {
		if err := sessions.Bring(t.Context(), c, from, tt.id, tt.as, ""); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, err, tt.want)
		}
		if err := sessions.Comes(from, tt.id); tt.as == "x" && !errors.Is(err, tt.want) {
			t.Errorf("%s: before, it is said to be refused as %v, want %v", tt.name, err, tt.want)
		}
	}
	if got, err := c.Summary("taken"); err != nil || got.Messages != 2 {
		t.Errorf("what had the name is %+v, %v", got, err)
	}
	for _, part := range []string{".jsonl", ".records", ".files", ".next"} {
		if _, err := os.Lstat(filepath.Join(c.Dir("x"), "x"+part)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("of what did not come there is x%s", part)
		}
	}
}

// What is larger than a session may be is refused, whichever of its files it is, and not read: a file without content can be of any size.
func TestBringTooLarge(t *testing.T) {
	const size = 300 << 30
	for _, part := range []string{".jsonl", ".files/" + strings.Repeat("0a", 32), ".records/00000000000000000001.jsonl", ".events/00000000000000000001.jsonl", ".outcomes"} {
		from, c := sessions.New(t.TempDir(), nil), sessions.New(t.TempDir(), nil)
		save(t, from, "a", 1, transcript.Settings{})
		save(t, c, "a", 1, transcript.Settings{})
		path := beside(from, "a", part)
		if part != ".jsonl" {
			write(t, path, strings.Repeat("x", 64))
		}
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		errs := []error{sessions.Comes(from, "a"), sessions.Bring(t.Context(), c, from, "a", "x", "")}
		if part == ".jsonl" {
			_, read := sessions.SummaryWithin(t.Context(), from, "a")
			_, compared := sessions.Beyond(t.Context(), from, "a", c, "a")
			_, there := sessions.Beyond(t.Context(), c, "a", from, "a")
			errs = append(errs, read, compared, there)
		}
		for i, err := range errs {
			if !errors.Is(err, sessions.ErrTooLarge) {
				t.Errorf("%s: %d says %v", part, i, err)
			}
		}
		if c.Exists("x") {
			t.Errorf("%s: it came", part)
		}
	}
}

// Whoever brings a session, or compares it, and is interrupted ends at once, wherever it is within a file, and leaves nothing half.
func TestBringEnds(t *testing.T) {
	from, c := sessions.New(t.TempDir(), nil), sessions.New(t.TempDir(), nil)
	save(t, from, "a", 0, transcript.Settings{})
	text, err := os.ReadFile(from.Path("a"))
	if err != nil {
		t.Fatal(err)
	}
	line := `{"type":"message","role":"user","content":"` + strings.Repeat("x", 32<<10) + `","turn_id":"1","at":"2026-01-02T03:04:05Z"}` + "\n"
	write(t, from.Path("a"), string(text)+strings.Repeat(line, 64))
	saveParts(t, from, "a", strings.Repeat("y", 256<<10))
	ended := 0
	for last := 0; ; last += 7 {
		ctx := &safefiletest.Ending{Context: context.Background(), Last: last}
		err := sessions.Bring(ctx, c, from, "a", "x", "")
		if err == nil {
			break
		}
		if ended++; !errors.Is(err, context.Canceled) || ctx.Asked > last+8 {
			t.Fatalf("after %d: %v, and it went on for %d", last, err, ctx.Asked-last)
		}
		if left, err := filepath.Glob(beside(c, "x", ".*")); err != nil || len(left) > 0 {
			t.Fatalf("after %d there is %q, %v", last, left, err)
		}
	}
	if ended < 10 {
		t.Errorf("it was ended %d times: this proves little", ended)
	}
	if there, err := c.Summary("x"); err != nil || there.Messages != 64 {
		t.Errorf("at last there are %d messages, %v", there.Messages, err)
	}
	for name, read := range map[string]func(ctx context.Context) error{
		"read": func(ctx context.Context) error {
			_, err := sessions.SummaryWithin(ctx, sessions.New(filepath.Dir(from.Dir("a")), nil), "a")
			return err
		},
		"compared": func(ctx context.Context) error { _, err := sessions.Beyond(ctx, from, "a", c, "x"); return err },
	} {
		for _, last := range []int{0, 10, 40} {
			ctx := &safefiletest.Ending{Context: context.Background(), Last: last}
			if err := read(ctx); !errors.Is(err, context.Canceled) || ctx.Asked > last+8 {
				t.Errorf("%s: after %d: %v, and it went on for %d", name, last, err, ctx.Asked-last)
			}
		}
	}
}
