package journal_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"nexus.internal/child/journal"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// whole is the session of a file as it is without its checkpoints.
func whole(t *testing.T, path string) *transcript.State {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	state, _, err := transcript.Parse(bytes.NewReader(bytes.ReplaceAll(data, []byte(`"checkpoint":`), []byte(`"none":`))))
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// A checkpoint has what is in the file before it: also what another process wrote there, what
// was late, and a turn that was cut off; and nothing that was refused.
func TestCheckpointsOfSeveralProcesses(t *testing.T) {
	dir := t.TempDir()
	setting := func(model string) transcript.Settings {
		return transcript.Settings{Model: &model, At: time.Unix(3, 0).UTC()}
	}
	compaction := func(dropped uint64) transcript.Compaction {
		return transcript.Compaction{
			Dropped: dropped, Summary: message(protocol.RoleUser, "summary").Message, Usage: &protocol.TurnUsage{InputTokens: 5}, At: time.Unix(4, 0).UTC(),
		}
	}
	for life := range 4 {
		j, state := open(t, journal.Options{Dir: dir, Name: "s"})
		for i := range 3 {
			if err := j.Append(message(protocol.RoleUser, fmt.Sprint(life, " ", i)), message(protocol.RoleAssistant, "answer"), turnEnd); err != nil {
				t.Fatal(err)
			}
		}
		j.Break(0, syscall.ENOSPC)
		if err := errors.Join(j.Commit(setting("refused")), j.Commit(compaction(1))); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("got %v", err)
		}
		if err := j.Append(message(protocol.RoleUser, "late")); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("got %v", err)
		}
		j.Break(0, nil)
		if err := j.Commit(setting(fmt.Sprint("m", life)), compaction(uint64(len(state.Messages))+4)); err != nil {
			t.Fatal(err)
		}
		j.Partial("1", "a piece", "")
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		again, got := open(t, journal.Options{Dir: dir, Name: "s", NoSync: true})
		if diff := cmp.Diff(whole(t, j.Path()), got, cmp.AllowUnexported(transcript.State{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("process %d (-as a whole +from the checkpoint):\n%s", life, diff)
		}
		if want := fmt.Sprintf("summary | %d 2 | answer | late | a piece (interrupted)", life); contents(got) != want {
			t.Errorf("got %q, want %q", contents(got), want)
		}
		again.Close()
	}
}

// writesOn makes the test's program one that writes a session in the directory until it is
// killed, and says which turns are in it.
const writesOn = "NEXUS_TEST_WRITES_ON"

func writeOn(dir string) {
	j, state, err := journal.Open(journal.Options{Dir: dir, Name: "s", NoSync: true})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	messages := len(state.Messages)
	for turn := int(state.Turns); ; turn++ {
		err := j.Append(message(protocol.RoleUser, fmt.Sprint(turn)))
		j.Partial("1", "an ", "")
		err = errors.Join(err, j.Append(message(protocol.RoleAssistant, "an answer"), turnEnd))
		if messages += 2; messages > 12 {
			err = errors.Join(err, j.Commit(transcript.Compaction{
				Dropped: uint64(messages - 4), Summary: message(protocol.RoleUser, "summary").Message, At: time.Unix(4, 0).UTC(),
			}))
			messages = 5
		}
		if _, failed := fmt.Println(turn); err != nil || failed != nil {
			os.Exit(1)
		}
	}
}

// A process that is killed, wherever it is, leaves all that it said it had written, and what
// the next one reads from the checkpoint is what is in the file.
func TestKilledAmongCompactions(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	said := -1
	for kill := range 15 {
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), writesOn+"="+dir)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range 1 + kill*7 {
			lines.Scan()
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for ok := true; ok; ok = lines.Scan() { // what it said before it ended, too
			if n, err := strconv.Atoi(lines.Text()); err == nil {
				said = n
			} else if lines.Text() != "" {
				t.Fatal(lines.Text())
			}
		}
		cmd.Wait()
		j, got := open(t, journal.Options{Dir: dir, Name: "s", NoSync: true})
		if diff := cmp.Diff(whole(t, j.Path()), got, cmp.AllowUnexported(transcript.State{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("kill %d (-as a whole +from the checkpoint):\n%s", kill, diff)
		}
		if int(got.Turns) <= said {
			t.Fatalf("turn %d was said to be written, there are %d", said, got.Turns)
		}
		j.Close()
	}
}

// What is behind the last compaction costs a start nothing, however much it is.
func TestAStartTakesTheEnd(t *testing.T) {
	dir := t.TempDir()
	j, begun := open(t, journal.Options{Dir: dir, Name: "s", NoSync: true})
	text := strings.Repeat("x", 64<<10)
	for range 512 { // 32 MiB
		if err := j.Append(message(protocol.RoleUser, text), turnEnd); err != nil {
			t.Fatal(err)
		}
	}
	compaction := transcript.Compaction{Dropped: 510, Summary: message(protocol.RoleUser, "summary").Message, At: time.Unix(4, 0).UTC()}
	if err := errors.Join(j.Commit(compaction), j.Close()); err != nil {
		t.Fatal(err)
	}
	for _, o := range []journal.Options{{Dir: dir, Name: "s"}, {Dir: dir, Continue: begun.SessionID}} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		j, state, err := journal.Open(o)
		runtime.ReadMemStats(&after)
		if err != nil || len(state.Messages) != 3 {
			t.Fatalf("%+v, %v", state, err)
		}
		if taken := after.TotalAlloc - before.TotalAlloc; taken > 2<<20 {
			t.Errorf("%+v: takes %d KiB", o, taken>>10)
		}
		j.Close()
	}
}
