package shell

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"nexus.internal/child/permission"
	"nexus.internal/child/sandbox"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
)

const (
	// maxKeptOutput is how much of its latest output a job has at hand, in bytes.
	maxKeptOutput = 64 << 10
	// maxJobFile is how much of it the file keeps, in bytes.
	maxJobFile = 16 << 20
	// maxJobOutput is how much a job may put out in all, in bytes: it would keep us busy for ever.
	maxJobOutput = 256 << 20
	// maxShown is how much of it one answer shows, in bytes.
	maxShown = 32 << 10
	// maxShownCommand bounds a command in a list, in bytes.
	maxShownCommand = 4 << 10
	// inputPatience is how long a job may take to read what it is given.
	inputPatience = 5 * time.Second
)

// job is one command in the background. It is safe for concurrent use.
type job struct {
	id, command string
	permit      permission.Permit
	options     Options
	began       time.Time
	cancel      context.CancelFunc // kills it
	ran         chan struct{}      // closed when the start has succeeded or failed
	process     *sandbox.Process   // valid then; nil if it failed

	mu      sync.Mutex    // guards all below
	changed chan struct{} // closed, and another in its place, when there is output or the end
	kept    []byte        // the latest output, at most maxKeptOutput
	total   int64         // bytes of all output
	shown   int64         // how far the model has seen it
	whole   whole
	ended   time.Time // zero while it runs
	how     string    // it ended
	failed  bool      // by itself
	why     string    // it was ended by us; "" if it was not
	told    bool      // the model knows of the end
}

// Write takes output.
func (j *job) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if over := len(j.kept) + len(b) - maxKeptOutput; over > 0 {
		if j.whole.file == nil {
			j.whole.save(j.kept, 0)
		}
		j.whole.save(b, j.total)
		j.kept = slices.Delete(j.kept, 0, min(over, len(j.kept)))
		j.kept = append(j.kept, b[max(0, len(b)-maxKeptOutput):]...)
	} else {
		if j.whole.file != nil {
			j.whole.save(b, j.total)
		}
		j.kept = append(j.kept, b...)
	}
	if j.total += int64(len(b)); j.total > maxJobOutput && j.why == "" {
		j.why = fmt.Sprintf("stopped, because it has put out more than %d MiB", maxJobOutput>>20)
		j.cancel()
	}
	j.wake()
	return len(b), nil
}

// wake tells those that wait. The caller holds mu.
func (j *job) wake() {
	close(j.changed)
	j.changed = make(chan struct{})
}

// follow sees the job, which runs that command, to its end.
func (j *job) follow(c command) {
	_, failed := io.Copy(c.shown(j), j.process.Stdout())
	exit := j.process.Wait()
	j.process.Close()
	j.cancel()
	how := strings.Trim(status(exit, time.Since(j.began)), "[]")
	j.mu.Lock()
	defer j.mu.Unlock()
	if failed != nil {
		how += fmt.Sprintf(" (the rest of its output was lost: %v)", failed)
	}
	j.failed = exit.Code != 0 && j.why == ""
	j.end(how)
}

// end is the end of the job. The caller holds mu.
func (j *job) end(how string) {
	if j.why != "" {
		how = j.why
	}
	j.how, j.ended = how, time.Now()
	j.whole.close()
	j.wake()
}

// stop ends the job and says why. It does not wait for that.
func (j *job) stop(why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended.IsZero() && j.why == "" {
		j.why = why
	}
	j.cancel()
}

// doomed says why the job is to end or has ended; "" while it runs.
func (j *job) doomed() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended.IsZero() {
		return j.why
	}
	return j.how
}

// running reports whether the job has not ended.
func (j *job) running() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ended.IsZero()
}

// state is how the job is. The caller holds mu.
func (j *job) state() string {
	if j.ended.IsZero() {
		return fmt.Sprintf("running for %v", time.Since(j.began).Round(time.Second))
	}
	return "ended: " + j.how
}

// data is how the job is, for a parent.
func (j *job) data() protocol.Job {
	j.mu.Lock()
	defer j.mu.Unlock()
	d := protocol.Job{
		JobID: j.id, Command: textcut.Clip(j.command, maxShownCommand), Running: j.ended.IsZero(), StartedAt: j.began.UTC(), OutputBytes: uint64(j.total),
	}
	if !d.Running {
		d.EndedAt, d.Result = new(j.ended.UTC()), j.how
	}
	return d
}

// look is the output from an offset on, as far as one answer shows it, and how the job is.
// Below 0 the offset is where the last look ended.
func (j *job) look(since int64) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if since < 0 {
		since = j.shown
	}
	var b strings.Builder
	since = min(since, j.total)
	if first := j.total - int64(len(j.kept)); since < first {
		fmt.Fprintf(&b, "[bytes %d to %d are not at hand: %s]\n", since, first, j.whole.where(j.total))
		since = first
	}
	text := j.kept[len(j.kept)-int(j.total-since):]
	if len(text) > maxShown || j.ended.IsZero() { // what is shown later begins with a whole character
		text = text[:min(len(text), maxShown)]
		text = text[:len(text)-textcut.Partial(text)]
	}
	next := since + int64(len(text))
	if binary(text) {
		fmt.Fprintf(&b, "[%d bytes of binary output, not shown: %s]\n", len(text), j.whole.where(j.total))
	} else {
		b.WriteString(line(printable(text)))
	}
	j.shown = max(j.shown, next)
	fmt.Fprintf(&b, "[job %s %s", j.id, j.state())
	if next < j.total {
		fmt.Fprintf(&b, "; %d more bytes of output, since %d", j.total-next, next)
	}
	b.WriteString("]")
	if !j.ended.IsZero() {
		j.told = true
	}
	if j.failed && next == j.total && j.options.Hints != nil {
		b.WriteString(j.options.Hints.Hint(printable(j.kept), j.options.Rules))
	}
	return b.String()
}

// quiet is a channel that is closed at the next output or end; nil if there is what to show
// from an offset on already, or with atEnd only if the job has ended.
func (j *job) quiet(since int64, atEnd bool) <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	if since < 0 {
		since = j.shown
	}
	if !j.ended.IsZero() || !atEnd && j.total > since {
		return nil
	}
	return j.changed
}

// notice tells of the job's end, once, if nobody knows of it; else "".
func (j *job) notice() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.told || j.ended.IsZero() {
		return ""
	}
	j.told = true
	unseen := ""
	if j.shown < j.total {
		unseen = fmt.Sprintf("; job_output shows %d more bytes of its output", j.total-j.shown)
	}
	return fmt.Sprintf("[job %s %s%s]", j.id, j.state(), unseen)
}

// summary is a line that describes the job.
func (j *job) summary() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	command, _, more := strings.Cut(textcut.Head(strings.TrimSpace(j.command), 200), "\n")
	if more || len(command) < len(strings.TrimSpace(j.command)) {
		command += " …"
	}
	if !j.ended.IsZero() {
		j.told = true
	}
	return fmt.Sprintf("%s: %s, %d bytes of output: %s\n", j.id, j.state(), j.total, command)
}
