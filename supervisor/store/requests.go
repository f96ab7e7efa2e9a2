package store

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"go.uber.org/zap"

	"nexus.internal/protocol/strict"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store/internal/segmentlog"
)

// request is one as the log has it.
type request struct {
	number uint64
	id     string
	digest [sha256.Size]byte
	end    *ended // nil while it has no outcome
}

// requests are those of an agent, by their numbers.
type requests struct {
	all  map[uint64]*request
	last uint64 // number that was given
}

// requestsIn are what the lines of a log say of requests. An outcome may stand before its
// request, in a room. Lines of other kinds are passed over.
func requestsIn(lines [][]byte) *requests {
	q := &requests{all: map[uint64]*request{}}
	var ends []*ended
	for _, line := range lines {
		switch {
		case bytes.HasPrefix(line, []byte(`{"accepted":`)):
			a := accepted{}
			if strict.Unmarshal(line, &a, strict.IgnoreUnknown) == nil {
				q.accept(a.Number, a.RequestID, a.SHA256)
			}
		case bytes.HasPrefix(line, []byte(`{"ended":`)):
			e := &ended{}
			if strict.Unmarshal(line, e, strict.IgnoreUnknown) == nil {
				ends = append(ends, e)
			}
		}
	}
	for _, e := range ends {
		q.end(e)
	}
	return q
}

func (q *requests) accept(number uint64, id, digest string) *request {
	sum, err := hex.DecodeString(digest)
	if err != nil || len(sum) != sha256.Size {
		return nil
	}
	q.last = max(q.last, number)
	q.all[number] = &request{number: number, id: id, digest: [sha256.Size]byte(sum)}
	return q.all[number]
}

// has reports whether one of that id was accepted.
func (q *requests) has(id string) bool {
	for _, r := range q.all {
		if r.id == id {
			return true
		}
	}
	return false
}

// Withdrawn is the outcome of a prompt that was not accepted after all: nothing of it is told.
const Withdrawn supervisor.Outcome = "withdrawn"

func (q *requests) end(e *ended) {
	q.last = max(q.last, e.Number)
	if e.Outcome == Withdrawn {
		delete(q.all, e.Of)
	}
	if r := q.all[e.Of]; r != nil && r.end == nil {
		r.end = e
	}
}

// sorted gives the last ones that have an outcome, in the order they ended, and those that have
// none, in the order they were accepted.
func (q *requests) sorted() (done, waiting []*request) {
	for _, r := range q.all {
		if r.end != nil {
			done = append(done, r)
		} else {
			waiting = append(waiting, r)
		}
	}
	slices.SortFunc(done, func(a, b *request) int {
		return cmp.Or(cmp.Compare(a.end.Number, b.end.Number), cmp.Compare(a.number, b.number))
	})
	slices.SortFunc(waiting, func(a, b *request) int { return cmp.Compare(a.number, b.number) })
	return done[max(0, len(done)-maxOutcomes):], waiting
}

// snapshot is what the next segment begins with: the last outcomes, with as much text
// as is kept, and the prompts that have none.
func (q *requests) snapshot() (lines []byte, rooms int) {
	done, waiting := q.sorted()
	texts := 0
	for _, r := range slices.Backward(done) {
		if texts += len(r.end.Text); texts > maxTexts {
			r.end.Text, r.end.Truncated = "", r.end.Truncated || r.end.Text != ""
		}
	}
	for _, r := range slices.Concat(done, waiting) {
		lines = appendLine(lines, r.accepted())
		if r.end != nil {
			lines = appendLine(lines, *r.end)
		}
	}
	return lines, len(waiting)
}

func (r *request) accepted() accepted {
	return accepted{Number: r.number, RequestID: r.id, SHA256: hex.EncodeToString(r.digest[:])}
}

// snapshot makes the lines that the next segment of a log begins with.
func snapshot(lines [][]byte) ([]byte, int) { return requestsIn(lines).snapshot() }

