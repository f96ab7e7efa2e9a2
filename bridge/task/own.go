package task

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/strict"
	"nexus.internal/supervisor"
)

const (
	// Kept is how many results are kept of tasks that had an agent of their own.
	Kept = 256
	// maxRecord bounds a result that is read, in bytes.
	maxRecord = 64 << 20

	recordSuffix = ".json"
	// version is that of the records that are written, and the only one that is read.
	version = 1
)

// run is a task that has an agent of its own.
type run struct {
	digest string
	kept   bool          // it had ended before it was asked for
	done   chan struct{} // closed at last; what follows is valid then
	ended  record
	err    error
}

// record is what is kept of such a task. One that ended with an error has none: the same request
// does it again.
type record struct {
	Version   int            `json:"version"`
	Digest    string         `json:"digest"` // of what was asked for
	Cancelled bool           `json:"cancelled,omitzero" wire:"default"`
	Result    jsontext.Value `json:"result"`
}

// OwnTask is a task that has an agent of its own.
type OwnTask struct {
	ID     string
	Method string // that asks for it
	Params any    // without the id; the same id with others is a conflict
}

// Starter makes the agent of a task, which is to have that name.
type Starter interface {
	Start(ctx context.Context, name string) (*supervisor.Agent, error)
}

// Ended is how a task ended that has an agent of its own.
type Ended[R any] struct {
	Result    R
	Cancelled bool
	Replayed  bool // it had ended before
}

// Own has a task done by an agent of its own, which is made for it and destroyed after it, so that
// tasks run side by side and know nothing of each other. do reports whether the task was cancelled.
// It goes on without its client. A second request of the same id joins it, or gets its result, for
// the last Kept of them. The errors are those of the start and of do, REQUEST_ID_CONFLICT, and that
// of ctx.
func Own[R any](
	ctx context.Context, r *Runner, c *rpc.Call, t OwnTask, by Starter, do func(context.Context, *supervisor.Agent) (R, bool, error),
) (e Ended[R], err error) {
	digest, err := digestOf(t)
	if err != nil {
		return e, err
	}
	one, begins, err := r.join(t.ID, digest)
	if err != nil {
		return e, err
	}
	e.Replayed = one.kept
	if begins {
		lives, end := r.begin(context.WithoutCancel(ctx), t.ID, nil)
		go func() { // joined by the drain, as it is in o.Requests
			defer r.o.Requests.Leave()
			var result R
			one.ended = record{Version: version, Digest: digest}
			one.err = r.withOwn(lives, c, by, func(a *supervisor.Agent) (err error) {
				result, one.ended.Cancelled, err = do(lives, a)
				return err
			})
			if one.err == nil {
				one.err = r.keep(t.ID, &one.ended, result)
			}
			r.leave(t.ID, one)
			end(one.err == nil && one.ended.Cancelled)
		}()
	}
	if c.Request.IsNotification() {
		return e, nil
	}
	select {
	case <-one.done:
	case <-ctx.Done():
		return e, ctx.Err()
	}
	if one.err != nil {
		return e, &rpc.OwnTaskError{Err: one.err}
	}
	e.Cancelled = one.ended.Cancelled
	return e, json.Unmarshal(one.ended.Result, &e.Result)
}

