package plan_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/plan"
	"nexus.internal/protocol/safefile/safefiletest"
)

// Whoever brings a record and is interrupted ends at once, wherever it is within the file, and leaves nothing half.
func TestBringEnds(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "plans")
	text := `{"type":"plan","version":1,"digest":"digest"}` + "\n"
	for range 16 {
		text += `{"type":"task_end","end":{"task_id":"a","status":"skipped","reason":"` + strings.Repeat("x", 64<<10) + `"}}` + "\n"
	}
	if err := errors.Join(os.WriteFile(filepath.Join(from, "run.jsonl"), []byte(text), 0o600), os.Mkdir(to, 0o700)); err != nil {
		t.Fatal(err)
	}
	r := plan.NewRunner(plan.Options{Dir: to})
	ended := 0
	for last := 0; ; last += 5 {
		ctx := &safefiletest.Ending{Context: context.Background(), Last: last}
		all, err := r.Bring(ctx, from, false)
		if err == nil {
			if len(all) != 1 || all[0].Outcome != agents.BringCame {
				t.Errorf("at last: %+v", all)
			}
			break
		}
		if ended++; !errors.Is(err, context.Canceled) || ctx.Asked > last+8 || len(all) > 0 {
			t.Fatalf("after %d: %+v, %v, and it went on for %d", last, all, err, ctx.Asked-last)
		}
		if left, err := os.ReadDir(to); err != nil || len(left) > 0 {
			t.Fatalf("after %d there is %v, %v", last, left, err)
		}
	}
	if ended < 5 {
		t.Errorf("it was ended %d times: this proves little", ended)
	}
	if got, err := os.ReadFile(filepath.Join(to, "run.jsonl")); err != nil || string(got) != text {
		t.Errorf("what came has %d bytes of %d, %v", len(got), len(text), err)
	}
	if _, err := os.Lstat(filepath.Join(to, "tasks")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("there is a directory of results, of which there were none")
	}
}
