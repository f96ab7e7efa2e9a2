package supervisor_test

import (
	"fmt"
	"strings"
	"testing"

	"nexus.internal/supervisor"
)

// legalMoves are those of SPEC §5.1, as "FROM TO".
func legalMoves() map[string]bool {
	const table = `
		stopped  → starting
		starting → ready stopping stopped backoff failed
		ready    → busy stopping backoff failed
		busy     → ready stopping backoff failed
		stopping → stopped backoff failed
		backoff  → starting stopped
		failed   → stopped`
	legal := map[string]bool{}
	for line := range strings.Lines(strings.TrimSpace(table)) {
		from, to, _ := strings.Cut(strings.TrimSpace(line), "→")
		for name := range strings.FieldsSeq(to) {
			legal[strings.TrimSpace(from)+" "+name] = true
		}
	}
	return legal
}

// The whole table, readable aloud; what is not in it must panic.
func TestStateMoves(t *testing.T) {
	legal := legalMoves()
	for _, from := range supervisor.States() {
		for _, to := range supervisor.States() {
			move := fmt.Sprintf("%s %s", from, to)
			if got := moves(from, to); got != legal[move] {
				t.Errorf("move %s: allowed %v, want %v", move, got, legal[move])
			}
			delete(legal, move)
		}
	}
	for move := range legal {
		t.Errorf("move %s names a state that does not exist", move)
	}
	if got := supervisor.State(99).String(); got != "State(99)" {
		t.Errorf("String of no state = %q", got)
	}
}

func moves(from, to supervisor.State) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return supervisor.Move(from, to) == to
}
