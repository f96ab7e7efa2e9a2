package proctree_test

import (
	"syscall"
	"testing"

	"nexus.internal/protocol/proctree"
)

func TestLineageTag(t *testing.T) {
	const tag = proctree.LineageTag(1<<41 + 3<<24)
	for number, want := range map[uint64]bool{
		tag.Number(1): true, tag.Number(1 << 24): true, tag.Own(): true,
		uint64(tag): true, uint64(tag) - 1: false, tag.Own() + 1: false, 0: false,
	} {
		if tag.Has(number) != want {
			t.Errorf("%d is of the tag: %v", number, !want)
		}
	}
	for n := range uint64(1 << 10) {
		if tag.Number(n) == tag.Own() || tag.Number(n<<24-1) == tag.Own() {
			t.Fatalf("process %d has the number of its server", n)
		}
	}
	for text, want := range map[string]bool{
		tag.String(): true, "": false, "x": false, "0": false, "ffffffffff": false, // below the least
		"10000000000": true, "010000000000": false, "4000000000000000": false,
	} {
		if got, ok := proctree.ParseLineageTag(text); ok != want || ok && got.String() != text {
			t.Errorf("%q is %v, %v", text, got, ok)
		}
	}
}

// All that bears a tag is ended, whatever its session and its environment, and
// nobody else: not even in a group that one of them leads.
func TestEndLineage(t *testing.T) {
	cmd, says, lines := start(t, "server", nil, 3)
	tag, ok := proctree.ParseLineageTag(lines[0])
	if !ok {
		t.Fatalf("it said %q", lines)
	}
	of, err := proctree.OfLineage(tag.Has)
	children, failed := proctree.Children(cmd.Process.Pid)
	if len(of) != 3 || len(children) != 1 || err != nil || failed != nil {
		t.Fatalf("%v, %v bear the tag, %v, %v are its children", of, err, children, failed)
	}
	if got := proctree.LineageOf(cmd.Process.Pid); got != tag.Own() {
		t.Errorf("the server bears %d, want %d", got, tag.Own())
	}
	stranger, _, _ := start(t, "stay", &syscall.SysProcAttr{Setpgid: true, Pgid: children[0]}, 1)
	calls := 0
	left, err := proctree.EndLineage(tag.Has, func() { calls++ })
	if len(left) > 0 || err != nil || calls == 0 {
		t.Errorf("left %v, %v after %d calls", left, err, calls)
	}
	allEnd(t, says)
	if proctree.HasEnded(stranger.Process.Pid) {
		t.Error("a process that bears no number was killed")
	}
	if of, err = proctree.OfLineage(tag.Has); len(of) > 0 || err != nil {
		t.Errorf("%v, %v bear the tag", of, err)
	}
}
