//go:build !race

package child_test

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"testing"

	"nexus.internal/child"
	"nexus.internal/child/journal"
	"nexus.internal/child/parent"
	"nexus.internal/child/provider/scripted"
	"nexus.internal/child/toolenv"
	"nexus.internal/protocol"
)

// A short send of a child as the server starts it allocates a bounded number of objects and
// bytes, however many turns went before: nothing is made anew for a turn that could be kept,
// such as the list of tools.
func TestAllocationsOfASend(t *testing.T) {
	const sends, mostObjects, mostBytes = 500, 60, 6_900
	offline, err := scripted.New(scripted.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := options()
	o.Start = child.Selected{Provider: offline, ProviderName: "offline", Model: scripted.Name, ContextWindow: 128_000, Offline: true}
	o.Parent = parent.New(parent.Options{HostCalls: true})
	if o.ToolEnv, err = toolenv.Open(toolenv.Options{Cwd: t.TempDir(), Permissions: protocol.Permissions{Preset: "trusted"}, Parent: o.Parent}); err != nil {
		t.Fatal(err)
	}
	defer o.ToolEnv.Close()
	if o.Journal, _, err = journal.Open(journal.Options{Dir: t.TempDir(), Name: "s", NoSync: true}); err != nil {
		t.Fatal(err)
	}
	defer o.Journal.Close()
	in, stdin, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- child.Serve(context.Background(), in, out, o) }()
	prompt := []byte(`{"type":"prompt","id":"1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed","message":"echo pong","attachments":[]}` + "\n")
	read := make([]byte, 64<<10)
	send := func() {
		if _, err := stdin.Write(prompt); err != nil {
			t.Fatal(err)
		}
		for {
			n, err := stdout.Read(read)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(read[:n], []byte(`"type":"response"`)) { // with all that closes the turn
				return
			}
		}
	}
	for range 50 {
		send()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range sends {
		send()
	}
	runtime.ReadMemStats(&after)
	objects, size := (after.Mallocs-before.Mallocs)/sends, (after.TotalAlloc-before.TotalAlloc)/sends
	t.Logf("a send: %d objects of %d bytes", objects, size)
	if objects > mostObjects || size > mostBytes {
		t.Errorf("a send allocates %d objects of %d bytes, want at most %d and %d", objects, size, mostObjects, mostBytes)
	}
	stdin.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
	for _, f := range []*os.File{in, out, stdout} {
		f.Close()
	}
}
