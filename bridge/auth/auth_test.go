package auth_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"nexus.internal/bridge/auth"
)

func TestGenerate(t *testing.T) {
	a, b := auth.Generate(), auth.Generate()
	body, ok := strings.CutPrefix(a.Reveal(), "nxk_")
	secret, err := base64.RawURLEncoding.DecodeString(body)
	if !ok || err != nil || len(secret) != 32 {
		t.Errorf("a key is not nxk_ and 32 bytes: %d, %v", len(secret), err)
	}
	if a.Reveal() == b.Reveal() {
		t.Error("two keys are the same")
	}
}

func TestMatches(t *testing.T) {
	key := auth.Generate()
	for _, test := range []struct {
		name      string
		key       auth.Key
		presented string
		want      bool
	}{
		{"the key", key, key.Reveal(), true},
		{"its head", key, key.Reveal()[:20], false},
		{"one more", key, key.Reveal() + "x", false},
		{"nothing", key, "", false},
		{"another", key, auth.Generate().Reveal(), false},
		{"no key and nothing", auth.Key{}, "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := test.key.Matches(test.presented); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestKeyNeverShowsItself(t *testing.T) {
	key := auth.Generate()
	holder := struct {
		Key auth.Key
		Ptr *auth.Key
	}{key, &key}
	encoded, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&log), zap.DebugLevel)).
		Info("x", zap.Any("key", key), zap.Stringer("s", key), zap.Reflect("r", holder))
	texts := []string{string(encoded), log.String(), fmt.Sprint(key)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		texts = append(texts, fmt.Sprintf(verb, key), fmt.Sprintf(verb, holder))
	}
	for _, text := range texts {
		if strings.Contains(text, key.Reveal()[8:20]) || strings.Contains(text, fmt.Sprintf("%x", key.Reveal()[8:20])) {
			t.Errorf("%q shows the key", text)
		}
	}
}

func TestParse(t *testing.T) {
	for _, text := range []string{"", "nxk_", "abc", "nxk_a b", "nxk_a\nb", "sk-abc", "nxk_" + strings.Repeat("x", 600)} {
		if _, err := auth.Parse(text); !errors.Is(err, auth.ErrMalformed) {
			t.Errorf("Parse(%.20q): %v, want ErrMalformed", text, err)
		}
	}
	if key, err := auth.Parse(" nxk_abc-_9\n"); err != nil || key.Reveal() != "nxk_abc-_9" {
		t.Errorf("Parse: %v", err)
	}
}

func TestCreateAndRead(t *testing.T) {
	home := t.TempDir()
	path := auth.KeyPath(home, 9000)
	if filepath.Base(path) != "server-9000.key" || filepath.Base(auth.KeyPath(home, 8765)) != "server.key" {
		t.Errorf("key files are %s and %s", path, auth.KeyPath(home, 8765))
	}
	key, err := auth.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	wantMode(t, path, 0o600)
	wantMode(t, home, 0o700)
	if got, err := auth.Read(path); err != nil || !got.Matches(key.Reveal()) {
		t.Errorf("Read: %v", err)
	}
	second, err := auth.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := auth.Remove(path, key); err != nil {
		t.Fatal(err)
	}
	if got, err := auth.Read(path); err != nil || !got.Matches(second.Reveal()) {
		t.Errorf("Remove took another server's key: %v", err)
	}
	if err := os.Chmod(path, 0o644); err != nil { // that is no reason to leave it
		t.Fatal(err)
	}
	if err := auth.Remove(path, second); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(home)
	if err != nil || len(files) != 0 {
		t.Errorf("left behind: %v, %v", files, err)
	}
}

func wantMode(t *testing.T, path string, want os.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != want {
		t.Errorf("%s has mode %04o, want %04o", path, got, want)
	}
}

