package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
)

// The reaper is our own executable with this one argument. It reads an order
// from descriptor 3, whose end tells it to end, and writes reports to
// descriptor 4: one when the program has started, or why not, and one when it
// has exited. Each is one line of JSON.
const (
	reaperArg = "__run"
	orderFD   = 3
	reportFD  = 4
	// spawnerArg is the argument of our executable where it starts reapers in a network of its
	// own: see Loopback.
	spawnerArg = "__spawn"
	// launchArg is the argument of our executable where it starts a spawner with a user namespace
	// of its own, as whoever started it may not.
	launchArg = "__launch"
	// enterArg is the argument of our executable where it confines itself and
	// then becomes the program. It reads the order from descriptor 3 and writes to
	// descriptor 4 one report before it does that, and one if it cannot.
	enterArg = "__enter"
)

// startRequest is what the reaper is to run.
type startRequest struct {
	Argv  []string
	Env   []string
	Temp  string // to be removed at the end
	Rules Rules
	View  view   // the first to try; the one to enter
	Had   bool   // an earlier program had it: no other will do
	Path  string // of the program, for enterArg
	// Outside is the name of a network. The program has one of its own, and does not start in this
	// one; "" is a program without a network of its own.
	Outside string
	// Terminal says that the program has one: the reaper passes what goes in and out.
	Terminal bool

	terminal *terminal // of the reaper; nil for none
}

// startReport is what the reaper has to say.
type startReport struct {
	Error      string // why the program was not started
	Refused    bool   // because the kernel cannot confine it
	Unconfined string // why a program that was started is not confined
	NoView     string // why a program that is to be confined cannot have that view
	Errno      int    // the system's error of NoView
	View       view   // the first to be tried for the next program
	Had        bool   // the program has that view
	Notes      []string
	// Listener and Terminal are descriptors that the reaper is to take before the program
	// starts: of its filter, and the master's side of its terminal. 0 is none.
	Listener int
	Terminal int
	Exited   bool
	Code     int // -1 if a signal ended it
	Signal   int
}

func send(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// receive reads the next line into v. io.EOF is the end.
func receive(r *bufio.Reader, v any) error {
	line, err := r.ReadBytes('\n')
	if err != nil {
		if errors.Is(err, io.EOF) {
			return io.EOF
		}
		return err
	}
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("read what the reaper says: %w", err)
	}
	return nil
}
