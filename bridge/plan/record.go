package plan

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/strict"
)

const (
	// maxRecord bounds a record that is read, in bytes: 100 results of 1 MiB,
	// each byte of which JSON may write as six, do not fit, but what agents say does.
	maxRecord = 256 << 20
	// maxLine bounds a line that is read, in bytes: a result of 1 MiB in JSON, and more.
	maxLine = 16 << 20
	// Kept is how many records Prune leaves in a directory.
	Kept = 256
)

// suffix ends the name of a record, which begins with the run's id.
const suffix = ".jsonl"

// version is that of the records that are written, and the only one that is read.
const version = 1

var (
	// ErrConflict is the error of Open for a record of another plan.
	ErrConflict error = &api.Error{
		Kind: api.KindRequestIDConflict, Details: "a run of that id was begun with another plan, other agents or options, or another on_failure",
		Suggestions: []string{"Repeat the call as it was, with the same plan, agents and options, or use a new request_id for another run."},
	}
	// ErrUnrecorded says that a record cannot be written, or be had at all: of the
	// disk and not of what the record says. Nothing goes on then.
	ErrUnrecorded = errors.New("the run cannot be recorded")
)

// damaged says that what is in the place of a record is none. problem names the line, where
// there is one.
func damaged(problem string) error {
	return &api.Error{
		Kind: api.KindPlanRecordDamaged, Details: "the record of the run is damaged: " + problem,
		Suggestions: []string{"Use a new request_id, or remove the record from plans in the server's home."},
	}
}

// unrecorded is ErrUnrecorded for an error of the file system, without paths.
func unrecorded(what string, err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		err = e.Err
	}
	err = fmt.Errorf("%w: %s: %w", ErrUnrecorded, what, err)
	return &api.Error{
		Kind: api.KindNotRecorded, Details: err.Error(), Err: err,
		Suggestions: []string{"See that the server can write to its disk, then send it again: the run begins then, or goes on where it was."},
	}
}

// Start is that a task was begun.
type Start struct {
	TaskID    string `json:"task_id"`
	Worker    int    `json:"worker"`
	RequestID string `json:"request_id"`
	Attempt   int    `json:"attempt"` // counts from 1
	// Resumed says that it was begun before the record was opened.
	Resumed bool `json:"-"`
}

// line is one line of a record: the members that its type has besides.
type line struct {
	Type    string              `json:"type"` // plan, task_start, task_end, plan_end or plan_again
	Version int                 `json:"version,omitzero" wire:"default"`
	Digest  string              `json:"digest,omitzero" wire:"default"`
	Plan    *api.Plan           `json:"plan,omitzero"`
	Start   *Start              `json:"start,omitzero"`
	End     *api.PlanTaskResult `json:"end,omitzero"`
	Status  string              `json:"status,omitzero" wire:"default"`
	Tasks   []string            `json:"tasks,omitempty" wire:"default"` // that are to be done again
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
	// Plan is what is carried out; nil in a record of an earlier version.
	Plan *api.Plan

	id       string          // of the run
	tasks    map[string]bool // those that were met, or that Plan has
	attempts map[string]int  // at each task, so far
}

// Identity is what tells a run from others of its id.
type Identity struct {
	Digest  string
	Earlier []string  // digests by which earlier versions have told it from others
	Plan    *api.Plan // is kept in a record that is begun
}

// newRecord is a record of the run of that id, of which nothing was read.
func newRecord(id string, file *os.File) *Record {
	return &Record{file: file, id: id, Done: map[string]api.PlanTaskResult{}, Begun: map[string]Start{}, tasks: map[string]bool{}, attempts: map[string]int{}}
}

// Open opens the record of a run, or begins it with its directory (0700, the
// file 0600). A line that was not written whole is cut off. The error is
// ErrConflict, ErrUnrecorded, or of the kind KindPlanRecordDamaged; of a record that could not be
// begun nothing is left. Only a regular file is opened, and no link followed.
func Open(path string, run Identity) (*Record, error) {
	if err := safefile.Mkdir(filepath.Dir(path)); err != nil {
		return nil, unrecorded("make the directory", err)
	}
	file, err := openRegular(path, os.O_RDWR|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return nil, err
	}
	r := newRecord(idOf(path), file)
	if err := r.read(run); err != nil {
		file.Close()
		return nil, err
	}
	return r, nil
}

