package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"nexus.internal/fixtures"
)

var recordedTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// What a machine says of itself is as it was recorded.
func TestRecordedBeat(t *testing.T) {
	recorded := fixtures.Read(t, "cluster/beat-1.json")
	want := Machine{
		Name: "z", Process: "P", Labels: map[string]string{"zone": "one"}, Version: "v1", State: Up, Draining: true, Shared: []string{"/srv"}, Heard: recordedTime,
		Load: Load{Processors: 2, MemoryBytes: 4096, FreeBytes: 1024, Agents: 7, MaxAgents: 9},
	}
	if text, err := json.Marshal(want); err != nil || string(text) != string(recorded) {
		t.Errorf("it is told as %s, %v; if that is meant, it is another format", text, err)
	}
	got, later, err := readBeat(recorded)
	if diff := cmp.Diff(want, got); diff != "" || later != nil || err != nil {
		t.Errorf("%v, %v (-want +got):\n%s", later, err, diff)
	}
}

// What is said of this machine is kept as it was recorded. A file of a later format is refused, and stays.
func TestRecordedSettings(t *testing.T) {
	recorded := fixtures.Read(t, "cluster/settings-1.json")
	path := filepath.Join(t.TempDir(), "machine.json")
	want := settings{Draining: true, Labels: map[string]*string{"gone": nil}}
	if err := want.write(path); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != string(recorded) {
		t.Errorf("they are kept as %s, %v; if that is meant, it is another format", text, err)
	}
	got, err := readSettings(path)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(settings{})); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	later := `{"format":2,"draining":"slowly"}`
	if err := os.WriteFile(path, []byte(later), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Join(nil, Options{Cluster: "c", Machine: "a", Replicas: 1, File: path}); err == nil || !strings.Contains(err.Error(), "has format 2, and this program reads 1: upgrade it") {
		t.Errorf("of a later format: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != later {
		t.Errorf("the file is %s, %v", text, err)
	}
}

// Who was removed is kept as it was recorded. A machine of any name may have been. A list of a later format is refused.
func TestRecordedRemoved(t *testing.T) {
	recorded := fixtures.Read(t, "cluster/removed-1.json")
	dir := t.TempDir()
	path := filepath.Join(dir, removedFile)
	want := Removed{"b": recordedTime}
	if err := want.Write(dir); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != string(recorded) {
		t.Errorf("it is kept as %s, %v; if that is meant, it is another format", text, err)
	}
	for text, want := range map[string]Removed{string(recorded): want, `{"format":"2026-01-02T03:04:05Z"}`: {"format": recordedTime}} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadRemoved(dir)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", text, err, diff)
		}
	}
	if err := os.WriteFile(path, []byte(`{"format":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadRemoved(dir); err == nil || !strings.Contains(err.Error(), "upgrade it") {
		t.Errorf("of a later format: %v", err)
	}
}
