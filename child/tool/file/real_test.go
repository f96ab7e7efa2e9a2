package file_test

import (
	"os"
	"path/filepath"
	"testing"

	"nexus.internal/child/tool/file"
)

// A Resolver says of each path what Real says: else what an agent must not touch would be
// known by a name under which nobody reaches it.
func TestResolver(t *testing.T) {
	top := t.TempDir()
	place := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	place(os.MkdirAll(filepath.Join(top, "real", "sub"), 0o700))
	place(os.WriteFile(filepath.Join(top, "real", "text"), nil, 0o600))
	place(os.Symlink("real", filepath.Join(top, "way")))
	place(os.Symlink("sub", filepath.Join(top, "real", "inner")))
	place(os.Symlink("missing/further", filepath.Join(top, "real", "nowhere")))
	place(os.Symlink("loop", filepath.Join(top, "loop")))
	var at file.Resolver
	links := 0
	for _, name := range []string{
		"real", "real/sub", "real/text", "real/none", "real/none/below", "real/text/below", "real/", "real/../way/text", "way/inner/../text",
		"way", "way/sub", "way/inner", "way/inner/none", "way/nowhere", "way/nowhere/below", "loop", "loop/below", "",
	} {
		for _, path := range []string{top + "/" + name, name} {
			got, err := at.Real(path)
			want, wantErr := file.Real(path)
			if got != want || (err == nil) != (wantErr == nil) {
				t.Errorf("%s leads to %q, %v, want %q, %v", path, got, err, want, wantErr)
			}
			if err == nil && got != path {
				links++
			}
		}
	}
	if links < 8 {
		t.Errorf("only %d paths lead elsewhere", links)
	}
}
