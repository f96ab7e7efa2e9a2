package terminal

import (
	"errors"
	"strings"
	"sync"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"nexus.internal/bridge/client"
)

// idle is a model that begins with nothing.
type idle struct{ *model }

func (idle) Init() tea.Cmd { return nil }

// A panic beside what bubbletea runs leaves the terminal as it was: each goroutine of a chat that has no
// client panics.
func TestPanicOfTheChat(t *testing.T) {
	for name, breaks := range map[string]func(c *chat){
		"approvals": func(c *chat) { c.approvals() },
		"usage":     func(c *chat) { c.usage("a") },
		"send":      func(c *chat) { c.send(message{agent: "a", id: "1", text: "hello", whenBusy: "queue"}) },
		"follow":    func(c *chat) { c.attach("a", position{}) },
	} {
		t.Run(name, func(t *testing.T) {
			keys, screen, err := pty.Open()
			if err != nil {
				t.Fatal(err)
			}
			if err := pty.Setsize(keys, &pty.Winsize{Rows: 20, Cols: 80}); err != nil {
				t.Fatal(err)
			}
			state := func() unix.Termios {
				state, err := unix.IoctlGetTermios(int(screen.Fd()), unix.TCGETS)
				if err != nil {
					t.Fatal(err)
				}
				return *state
			}
			before := state()
			var raw strings.Builder
			var reading sync.WaitGroup
			drawn := make(chan struct{})
			reading.Go(func() { // ends with the terminal
				once, buffer := sync.OnceFunc(func() { close(drawn) }), make([]byte, 4096)
				defer once()
				for {
					n, err := keys.Read(buffer)
					raw.Write(buffer[:n])
					if strings.Contains(raw.String(), "\x1b[?2004h") {
						once()
					}
					if err != nil {
						return
					}
				}
			})
			k := NewKeyboard(screen)
			var program *Program
			talk := newTalk(t.Context(), new(client.Client), Options{}, func(msg any) { program.Send(msg) })
			program = NewProgram(idle{newModel(talk, openHistory(t.TempDir()), k)}, k, screen, []string{"TERM=xterm-256color"})
			ended := make(chan error, 1)
			go func() { ended <- program.Show(t.Context()) }()
			<-drawn
			if state() == before {
				t.Error("the terminal was never taken")
			}
			breaks(talk.chat)
			if err := <-ended; !errors.Is(err, tea.ErrProgramPanic) {
				t.Errorf("it ended with %v", err)
			}
			talk.chat.close()
			if after := state(); after != before {
				t.Errorf("the terminal was %+v and is %+v", before, after)
			}
			screen.Close() // what was written is still there to be read
			reading.Wait()
			keys.Close()
			if text := raw.String(); strings.LastIndex(text, "\x1b[?25l") > strings.LastIndex(text, "\x1b[?25h") {
				t.Error("the cursor is hidden")
			}
		})
	}
}
