package child_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"nexus.internal/child"
	"nexus.internal/child/journal"
)

// history is what happened to stdout and to the session file, in order. It is
// the child's stdout.
type history struct {
	mu    sync.Mutex // guards steps
	steps []string
}

func (h *history) add(step string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.steps = append(h.steps, step)
}

// Write notes the types of the frames of one write.
func (h *history) Write(lines []byte) (int, error) {
	var types []string
	for line := range bytes.Lines(lines) {
		types = append(types, gjson.GetBytes(line, "type").String())
	}
	h.add(strings.Join(types, "+"))
	return len(lines), nil
}

// synced notes which record was the last in the file when it was synced.
func (h *history) synced(f *os.File) error {
	data, err := os.ReadFile(f.Name())
	if err != nil {
		return err
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	last := gjson.ParseBytes(lines[len(lines)-1])
	h.add(fmt.Sprintf("sync %s %s %s", last.Get("type"), last.Get("turn_id"), last.Get("outcome")))
	return nil
}

// A turn that was answered survives the machine: its last record is on the disk
// before its agent_end is written (SPEC §4.6). What closes a turn is one write.
func TestATurnIsOnTheDiskBeforeItsEndIsTold(t *testing.T) {
	for _, test := range []struct {
		name   string
		noSync bool
		broken error // what the sync comes to
		prompt string
		want   []string
	}{
		{name: "completed", prompt: "say hello", want: []string{
			"ready", "message_update", "sync turn_end 1 completed", "agent_end+response",
		}},
		{name: "failed", prompt: "fail", want: []string{
			"ready", "message_update", "sync turn_end 1 error", "error+agent_end+response",
		}},
		{name: "left to the operating system", noSync: true, prompt: "say hello", want: []string{
			"ready", "message_update", "agent_end+response",
		}},
		{name: "not on the disk, so not completed", broken: errors.New("the disk is gone"), prompt: "say hello", want: []string{
			"ready", "message_update", "sync turn_end 1 completed", "error+agent_end+response",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var h history
			o := options()
			j, _, err := journal.Open(journal.Options{
				Dir: t.TempDir(), Name: "s", NoSync: test.noSync,
				Sync: func(f *os.File) error { return errors.Join(h.synced(f), test.broken) },
			})
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			o.Journal = j
			in := strings.NewReader(`{"type":"prompt","id":"1","message":"` + test.prompt + `"}` + "\n")
			if err := child.Serve(context.Background(), in, &h, o); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, h.steps); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
