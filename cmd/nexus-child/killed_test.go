package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// TestKilledAtAnyMoment kills children with SIGKILL while they work, at moments
// that are left to chance: 1,000 of them, 100 under -short. Whatever a child had
// acknowledged is there, nothing that is torn is seen, the piece of an answer
// that it was giving is kept and marked, and the next child goes on from there
// (SPEC §4.6).
func TestKilledAtAnyMoment(t *testing.T) {
	kills := 1000
	if testing.Short() {
		kills = 100
	}
	const parallel = 4
	var workers sync.WaitGroup
	victims := make([]*victim, parallel)
	for i := range victims {
		seed := rand.Uint64()
		v := &victim{t: t, dir: t.TempDir(), rng: rand.New(rand.NewPCG(seed, 0))}
		victims[i] = v
		workers.Go(func() {
			for range (kills + parallel - 1) / parallel {
				if err := v.live(); err != nil {
					t.Errorf("seed %d, session %s, child %d: %v", seed, v.name(), v.lives, err)
					return
				}
			}
		})
	}
	workers.Wait()
	var all victim
	for _, v := range victims {
		all.lives += v.lives
		all.acknowledged += v.acknowledged
		all.cutOff += v.cutOff
		all.kept += v.kept
		all.torn += v.torn
	}
	t.Logf("%d children were killed: %d turns acknowledged, %d cut off in their text, of which %d kept some, %d torn records",
		all.lives, all.acknowledged, all.cutOff, all.kept, all.torn)
	if !t.Failed() && (all.acknowledged < kills/4 || all.kept < kills/20) {
		t.Error("the load was none: too few turns were acknowledged or cut off")
	}
}

// livesOfASession is how many children work on one session, one after the other.
const livesOfASession = 25

// victim is a row of children that are killed, with what they have said.
type victim struct {
	t   *testing.T
	dir string
	rng *rand.Rand

	lives                            int // children so far
	acknowledged, cutOff, kept, torn int

	// Of the present session.
	turns    map[string]*told // by id, of all children
	note     int              // the last that was acknowledged
	sentNote int              // the last that was sent
}

// told is what the parent knows of one turn.
type told struct {
	prompt string
	text   string // the deltas, joined
	done   bool   // it was acknowledged
	cut    bool   // it was found to be cut off: text is what was kept
}

func (v *victim) name() string { return fmt.Sprint("s", v.lives/livesOfASession) }

// live starts a child on the session, lets it work until it is killed, and
// checks what is left.
func (v *victim) live() error {
	if v.lives%livesOfASession == 0 {
		v.turns, v.note, v.sentNote = map[string]*told{}, 0, 0
	}
	before, _, err := v.saved()
	if err != nil {
		return err
	}
	cmd := exec.Command(os.Args[0], "--session", v.name(), "--session-dir", v.dir, "--cwd", v.dir, "--system", "brief", "--preset", "yolo")
	cmd.Env = []string{"NEXUS_TEST_BE_CHILD=1", "NEXUS_HOME=" + v.dir, "GORACE=atexit_sleep_ms=0"}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	// One in eight dies as it begins; the others soon after some frame, or where
	// these come slowly, after a quarter of a second of work, or four times as long as it
	// took to begin. So a slow machine sees as much work as a fast one.
	soon := time.Hour
	if v.rng.IntN(8) == 0 {
		soon = time.Duration(v.rng.IntN(30_000)) * time.Microsecond
	}
	began := time.Now()
	killer := time.AfterFunc(soon, func() { _ = cmd.Process.Kill() })
	defer killer.Stop()
	problem := v.work(stdin, bufio.NewReader(stdout), before, began, func(d time.Duration) {
		if soon == time.Hour {
			killer.Reset(d)
		}
	})
	_ = cmd.Process.Kill() // where the work ended in a problem
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		return fmt.Errorf("the child ended by itself: %w; stderr: %s", err, stderr.String())
	}
	v.lives++
	if problem != nil {
		return fmt.Errorf("%w; stderr: %s", problem, stderr.String())
	}
	v.lives--
	err = v.check()
	v.lives++
	return err
}

// work gives a child things to do until it is no more. It says when to kill it.
func (v *victim) work(stdin io.Writer, stdout *bufio.Reader, before *transcript.State, began time.Time, kill func(after time.Duration)) error {
	id, sent := "", 0
	last := 2 + v.rng.IntN(1<<(1+v.rng.IntN(11))) // the frame after which it may be killed
	for frames := 1; ; frames++ {
		line, err := stdout.ReadBytes('\n')
		switch {
		case err != nil:
			return nil // it was killed; half a line was not said
		case frames == 1:
			kill(max(250*time.Millisecond, 4*time.Since(began)))
		case frames == last:
			kill(time.Duration(v.rng.IntN(4_000)) * time.Microsecond)
		}
		frame := gjson.ParseBytes(line)
		typ := frame.Get("type").String()
		switch {
		case typ == "ready":
			_, _ = io.WriteString(stdin, `{"type":"get_messages","id":"before"}`+"\n") // it may be dead already
		case typ == "message_update" && frame.Get("event.type").String() == "text_delta":
			v.turns[id].text += frame.Get("event.delta").String()
			continue
		case typ == "error":
			return fmt.Errorf("got %s", line)
		case typ == "response" && !frame.Get("ok").Bool():
			return fmt.Errorf("got %s", line)
		case typ == "response" && frame.Get("id").String() == "before":
			if err := sameMessages(frame.Get("messages"), before); err != nil {
				return err
			}
		case typ == "response" && frame.Get("command").String() == "update_context":
			v.note = int(frame.Get("id").Int())
			continue
		case typ == "response":
			v.turns[id].done = true
			v.acknowledged++
		default:
			continue
		}
		if typ == "ready" {
			continue
		}
		sent++
		id = fmt.Sprintf("%d-%d", v.lives, sent)
		v.turns[id] = &told{prompt: v.prompt()}
		v.sentNote++
		_, _ = fmt.Fprintf(stdin, `{"type":"update_context","id":"%d","action":"add","context_type":"state","data":{"key":"n","value":%d}}`+"\n"+
			`{"type":"prompt","id":"%s","message":"%s"}`+"\n", v.sentNote, v.sentNote, id, v.turns[id].prompt)
	}
}

