package proc

import (
	"bytes"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"nexus.internal/protocol/textcut"
)

// Bounds of what is kept of stderr (SPEC §7).
const (
	maxTail  = 4 << 10 // bytes for Exit.Stderr
	maxLine  = 8 << 10 // bytes of one line; the rest of it is passed over
	maxLines = 100     // logged in a second; the others are only counted
)

// keys are what must not reach a log: our keys, the vendors', and whatever
// stands in an Authorization header.
var keys = regexp.MustCompile(`nxk_[A-Za-z0-9_\-]+|\bsk-[A-Za-z0-9_\-]{4,}|(?i:\b(?:bearer|basic)\s+[A-Za-z0-9._~+/=\-]{4,})`)

// Redact replaces what looks like a key.
func Redact(line string) string { return keys.ReplaceAllString(line, "[redacted]") }

// pump reads stderr to its end.
func (p *Process) pump() {
	defer close(p.pumped)
	defer p.stderr.Close()
	var room stderrRoom
	for {
		n, err := readInto(p.stderr, &room)
		if n > 0 {
			p.tail.write(room.buf[:n])
		}
		room.Give()
		if err != nil {
			p.tail.flush()
			return
		}
	}
}

// stderrRoom is where what comes on stderr is read into.
type stderrRoom struct{ buf *[2 << 10]byte }

var stderrBuffers = sync.Pool{New: func() any { return new([2 << 10]byte) }}

// Take implements [frame.Room].
func (r *stderrRoom) Take() []byte {
	r.buf = stderrBuffers.Get().(*[2 << 10]byte)
	return r.buf[:]
}

// Give implements [frame.Room].
func (r *stderrRoom) Give() {
	if r.buf != nil {
		stderrBuffers.Put(r.buf)
		r.buf = nil
	}
}

// tail splits stderr into lines, logs them and keeps the last ones.
type tail struct {
	line []byte // the line being read, at most maxLine

	second  time.Time // that logged counts in, its beginning
	logged  int
	dropped int // lines not logged since the last one that was

	mu       sync.Mutex // guards what follows
	log      *zap.Logger
	kept     []byte
	noMemory bool // a line said so
}

func newTail(log *zap.Logger, pid int) *tail {
	if log == nil {
		log = zap.NewNop()
	}
	return &tail{log: log.With(zap.Int("pid", pid))}
}

func (t *tail) write(b []byte) {
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		part := b
		if i >= 0 {
			part = b[:i]
		}
		t.line = append(t.line, part[:min(len(part), maxLine-len(t.line))]...)
		if i < 0 {
			return
		}
		t.flush()
		b = b[i+1:]
	}
}

// flush ends the line being read.
func (t *tail) flush() {
	line := Redact(strings.ToValidUTF8(string(bytes.TrimSuffix(t.line, []byte{'\r'})), "\uFFFD"))
	t.line = t.line[:0]
	if strings.TrimSpace(line) == "" {
		return
	}
	t.mu.Lock()
	t.noMemory = t.noMemory || outOfMemory(line)
	if len(t.kept) > 0 {
		t.kept = append(t.kept, '\n')
	}
	t.kept = append(t.kept, line...)
	t.kept = append(t.kept[:0], textcut.Tail(t.kept, maxTail)...)
	t.mu.Unlock()

	if now := time.Now(); now.Sub(t.second) >= time.Second {
		t.second, t.logged = now, 0
	}
	if t.logged++; t.logged > maxLines {
		t.dropped++
		return
	}
	level, field := said(line)
	fields := []zap.Field{field}
	if t.dropped > 0 {
		fields = append(fields, zap.Int("dropped_before", t.dropped))
		t.dropped = 0
	}
	t.logger().Log(level, "child stderr", fields...)
}

// said is what a line is logged as: a line of a log, which is a JSON object with a
// level and a message, keeps its level and its members; any other is text.
func said(line string) (zapcore.Level, zap.Field) {
	if strings.HasPrefix(line, "{") && gjson.Valid(line) {
		members := gjson.GetMany(line, "level", "message")
		for _, level := range []zapcore.Level{zapcore.DebugLevel, zapcore.InfoLevel, zapcore.WarnLevel, zapcore.ErrorLevel} {
			if members[0].Str == level.String() && members[1].Type == gjson.String {
				return level, zap.Reflect("child", jsontext.Value(line))
			}
		}
	}
	return zapcore.InfoLevel, zap.String("line", line)
}

// saidNoMemory reports whether any line told of a lack of memory.
func (t *tail) saidNoMemory() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.noMemory
}

// forget drops the lines that are whole.
func (t *tail) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept, t.noMemory = t.kept[:0], false
}

// reassign drops the lines that are whole, and gives those to come to another log.
func (t *tail) reassign(log *zap.Logger) {
	t.forget()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log = log
}

func (t *tail) logger() *zap.Logger {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.log
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}
