package plan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol/strict"
)

const (
	// maxRecord bounds a record that is read, in bytes: 100 results of 1 MiB,
	// each byte of which JSON may write as six, do not fit, but what agents say does.
	maxRecord = 256 << 20
	// Kept is how many records a directory has: the oldest goes when another
	// one is begun.
	Kept = 256
)

// ErrConflict is the error of Open for a record of another plan.
var ErrConflict = errors.New("the id was used before for another plan")

// Start is that a task was begun.
type Start struct {
	TaskID    string `json:"task_id"`
	Worker    int    `json:"worker"`
	RequestID string `json:"request_id"`
	Attempt   int    `json:"attempt"` // counts from 1
	// Resumed says that it was begun before the record was opened.
	Resumed bool `json:"-"`
}

// line is one line of a record. Exactly one member is given besides Type.
type line struct {
	Type   string              `json:"type"` // plan, task_start, task_end or plan_end
	Digest string              `json:"digest,omitzero" wire:"default"`
	Start  *Start              `json:"start,omitzero"`
	End    *api.PlanTaskResult `json:"end,omitzero"`
	Status string              `json:"status,omitzero" wire:"default"`
}

// Record is what became of the tasks of one run. It is owned by one goroutine.
type Record struct {
	file *os.File
	// Done are the tasks that have ended, by id.
	Done map[string]api.PlanTaskResult
	// Begun are those that were begun and have not ended, by id: the last
	// attempt of each.
	Begun map[string]Start
	// Resumed says that the record was there; Status, unless "", that the run
	// has ended.
	Resumed bool
	Status  string
}

// Open opens the record of a run, or begins it with its directory (0700, the
// file 0600). A line that was not written whole is cut off. The error is
// ErrConflict, or of the file system, or says what cannot be read.
func Open(path, digest string) (*Record, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open the record of a plan: %w", err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the record of a plan: %w", err)
	}
	r := &Record{file: file, Done: map[string]api.PlanTaskResult{}, Begun: map[string]Start{}}
	if err := r.read(digest); err != nil {
		file.Close()
		return nil, err
	}
	return r, nil
}

// Close gives the file up.
func (r *Record) Close() { r.file.Close() }

// Discard removes the record of a run in which nothing was begun, so that its id
// is free again, and closes it.
func (r *Record) Discard() error {
	defer r.file.Close()
	if len(r.Done)+len(r.Begun) > 0 || r.Status != "" {
		return nil
	}
	return os.Remove(r.file.Name())
}

func (r *Record) read(digest string) error {
	data, err := io.ReadAll(io.LimitReader(r.file, maxRecord+1))
	if err != nil || len(data) > maxRecord {
		return errors.Join(fmt.Errorf("read the record of a plan: %d bytes", len(data)), err)
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	if len(whole) < len(data) {
		if err := r.file.Truncate(int64(len(whole))); err != nil {
			return fmt.Errorf("cut off the torn end of a plan's record: %w", err)
		}
	}
	if len(whole) == 0 {
		prune(filepath.Dir(r.file.Name()))
		return r.append(line{Type: "plan", Digest: digest})
	}
	r.Resumed = true
	for i, text := range bytes.Split(bytes.TrimSuffix(whole, []byte("\n")), []byte("\n")) {
		var l line
		if err := strict.Unmarshal(text, &l, strict.IgnoreUnknown); err != nil {
			return fmt.Errorf("read the record of a plan: line %d: %w", i+1, err)
		}
		if i == 0 && l.Digest != digest {
			return ErrConflict
		}
		switch {
		case l.Start != nil:
			l.Start.Resumed = true
			r.Begun[l.Start.TaskID] = *l.Start
		case l.End != nil:
			r.Done[l.End.TaskID] = *l.End
			delete(r.Begun, l.End.TaskID)
		case l.Type == "plan_end":
			r.Status = l.Status
		}
	}
	return nil
}

// start records that a task is begun.
func (r *Record) start(s Start) error {
	r.Begun[s.TaskID] = s
	return r.append(line{Type: "task_start", Start: &s})
}

// end records how a task ended, finish how the run did.
func (r *Record) end(result api.PlanTaskResult) error {
	r.Done[result.TaskID] = result
	delete(r.Begun, result.TaskID)
	return r.append(line{Type: "task_end", End: &result})
}

func (r *Record) finish(status string) error {
	r.Status = status
	return r.append(line{Type: "plan_end", Status: status})
}

// append writes one line by one write, so that the end of the process leaves a
// whole line or a torn last one.
func (r *Record) append(l line) error {
	text, err := json.Marshal(l, jsontext.EscapeForHTML(false))
	if err == nil {
		_, err = r.file.Write(append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("record a plan: %w", err)
	}
	return nil
}

// prune removes the oldest records beyond Kept. What cannot be removed stays.
func prune(dir string) {
	type record struct {
		path string
		at   time.Time
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	var records []record
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() && strings.HasSuffix(entry.Name(), ".jsonl") {
			records = append(records, record{filepath.Join(dir, entry.Name()), info.ModTime()})
		}
	}
	slices.SortFunc(records, func(a, b record) int { return a.at.Compare(b.at) })
	for _, old := range records[:max(0, len(records)-Kept)] {
		_ = os.Remove(old.path)
	}
}
