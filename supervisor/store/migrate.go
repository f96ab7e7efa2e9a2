package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/strict"
	"nexus.internal/supervisor/store/internal/segmentlog"
)

// This file reads what earlier versions kept of an agent: three parts beside the session,
// which become one log when the agent's records are opened or its account is set.
const (
	earlierOutcomes = ".outcomes" // JSON lines of requests
	earlierEvents   = ".events"   // a directory of segments, each named for its first number
	earlierAccount  = ".usage"    // the account

	maxOutcomesFile   = 64 << 20 // bytes, as the others
	maxAccountFile    = 64 << 10
	earlierHeaderSize = 64
	earlierReserve    = 1 << 20 // how far ahead numbers were noted
)

var earlierParts = []string{earlierOutcomes, earlierEvents, earlierAccount}

// migrate makes the log of an agent that has none of what an earlier version kept, and removes
// that. A process may be killed within it: until the log has its name the parts are as they
// were, and then they count for nothing. What cannot be read of the account is a *DamagedError.
func (l *Local) migrate(agent string) error {
	if there(l.path(agent)) {
		return l.remove(agent, earlierParts...)
	}
	if !slices.ContainsFunc(earlierParts, func(part string) bool { return there(l.o.Path(agent, part)) }) {
		return nil
	}
	a, err := l.earlierAccount(agent)
	if err != nil {
		return err
	}
	past := segmentlog.Past{}
	if a != nil {
		if past.Account, err = json.Marshal(a); err != nil {
			return err
		}
	}
	q, left, err := l.earlierRequests(agent)
	if err != nil {
		return err
	}
	log := l.o.Log.With(zap.String("agent", agent))
	outcomes := l.o.Path(agent, earlierOutcomes)
	if left != nil {
		log.Warn("outcomes are damaged", zap.String("path", outcomes), zap.String("copy", outcomes+aside))
		if err := safefile.Replace(outcomes+aside, left, false); err != nil {
			return err
		}
	}
	past.Lines, past.Rooms = q.snapshot()
	if past.Events, past.Last, err = l.earlierSegments(agent); err != nil {
		return err
	}
	past.Events = past.Events[max(0, len(past.Events)-segmentlog.DefaultSegments):]
	err = segmentlog.Make(l.path(agent), past, true)
	if err == nil {
		err = errors.Join(setAside(outcomes, false, log), setAside(l.o.Path(agent, earlierEvents), true, log))
	}
	if err != nil {
		return fmt.Errorf("move what is kept of agent %s to %s: %w", agent, l.path(agent), err)
	}
	return l.remove(agent, earlierParts...)
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// earlierAccount returns an account of the earlier layout; nil if there is none.
func (l *Local) earlierAccount(agent string) (*Account, error) {
	path := l.o.Path(agent, earlierAccount)
	data, err := safefile.Read(path, maxAccountFile)
	if err == nil {
		return decodeAccount(agent, path, data)
	}
	return nil, unreadable(agent, path, err)
}

// earlierRequests returns the requests of the earlier layout, read up to a damaged line. left is the
// whole file if more is damaged than the line that the end of a server tore.
func (l *Local) earlierRequests(agent string) (q *requests, left []byte, err error) {
	data, err := safefile.Read(l.o.Path(agent, earlierOutcomes), maxOutcomesFile)
	_, tooLarge := errors.AsType[*safefile.TooLargeError](err)
	if tooLarge || errors.Is(err, fs.ErrNotExist) || errors.Is(err, safefile.ErrNotRegular) {
		return &requests{}, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read requests: %w", err)
	}
	q, good, err := parseEarlier(data)
	if bytes.IndexByte(data[good:], '\n') >= 0 {
		left = data
	}
	return q, left, err
}

// parseEarlier reads a file of requests, whose sound part is data[:good]. The outcome of one
// names the request's id. Lines that begin with a space say nothing.
func parseEarlier(data []byte) (q *requests, good int, err error) {
	q = &requests{all: map[uint64]*request{}}
	open := map[string]*request{}
	for good < len(data) {
		line, _, whole := bytes.Cut(data[good:], []byte{'\n'})
		blank := good > 0 && bytes.HasPrefix(line, []byte(" "))
		if !whole || !blank && strict.Valid(line) != nil {
			break
		}
		of := gjson.GetBytes(line, "request_id").Str
		switch kind := gjson.GetBytes(line, "type").Str; {
		case blank:
		case good == 0 && kind == "outcomes":
			if version := gjson.GetBytes(line, "version").Uint(); version > 1 {
				return q, 0, fmt.Errorf("read requests: %w", &segmentlog.VersionError{Got: uint32(version)})
			}
		case good == 0:
			return q, 0, nil
		case kind == "accepted" && open[of] == nil:
			if open[of] = q.accept(q.last+1, of, gjson.GetBytes(line, "sha256").Str); open[of] == nil {
				return q, good, nil
			}
		case kind == "ended" && open[of] != nil:
			e := &ended{}
			if json.Unmarshal(line, e) != nil || e.Outcome == "" {
				return q, good, nil
			}
			e.Number, e.Of = q.last+1, open[of].number
			q.end(e)
			delete(open, of)
		}
		good += len(line) + 1
	}
	return q, good, nil
}

// earlierSegments returns the segments of the earlier layout, oldest first, and a number that no
// event has beyond.
func (l *Local) earlierSegments(agent string) (all []segmentlog.Segment, last uint64, err error) {
	dir := l.o.Path(agent, earlierEvents)
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
		return nil, 0, nil //nolint:nilerr // whoever is in its place has no events
	}
	entries, err := safefile.ReadDir(dir)
	if err != nil {
		return nil, 0, fmt.Errorf("read events: %w", err)
	}
	for _, entry := range entries {
		digits, ok := strings.CutSuffix(entry.Name(), ".jsonl")
		first, failed := strconv.ParseUint(digits, 10, 64)
		if !ok || len(digits) != 20 || failed != nil || !entry.Type().IsRegular() {
			continue
		}
		info, err := entry.Info()
		if err != nil {
			return nil, 0, fmt.Errorf("read events: %w", err)
		}
		s := segmentlog.Segment{Path: filepath.Join(dir, entry.Name()), First: first, From: earlierHeaderSize, Size: info.Size()}
		reserved, ok := earlierReserved(s.Path)
		if !ok { // the machine stopped as it was begun, or it is another's
			last = max(last, first-1+earlierReserve)
			continue
		}
		last = max(reserved, first-1)
		all = append(all, s)
	}
	if len(all) > 0 {
		for e, err := range segmentlog.ReadSegments(all[len(all)-1:], 0) {
			if err != nil {
				return nil, 0, err
			}
			last = max(last, e.Seq)
		}
	}
	return all, last, nil
}

// earlierReserved is the number in the header of a segment: none beyond was given.
func earlierReserved(path string) (reserved uint64, ok bool) {
	file, err := safefile.Open(path, os.O_RDONLY)
	if err != nil {
		return 0, false
	}
	defer file.Close()
	var header struct {
		Version  uint32 `json:"events"`
		Reserved uint64 `json:"reserved"`
	}
	line := make([]byte, earlierHeaderSize)
	_, err = file.ReadAt(line, 0)
	return header.Reserved, err == nil && strict.Unmarshal(line, &header, strict.IgnoreUnknown) == nil && header.Version == 1
}
