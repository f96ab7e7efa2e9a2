//go:build unix

package safefile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nexus.internal/protocol/safefile"
)

// What others could have written is not trusted, and a key that they could know or have put there is none. A link counts as what it leads to.
func TestTrust(t *testing.T) {
	for _, test := range []struct {
		mode            os.FileMode
		given           bool // to another user
		trusted, secret string
	}{
		{mode: 0o600},
		{mode: 0o400},
		{mode: 0o644, secret: "so others may use it: run chmod 600 "},
		{mode: 0o640, secret: "so others may use it: run chmod 600 "},
		{mode: 0o620, trusted: "so others may change what it says: look whether they have, then run chmod go-w ", secret: "so others may use it"},
		{mode: 0o602, trusted: "so others may change what it says", secret: "so others may use it"},
		{mode: 0o600, given: true, trusted: "is another user's, who may change what it says: run this as its owner (sudo -u '#12345' …), or make it yours (chown ", secret: "is another user's, who may know the key or have put it there"},
	} {
		if test.given && os.Geteuid() != 0 {
			continue
		}
		dir := t.TempDir()
		file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
		err := errors.Join(os.WriteFile(file, []byte("text"), 0o600), os.Chmod(file, test.mode), os.Symlink(file, link))
		if test.given {
			err = errors.Join(err, os.Chown(file, 12345, -1))
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{file, link} {
			read, failed := safefile.ReadTrusted(path, 10)
			known, hidden := safefile.ReadSecret(path, 10)
			for what, one := range map[string]struct {
				err  error
				want string
			}{
				"check": {safefile.CheckTrusted(path), test.trusted}, "read": {failed, test.trusted},
				"check of a key": {safefile.CheckSecret(path), test.secret}, "a key": {hidden, test.secret},
			} {
				if (one.err == nil) != (one.want == "") || one.err != nil && !(strings.Contains(one.err.Error(), one.want) && strings.Contains(one.err.Error(), path)) {
					t.Errorf("%s of %04o: %v, want %q", what, test.mode, one.err, one.want)
				}
			}
			if test.trusted == "" && string(read) != "text" || test.secret == "" && string(known) != "text" {
				t.Errorf("%04o: read %q, %q", test.mode, read, known)
			}
		}
	}
	none := filepath.Join(t.TempDir(), "none")
	for _, err := range []error{safefile.CheckTrusted(none), safefile.CheckSecret(none)} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
}