func TestCreateTightensTheDirectory(t *testing.T) {
	home := t.TempDir()
	if err := os.Chmod(home, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := auth.Create(auth.KeyPath(home, 1)); err != nil {
		t.Fatal(err)
	}
	wantMode(t, home, 0o700)
	if err := os.Chmod(home, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if _, err := auth.Create(auth.KeyPath(home, 1)); err == nil {
		t.Error("a key was put into a shared directory")
	}
}

func TestReadRefuses(t *testing.T) {
	home := t.TempDir()
	good := filepath.Join(home, "good")
	write(t, good, "nxk_abc\n", 0o600)
	for _, test := range []struct {
		name string
		make func(path string)
		say  string
	}{
		{"readable by others", func(path string) { write(t, path, "nxk_abc\n", 0o644) }, "chmod 600"},
		{"readable by the group", func(path string) { write(t, path, "nxk_abc\n", 0o640) }, "chmod 600"},
		{"writable by others", func(path string) { write(t, path, "nxk_abc\n", 0o602) }, "chmod 600"},
		{"writable by the group", func(path string) { write(t, path, "nxk_abc\n", 0o620) }, "chmod 600"},
		{"executable by the group", func(path string) { write(t, path, "nxk_abc\n", 0o610) }, "chmod 600"},
		{"no key", func(path string) { write(t, path, "hello\n", 0o600) }, "malformed"},
		{"empty", func(path string) { write(t, path, "", 0o600) }, "malformed"},
		{"a link", func(path string) {
			if err := os.Symlink(good, path); err != nil {
				t.Fatal(err)
			}
		}, "link"},
		{"a directory", func(path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "not a regular file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(home, strings.ReplaceAll(test.name, " ", "-"))
			test.make(path)
			_, err := auth.Read(path)
			if err == nil || !strings.Contains(err.Error(), test.say) {
				t.Errorf("got %v, want an error that says %q", err, test.say)
			}
		})
	}
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func TestDiscover(t *testing.T) {
	home := t.TempDir()
	if err := os.Chmod(home, 0o700); err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(t.TempDir(), "key")
	write(t, elsewhere, "nxk_file\n", 0o600)
	write(t, auth.KeyPath(home, 9000), "nxk_port\n", 0o600)
	write(t, auth.KeyPath(home, auth.DefaultPort), "nxk_default\n", 0o600)
	for _, test := range []struct {
		name string
		l    auth.Lookup
		want string
	}{
		{"the flag first", auth.Lookup{Flag: "nxk_flag", Env: "nxk_env", Home: home, Port: 9000}, "nxk_flag"},
		{"a file that the flag names", auth.Lookup{Flag: "@" + elsewhere, Env: "nxk_env", Home: home, Port: 9000}, "nxk_file"},
		{"then the environment", auth.Lookup{Env: "nxk_env", Home: home, Port: 9000}, "nxk_env"},
		{"then the port's file", auth.Lookup{Home: home, Port: 9000}, "nxk_port"},
		{"then the default file", auth.Lookup{Home: home, Port: 9001}, "nxk_default"},
	} {
		t.Run(test.name, func(t *testing.T) {
			key, source, err := auth.Discover(test.l)
			if err != nil || key.Reveal() != test.want || source == "" {
				t.Errorf("got a key from %q, %v, want %s", source, err, test.want)
			}
		})
	}
	if _, _, err := auth.Discover(auth.Lookup{Home: t.TempDir(), Port: 9000}); !errors.Is(err, auth.ErrNoKey) {
		t.Errorf("without a key: %v, want ErrNoKey", err)
	}
	if _, _, err := auth.Discover(auth.Lookup{Flag: "@", Env: "nxk_env", Home: home}); err == nil || err.Error() != "@ names no file: want @FILE" {
		t.Errorf("with a flag that names no file: %v", err)
	}
	if _, _, err := auth.Discover(auth.Lookup{Flag: "oops", Env: "nxk_env", Home: home}); !errors.Is(err, auth.ErrMalformed) {
		t.Errorf("with a broken flag: %v, want ErrMalformed and no fall back", err)
	}
}