func (v *victim) prompt() string {
	switch v.rng.IntN(6) {
	case 0:
		return "write a long essay" // a word every 20 ms
	case 1:
		return "count to 3" // one every 50 ms
	case 2:
		return fmt.Sprintf("flood %d", 1+v.rng.IntN(20_000)) // as fast as it can
	case 3:
		return "write a.txt: " + strings.Repeat("w", v.rng.IntN(3000)) // a tool
	default:
		return "echo " + strings.Repeat("word ", 1+v.rng.IntN(300)) + "end"
	}
}

// saved is what the session's file amounts to for the next child, and how its
// turns ended; nil if there is none.
func (v *victim) saved() (*transcript.State, map[string]string, error) {
	data, err := os.ReadFile(filepath.Join(v.dir, v.name()+".jsonl"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	state, good, err := transcript.Parse(bytes.NewReader(data))
	if err != nil {
		return nil, nil, err
	}
	if good < int64(len(data)) {
		v.torn++
	}
	state.Repair(time.Now())
	ends := map[string]string{}
	for line := range bytes.Lines(data[:good]) {
		if record := gjson.ParseBytes(line); record.Get("type").String() == "turn_end" {
			ends[record.Get("turn_id").String()] = record.Get("outcome").String()
		}
	}
	return state, ends, nil
}

// check finds all that was acknowledged, and of what was not the beginning.
func (v *victim) check() error {
	state, ends, err := v.saved()
	if err != nil {
		return err
	}
	prompts, answers, interrupted := map[string]string{}, map[string]string{}, map[string]bool{}
	if state != nil {
		for _, m := range state.Messages {
			switch m.Role {
			case protocol.RoleUser:
				prompts[m.TurnID] = m.Content
			case protocol.RoleAssistant:
				answers[m.TurnID] += m.Content
				interrupted[m.TurnID] = m.Interrupted
			case protocol.RoleTool, protocol.RoleSystem:
			}
		}
	}
	for id, turn := range v.turns {
		kept := answers[id]
		switch {
		case turn.done && (prompts[id] != turn.prompt || kept != turn.text || interrupted[id] || ends[id] != "completed"):
			return fmt.Errorf("turn %s was acknowledged: %q, %q; kept: %q, %q, interrupted: %v, ended: %q",
				id, turn.prompt, turn.text, prompts[id], kept, interrupted[id], ends[id])
		case turn.cut && kept != turn.text:
			return fmt.Errorf("turn %s: %q was kept, and now %q", id, turn.text, kept)
		case turn.done || turn.cut || turn.text == "":
		case !strings.HasPrefix(kept, turn.text) && !strings.HasPrefix(turn.text, kept):
			return fmt.Errorf("turn %s: %q was said, %q is kept", id, turn.text, kept)
		case len(turn.text)-len(kept) > 8<<10: // 4 KiB that wait, and what is on its way
			return fmt.Errorf("turn %s: of %d bytes that were said %d are kept", id, len(turn.text), len(kept))
		default:
			v.cutOff++
			if kept != "" {
				v.kept++
			}
			turn.text, turn.cut = kept, true
		}
	}
	if v.note == 0 {
		return nil
	}
	for _, n := range state.Notes {
		if value := int(gjson.GetBytes(n.Data, "value").Int()); value >= v.note && value <= v.sentNote {
			return nil
		}
	}
	return fmt.Errorf("note %d was acknowledged, there are %+v", v.note, state.Notes)
}

// sameMessages compares a page of get_messages with the end of the session.
func sameMessages(page gjson.Result, state *transcript.State) error {
	if state == nil {
		return nil
	}
	var want, got []string
	for _, m := range state.Messages {
		want = append(want, fmt.Sprintf("%s %s %v %d %.20q", m.Role, m.TurnID, m.Interrupted, len(m.Content), m.Content))
	}
	for _, m := range page.Array() {
		content := m.Get("content").String()
		got = append(got, fmt.Sprintf("%s %s %v %d %.20q", m.Get("role"), m.Get("turn_id"), m.Get("interrupted").Bool(), len(content), content))
	}
	if len(got) < len(want) && len(got) > 0 { // the page is full
		want = want[:len(got)]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("the next child has other messages (-file +child):\n%s", diff)
	}
	return nil
}
