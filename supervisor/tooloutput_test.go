package supervisor_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// work is a turn with one call, which puts out what its prompt says if anybody wants it.
func work(c *supervisortest.Child, p protocol.Prompt) {
	c.Emit(protocol.MessageUpdate{Event: protocol.ToolcallStart{ToolID: "c1", ToolName: "shell"}})
	for piece := range strings.SplitSeq(p.Message, ",") {
		c.Sleep(time.Second)
		if c.ToolOutputWanted() {
			c.Emit(protocol.MessageUpdate{Event: protocol.ToolcallOutputDelta{ToolID: "c1", Delta: piece}})
		}
	}
	c.Emit(protocol.MessageUpdate{Event: protocol.ToolcallResult{ToolID: "c1", Result: "done"}})
	c.Finish(p, "")
}

// outline is the numbers of events, and the output between them with what was left out.
func outline(events []supervisor.Event) string {
	var b strings.Builder
	for _, e := range events {
		if e.Seq != 0 {
			fmt.Fprintf(&b, "%d ", e.Seq)
			continue
		}
		one, err := protocol.Frame{Raw: e.Data}.Decode()
		update, ok := one.(protocol.MessageUpdate)
		if err != nil || !ok || e.Type != "message_update" {
			fmt.Fprintf(&b, "%s: %v ", e.Data, err)
			continue
		}
		delta := update.Event.(protocol.ToolcallOutputDelta)
		fmt.Fprintf(&b, "%s[%d]%s ", delta.ToolID, delta.Omitted, delta.Delta)
	}
	return strings.TrimSpace(b.String())
}

// What tools put out comes to those who asked, where it happened among the numbered events;
// it has no number, and the child sends it only while somebody wants it.
func TestFollowOutput(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: work}), func(h *house) {
		a := h.start("alice")
		follows, other := h.subscribe(a, 2), h.subscribe(a, 2)
		follows.FollowOutput()
		h.outcome(h.prompt(a, "", "one,two"), supervisor.Completed) // 3 turn_start, 4 toolcall_start, 5 toolcall_result, 6 agent_end, 7 turn_end
		if got, want := outline(kept(h, follows)), "3 4 c1[0]onetwo 5 6 7"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got, want := outline(kept(h, other)), "3 4 5 6 7"; got != want {
			t.Errorf("who did not ask got %s, want %s", got, want)
		}
		follows.Close()
		synctest.Wait()
		other.FollowOutput()
		turn := h.prompt(a, "", "one,two,three")
		<-time.After(2500 * time.Millisecond)
		if got, want := outline(kept(h, other)), "8 9 c1[0]onetwo"; got != want {
			t.Errorf("meanwhile: got %s, want %s", got, want)
		}
		other.Close()
		synctest.Wait()
		h.outcome(turn, supervisor.Completed)
		if got, want := outline(h.events(a)), "1 2 3 4 5 6 7 8 9 10 11 12"; got != want {
			t.Errorf("kept: got %s, want %s", got, want)
		}
	})
}

// A next incarnation is told what is wanted.
func TestFollowOutputAfterRestart(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: work}), func(h *house) {
		a := h.start("alice")
		sub := h.subscribe(a, 2)
		sub.FollowOutput()
		if err := a.Shutdown(h.Context()); err != nil {
			t.Fatal(err)
		}
		h.outcome(h.prompt(a, "", "one"), supervisor.Completed)
		if got := outline(kept(h, sub)); !strings.Contains(got, " c1[0]one ") {
			t.Errorf("got %s", got)
		}
	})
}

// A subscriber that does not read loses the oldest output and is told how much.
func TestFollowOutputSlowly(t *testing.T) {
	const piece = 30 << 10
	run(t, always(supervisortest.Play{Prompt: work}), func(h *house) {
		a := h.start("alice")
		sub := h.subscribe(a, 2)
		sub.FollowOutput()
		message := strings.Join([]string{strings.Repeat("a", piece), strings.Repeat("é", piece/2), strings.Repeat("c", piece)}, ",")
		h.outcome(h.prompt(a, "", message), supervisor.Completed)
		got := outline(kept(h, sub))
		_, got, _ = strings.Cut(got, "c1[")
		var omitted int
		if _, err := fmt.Sscanf(got, "%d]", &omitted); err != nil {
			t.Fatal(err)
		}
		_, text, _ := strings.Cut(got, "]")
		text, _, _ = strings.Cut(text, " ")
		if omitted+len(text) != 3*piece || len(text) > 64<<10 || len(text) < 64<<10-8 || !strings.HasSuffix(text, "cc") {
			t.Errorf("%d bytes and %d left out of %d", len(text), omitted, 3*piece)
		}
	})
}

// A child that makes up calls keeps no more than the bounds.
func TestFollowOutputOfManyCalls(t *testing.T) {
	flood := func(c *supervisortest.Child, p protocol.Prompt) {
		for i := range 1000 {
			c.Emit(protocol.MessageUpdate{Event: protocol.ToolcallOutputDelta{ToolID: fmt.Sprint("c", i), Delta: "x"}})
		}
		c.Emit(protocol.MessageUpdate{Event: protocol.ToolcallOutputDelta{ToolID: strings.Repeat("long", 30_000), Delta: "x"}})
		c.Emit(protocol.MessageUpdate{Event: protocol.ToolcallOutputDelta{ToolID: "last", Delta: "x"}})
		c.Finish(p, "")
	}
	run(t, always(supervisortest.Play{Prompt: flood}), func(h *house) {
		a := h.start("alice")
		sub := h.subscribe(a, 2)
		sub.FollowOutput()
		synctest.Wait()
		h.outcome(h.prompt(a, "", "go"), supervisor.Completed)
		got := outline(kept(h, sub))
		if n := strings.Count(got, "]x"); n > 256 || !strings.Contains(got, "last[0]x") {
			t.Errorf("%d pieces: %.300s", n, got)
		}
	})
}