// StatusOf is how the run of that record ended; "" if it did not, or there is no
// record. Errors are ErrUnrecorded, and of the kind KindPlanRecordDamaged.
func StatusOf(path string) (string, error) {
	r, err := Look(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return r.Status, nil
}

// Look reads a record as it is now, also while its run goes on; only Open's can be written. Errors
// are os.ErrNotExist, ErrUnrecorded, and of the kind KindPlanRecordDamaged.
func Look(path string) (*Record, error) {
	file, err := openRegular(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	r := newRecord(idOf(path), file)
	_, _, _, err = r.replay(context.Background())
	return r, err
}

// openRegular opens a regular file, and waits for nothing.
func openRegular(path string, flags int) (*os.File, error) {
	file, err := safefile.Open(path, flags)
	if errors.Is(err, safefile.ErrNotRegular) {
		return nil, damaged("it is no regular file")
	}
	if err != nil {
		return nil, unrecorded("open the record", err)
	}
	return file, nil
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

func (r *Record) read(run Identity) error {
	found, whole, torn, err := r.replay(context.Background())
	if err != nil {
		return err
	}
	if torn {
		if err := r.file.Truncate(whole); err != nil {
			return unrecorded("cut off the torn end", err)
		}
	}
	if whole == 0 {
		if err := r.append(line{Type: "plan", Version: version, Digest: run.Digest, Plan: run.Plan}); err != nil {
			return errors.Join(err, os.Remove(r.file.Name()))
		}
		r.Plan = run.Plan
		return nil
	}
	r.Resumed = true
	if found != run.Digest && !slices.Contains(run.Earlier, found) {
		return ErrConflict
	}
	if r.Status == "" {
		now := time.Now()
		_ = os.Chtimes(r.file.Name(), now, now) // it is gone on with, so it is none of the oldest
	}
	return nil
}

// replay takes in what the lines say that were written whole, and how many bytes these are,
// and returns the digest of the plan. torn says that something follows them. Once ctx ends it fails with the cause.
func (r *Record) replay(ctx context.Context) (digest string, whole int64, torn bool, err error) {
	info, err := r.file.Stat()
	if err != nil {
		return "", 0, false, unrecorded("look at the record", err)
	}
	if info.Size() > maxRecord {
		return "", 0, false, damaged(fmt.Sprintf("it has more than %d bytes", maxRecord))
	}
	lines := bufio.NewScanner(safefile.Within(ctx, r.file, info.Size()))
	lines.Buffer(nil, maxLine)
	lines.Split(func(data []byte, end bool) (int, []byte, error) {
		if n := bytes.IndexByte(data, '\n') + 1; n > 0 {
			return n, data[:n], nil
		}
		torn = torn || end && len(data) > 0
		return 0, nil, nil
	})
	for n := 1; lines.Scan(); n++ {
		text := lines.Bytes()
		whole += int64(len(text))
		said, err := r.take(n, text[:len(text)-1])
		if err != nil {
			return "", 0, false, err
		}
		if n == 1 {
			digest = said
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return "", 0, false, damaged(fmt.Sprintf("a line has more than %d bytes", maxLine))
	}
	if lines.Err() != nil && ctx.Err() != nil {
		return "", 0, false, context.Cause(ctx)
	}
	if err := lines.Err(); err != nil {
		return "", 0, false, unrecorded("read the record", err)
	}
	return digest, whole, torn, nil
}

// take takes in what line n says, counted from 1; digest is that of the first.
func (r *Record) take(n int, text []byte) (digest string, err error) {
	var l line
	if err := strict.Unmarshal(text, &l, strict.IgnoreUnknown); err != nil {
		return "", damaged(fmt.Sprintf("line %d: %v", n, err))
	}
	switch {
	case (n == 1) != (l.Type == "plan"):
		return "", damaged(fmt.Sprintf("line %d is of type %.40q; plan begins it, once", n, l.Type))
	case l.Type == "plan" && l.Version > version:
		return "", damaged(fmt.Sprintf("it is of version %d, and this server knows version %d", l.Version, version))
	}
	if problem := r.impossible(l); problem != "" {
		return "", damaged(fmt.Sprintf("line %d: %s", n, problem))
	}
	switch {
	case l.Type == "plan":
		digest, r.Plan = l.Digest, l.Plan
		for _, t := range protocol.Value(l.Plan).Tasks {
			r.tasks[t.ID] = true
		}
	case l.Type == "task_start" && l.Start != nil:
		l.Start.Resumed = true
		r.Begun[l.Start.TaskID] = *l.Start
		r.attempts[l.Start.TaskID] = l.Start.Attempt
	case l.Type == "task_end" && l.End != nil:
		r.Done[l.End.TaskID] = *l.End
		delete(r.Begun, l.End.TaskID)
	case l.Type == "plan_end":
		r.Status = l.Status
	case l.Type == "plan_again":
		r.forget(l.Tasks)
	default:
		return "", damaged(fmt.Sprintf("line %d: nobody knows what %.40q without more is", n, l.Type))
	}
	return digest, nil
}

// Again are the tasks of a run that has ended which another try would do again:
// where a fault ended one that was not of its own work, that one and those that
// were skipped for it; with all, whatever did not succeed. stop says that a
// failure ends the run: then none is tried beside one that failed for good.
func (r *Record) Again(p api.Plan, stop, all bool) []string {
	if r.Status != api.PlanFailed && !all {
		return nil // somebody wanted its end
	}
	var tasks []string
	passing := false
	for _, t := range p.Tasks {
		switch result := r.Done[t.ID]; {
		case result.Status == api.TaskSuccess:
		case all || result.Resumable:
			passing = true
			tasks = append(tasks, t.ID)
		case result.Status == api.TaskSkipped:
			tasks = append(tasks, t.ID)
		case stop:
			return nil
		}
	}
	if !passing {
		return nil
	}
	return tasks
}

// Reopen records that the run goes on, with these tasks again.
func (r *Record) Reopen(tasks []string) error {
	if err := r.append(line{Type: "plan_again", Tasks: tasks}); err != nil {
		return err
	}
	r.forget(tasks)
	return nil
}

func (r *Record) forget(tasks []string) {
	r.Status = ""
	for _, id := range tasks {
		delete(r.Done, id)
	}
}

func (r *Record) start(s Start) error {
	r.Begun[s.TaskID] = s
	r.attempts[s.TaskID] = s.Attempt
	return r.append(line{Type: "task_start", Start: &s})
}

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
		return unrecorded("write it", err)
	}
	return nil
}

// Prune removes the records beyond Kept: the oldest of those whose run has ended,
// and only if they are not enough, the oldest that could be gone on with. Those of
// runs that are under way stay, as busy says by their ids, and so does what cannot
// be removed. It returns the ids of the removed ones.
func Prune(dir string, busy func(id string) bool) (removed []string) {
	type record struct {
		path string
		at   time.Time
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	remove := func(path string) {
		if os.Remove(path) == nil {
			removed = append(removed, idOf(path))
		}
	}
	var records []record
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() && strings.HasSuffix(entry.Name(), suffix) {
			records = append(records, record{filepath.Join(dir, entry.Name()), info.ModTime()})
		}
	}
	slices.SortFunc(records, func(a, b record) int { return a.at.Compare(b.at) })
	more := len(records) - Kept
	var left []record
	for _, old := range records {
		if more <= 0 {
			return removed
		}
		if busy(idOf(old.path)) {
			continue
		}
		if !ended(old.path) {
			left = append(left, old)
			continue
		}
		remove(old.path)
		more--
	}
	for _, old := range left[:max(0, min(more, len(left)))] {
		remove(old.path)
	}
	return removed
}

// ended reports whether the last line of a record says that its run has ended.
func ended(path string) bool {
	file, err := openRegular(path, os.O_RDONLY)
	if err != nil {
		return false
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return false
	}
	tail := make([]byte, min(info.Size(), 1<<10)) // a last line of plan_end fits
	if _, err := file.ReadAt(tail, info.Size()-int64(len(tail))); err != nil {
		return false
	}
	tail, whole := bytes.CutSuffix(tail, []byte("\n"))
	var l line
	err = strict.Unmarshal(tail[bytes.LastIndexByte(tail, '\n')+1:], &l, strict.IgnoreUnknown)
	return whole && err == nil && l.Type == "plan_end"
}
