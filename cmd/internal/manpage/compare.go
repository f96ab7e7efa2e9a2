package manpage

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Compare fails the test if the file at path is not the page, and writes it there with UPDATE=1.
// groff and mandoc, where they are, have to find nothing wrong with it.
func Compare(t *testing.T, path string, p Page) {
	t.Helper()
	want := Render(p)
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is not as the program says; make generate writes it anew (-want +got):\n%s", path, diff)
	}
	for _, reader := range [][]string{{"groff", "-man", "-ww", "-z", "-Tutf8", "-Kutf8"}, {"mandoc", "-Tlint", "-Werror"}} {
		if _, err := exec.LookPath(reader[0]); err != nil {
			continue
		}
		cmd := exec.Command(reader[0], append(reader[1:], path)...)
		if said, err := cmd.CombinedOutput(); err != nil || len(bytes.TrimSpace(said)) > 0 {
			t.Errorf("%v: %v\n%s", cmd.Args, err, said)
		}
	}
}
