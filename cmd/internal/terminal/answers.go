package terminal

import (
	"bytes"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"
)

// answerPatience is how long a terminal may take to say what it can, as over a slow connection. Some do not answer: then who suspends the program so soon after its start waits.
const answerPatience = 2 * time.Second

// answers wait for what a terminal says of itself. bubbletea asks for that at the begin, and what comes once the terminal is somebody else's, that one takes for
// typed.
type answers struct {
	mu    sync.Mutex    // guards what follows
	asked time.Time     // zero before
	came  chan struct{} // closed with the last answer
	over  bool          // it is
	tail  []byte        // of what was read, in which an answer may begin
}

// lastAnswer is what the answer to the last question begins with.
var lastAnswer = []byte("\x1b[?2027;")

// wrote looks for the question in what was written.
func (a *answers) wrote(b []byte) {
	if !bytes.Contains(b, []byte(ansi.RequestModeUnicodeCore)) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = time.Now()
}

// read looks for the answer in what was read.
func (a *answers) read(b []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return
	}
	a.tail = append(a.tail, b...)
	if a.over = bytes.Contains(a.tail, lastAnswer); a.over {
		close(a.came)
		a.tail = nil
		return
	}
	a.tail = a.tail[max(0, len(a.tail)-len(lastAnswer)):]
}

// wait waits for the answer, if there was a question lately. Something else reads meanwhile.
func (a *answers) wait() {
	a.mu.Lock()
	left := answerPatience - time.Since(a.asked)
	a.mu.Unlock()
	if left <= 0 {
		return
	}
	late := time.NewTimer(left)
	defer late.Stop()
	select {
	case <-a.came:
	case <-late.C:
	}
}