// records are those of one agent that is open: what the log has of events, and its requests.
type records struct {
	*segmentlog.Log
	local   *Local
	agent   string
	held    *agent // whose log is open
	session string // the file of the agent's session
	log     *zap.Logger

	mu   sync.Mutex        // guards what follows; held while the log is written, for the order of numbers
	past *requests         // until Past
	open map[string]uint64 // numbers of the requests that have no outcome
	last uint64            // number that was given
}

func newRecords(log *segmentlog.Log, lines [][]byte) *records {
	past := requestsIn(lines)
	r := &records{Log: log, past: past, open: map[string]uint64{}, last: past.last}
	for _, q := range past.all {
		if q.end == nil {
			r.open[q.id] = q.number
		}
	}
	return r
}

// Past implements [supervisor.Records].
func (r *records) Past(yield func(id string, digest [sha256.Size]byte, ended *supervisor.Result)) {
	r.mu.Lock()
	past := r.past
	r.past = nil
	r.mu.Unlock()
	if past == nil {
		return
	}
	done, waiting := past.sorted()
	for _, q := range done {
		yield(q.id, q.digest, q.end.result(q.id))
	}
	for _, q := range waiting {
		yield(q.id, q.digest, nil)
	}
}

// Find implements [supervisor.Records].
func (r *records) Find(ids ...string) (map[string]supervisor.Result, error) {
	return findIn(r.session, ids...)
}

// Adopt implements [supervisor.Records].
func (r *records) Adopt(id string, digest [sha256.Size]byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.past == nil || r.past.has(id) {
		return nil
	}
	if err := r.accept(id, digest); err != nil {
		return err
	}
	r.past.accept(r.open[id], id, hex.EncodeToString(digest[:]))
	return nil
}

// Accept implements [supervisor.Records].
func (r *records) Accept(id string, digest [sha256.Size]byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.accept(id, digest)
}

// AcceptUnnamed implements [supervisor.Records].
func (r *records) AcceptUnnamed(id string, digest [sha256.Size]byte) error {
	return r.Accept(id, digest)
}

// accept records a prompt. mu is held.
func (r *records) accept(id string, digest [sha256.Size]byte) error {
	if _, known := r.open[id]; known {
		return nil
	}
	q := request{number: r.last + 1, id: id, digest: digest}
	if err := r.Write(appendLine(nil, q.accepted()), len(r.open)+1); err != nil {
		return fmt.Errorf("record the request: %w", err)
	}
	r.last = q.number
	r.open[id] = q.number
	return nil
}

// Settle implements [supervisor.Records]: the system has all.
func (r *records) Settle() error { return nil }

// End implements [supervisor.Records]. Where the disk takes no more the outcome is written in
// a room, without its text. One that cannot be written there either is logged and written
// later. After Close it is not recorded.
func (r *records) End(result supervisor.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of, known := r.open[result.TurnID]
	if !known {
		return
	}
	r.last++
	e := endedOf(r.last, of, result)
	request := zap.String("request_id", result.TurnID)
	if err := r.Write(appendLine(nil, e), 0); errors.Is(err, fs.ErrClosed) {
		r.log.Warn("outcome not recorded: the log is closed", request)
		return
	} else if err != nil {
		short := e.short()
		if squeezed := r.WriteRoom(short); squeezed != nil {
			r.log.Warn("outcome not recorded yet", request, zap.Errors("errors", []error{err, squeezed}))
			r.Later(short)
		} else {
			r.log.Warn("outcome recorded without its text", request, zap.Error(err))
		}
	}
	delete(r.open, result.TurnID)
}

// Origin implements [supervisor.Records]: there is this machine alone.
func (*records) Origin() supervisor.Origin { return supervisor.Origin{} }

// Close implements [supervisor.Records].
func (r *records) Close() error { return r.end(r.Log.Close) }

// Remove implements [supervisor.Records]. The account is not theirs, and stays.
func (r *records) Remove() error { return r.end(r.Log.Remove) }