func digestOf(t OwnTask) (string, error) {
	text, err := json.Marshal(t, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("encode a task: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// join finds the task of that id, which goes on or has ended, or enters a new one, which the
// caller begins.
func (r *Runner) join(id, digest string) (one *run, begins bool, err error) {
	defer r.locks.Lock(id)()
	r.mu.Lock()
	one = r.runs[id]
	r.mu.Unlock()
	if one == nil {
		kept, err := r.read(id)
		switch {
		case err == nil:
			one = &run{digest: kept.Digest, done: make(chan struct{}), ended: kept, kept: true}
			close(one.done)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, false, err
		}
	}
	switch {
	case one == nil:
	case one.digest != digest:
		return nil, false, supervisor.ErrTurnConflict
	default:
		return one, false, nil
	}
	if !r.o.Requests.Enter() {
		return nil, false, rpc.ErrNotAccepted
	}
	one = &run{digest: digest, done: make(chan struct{})}
	r.mu.Lock()
	r.runs[id] = one
	r.mu.Unlock()
	return one, true, nil
}

func (r *Runner) leave(id string, one *run) {
	r.mu.Lock()
	delete(r.runs, id)
	r.mu.Unlock()
	close(one.done)
}

// withOwn has an agent that is made for it, and destroyed then.
func (r *Runner) withOwn(ctx context.Context, c *rpc.Call, by Starter, do func(*supervisor.Agent) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	a, err := by.Start(context.WithoutCancel(ctx), newName())
	if err != nil {
		return err
	}
	defer func() {
		if err := r.o.Agents.DestroyFor(context.WithoutCancel(ctx), c, a.ID()); err != nil {
			r.o.Log.Error("destroy the agent of a task", zap.String("agent", a.ID()), zap.Error(err))
		}
	}()
	return do(a)
}

// newName is a name for an agent of a task, which nobody can know before.
func newName() string {
	var secret [8]byte
	_, _ = rand.Read(secret[:]) // never fails
	return fmt.Sprintf(api.TaskPrefix+"%x", secret)
}

func (r *Runner) path(id string) string {
	sum := sha256.Sum256([]byte(id))
	return filepath.Join(r.o.Dir, hex.EncodeToString(sum[:16])+recordSuffix)
}

// read reads what is kept of a task; fs.ErrNotExist if nothing is.
func (r *Runner) read(id string) (record, error) {
	var kept record
	path := r.path(id)
	text, err := safefile.Read(path, maxRecord)
	if err == nil {
		err = strict.Unmarshal(text, &kept, strict.IgnoreUnknown)
	}
	if err == nil && kept.Version != version {
		err = fmt.Errorf("it is of version %d, and this server knows version %d", kept.Version, version)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = &api.Error{
			Kind: api.KindPlanRecordDamaged, Details: fmt.Sprintf("the result of the task in %s cannot be read: %v", filepath.Base(path), err), Err: err,
			Suggestions: []string{"Use a new request_id, or remove the file from plans/tasks in the server's home."},
		}
	}
	return kept, err
}

// keep keeps the result of a task, and of all no more than Kept.
func (r *Runner) keep(id string, ended *record, result any) error {
	var err error
	if ended.Result, err = json.Marshal(result, jsontext.AllowInvalidUTF8(true)); err != nil {
		return fmt.Errorf("encode the result of a task: %w", err)
	}
	text, err := json.Marshal(ended)
	if err == nil {
		err = r.makeDir()
	}
	if err == nil {
		err = safefile.Replace(r.path(id), append(text, '\n'), false)
	}
	if err != nil {
		return &api.Error{
			Kind: api.KindNotRecorded, Details: "the task has ended, and its result cannot be kept", Err: err,
			Suggestions: []string{"Make room for the server's home, and send it again with the same request_id: the task is done again."},
		}
	}
	r.prune()
	return nil
}

// makeDir makes the directory of results.
func (r *Runner) makeDir() error {
	if err := safefile.Mkdir(filepath.Dir(r.o.Dir)); err != nil {
		return err
	}
	return safefile.Mkdir(r.o.Dir)
}

// prune removes the oldest results beyond Kept. What cannot be removed stays.
func (r *Runner) prune() {
	r.pruning.Lock()
	defer r.pruning.Unlock()
	entries, err := safefile.ReadDir(r.o.Dir)
	if err != nil || len(entries) <= Kept {
		return
	}
	var files []fs.FileInfo
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() && strings.HasSuffix(entry.Name(), recordSuffix) {
			files = append(files, info)
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, old := range files[:max(0, len(files)-Kept)] {
		_ = os.Remove(filepath.Join(r.o.Dir, old.Name()))
	}
}

// wasCancelled reports whether a task that had an agent of its own ended as cancelled.
func (r *Runner) wasCancelled(id string) (bool, error) {
	kept, err := r.read(id)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return kept.Cancelled, err
}
