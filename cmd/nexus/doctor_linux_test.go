package main_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	"golang.org/x/sys/unix"
)

// doctored are what nexus doctor finds, by check, and its findings that lack what to do.
func doctored(t *testing.T, home string, env []string, args ...string) map[string][]string {
	t.Helper()
	cmd := exec.Command(filepath.Join(programs, "nexus"), append([]string{"doctor", "--json"}, args...)...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "NEXUS_HOME=" + home, "GORACE=atexit_sleep_ms=0"}, env...)
	out, err := cmd.Output()
	if !gjson.ValidBytes(out) {
		t.Fatalf("%v: %s", err, out)
	}
	found := map[string][]string{}
	for _, f := range gjson.GetBytes(out, "findings").Array() {
		state := f.Get("state").Str
		found[f.Get("check").Str] = append(found[f.Get("check").Str], state+" "+f.Get("found").Str)
		if (state == "ok") != (f.Get("do").Str == "") {
			t.Errorf("what to do: %s", f.Raw)
		}
	}
	if failed := strings.Contains(string(out), `"state":"fail"`); gjson.GetBytes(out, "ok").Bool() == failed || (err != nil) != failed {
		t.Errorf("%v, %s", err, out)
	}
	return found
}

// All that nexus needs is looked at, each provider that is used by one token, and for what is wrong there is
// something to do.
func TestDoctor(t *testing.T) {
	t.Parallel()
	service, home := newCountingService(t), t.TempDir()
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(home, "config.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(home, 0o700); err != nil {
		t.Fatal(err)
	}
	write(`{"default_provider":"one","default_model":"m","providers":{
		"one":{"type":"openai","base_url":"` + service.URL + `","api_key_env":"ONE_KEY","models":[{"id":"other"},{"id":"m"}]},
		"down":{"type":"openai","base_url":"http://127.0.0.1:1","auth_method":"none","models":[{"id":"d"}]},
		"unsaid":{"type":"openai","base_url":"` + service.URL + `","auth_method":"none"}}}`)
	found := doctored(t, home, []string{"ONE_KEY=k"})
	for _, check := range []string{"configuration", "home", "disk", "keys", "server", "clock", "limits", "kernel", "processes", "cgroups", "programs", "confinement", "named hosts"} {
		if len(found[check]) == 0 {
			t.Errorf("%s is not looked at", check)
		}
	}
	if len(found["provider"]) > 0 || service.asked() != "" {
		t.Errorf("providers are asked unasked: %v", found["provider"])
	}
	found = doctored(t, home, []string{"ONE_KEY=k"}, "--online")
	if asked := service.asked(); gjson.Get(asked, "max_tokens").Int()+gjson.Get(asked, "max_completion_tokens").Int() != 1 {
		t.Errorf("more than a token is asked for: %s", asked)
	}
	want := []string{"fail down/d: ", `ok one/m answers: "well" (1000 tokens in, 500 out)`, "warn unsaid: no model of it is named"}
	for i, text := range want {
		if len(found["provider"]) != len(want) || !strings.HasPrefix(found["provider"][i], text) {
			t.Errorf("providers: %q, want %q", found["provider"], want)
			break
		}
	}
	if got := doctored(t, home, nil)["keys"]; len(got) != 1 || !strings.HasPrefix(got[0], `warn provider "one" needs a key`) {
		t.Errorf("keys: %q", got)
	}

	// A clock that was set back is told by the files that are younger.
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(home, "config.json"), later, later); err != nil {
		t.Fatal(err)
	}
	if got := doctored(t, home, nil)["clock"]; len(got) != 1 || !strings.HasPrefix(got[0], "fail it is ") {
		t.Errorf("clock: %q", got)
	}

	// A home that cannot be made.
	if got := doctored(t, "/proc/self/nexus", nil)["home"]; len(got) != 1 || !strings.HasPrefix(got[0], "fail ") || !strings.Contains(got[0], "/nexus is not there, and user ") {
		t.Errorf("home: %q", got)
	}
}

// A home on a file system that is mounted read-only is said to be there, and not that its mode is wrong.
func TestDoctorOfAReadOnlyHome(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 && os.Getenv(inNamespace) == "" {
		asRootOfItsOwn(t)
		return
	}
	disk := t.TempDir()
	if err := unix.Mount("nexus-test", disk, "tmpfs", unix.MS_RDONLY, "size=2m,mode=700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	for _, home := range []string{disk, filepath.Join(disk, "home")} {
		want := "fail " + home + " lies on a file system that is mounted read-only"
		if got := doctored(t, home, nil)["home"]; len(got) != 1 || got[0] != want {
			t.Errorf("home: %q, want %q", got, want)
		}
	}
}

// The files by which a machine proves itself to others are looked at where they are named, and the server refuses what others could know or have made.
func TestDoctorAndFilesOfCluster(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	files := filepath.Join(initCluster(t, "a=127.0.0.1:8766", "b=127.0.0.2:8766"), "a")
	credentials := filepath.Join(t.TempDir(), "creds")
	if err := os.WriteFile(credentials, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	found := func() []string {
		return doctored(t, home, nil, "--cluster-files", files, "--nats-creds", credentials)["cluster"]
	}
	want := []string{"ok " + files + " is of the machine a of nexus, and nobody else can know or change it", "ok nobody else can know or change " + credentials}
	if diff := cmp.Diff(want, found()); diff != "" {
		t.Errorf("as they should be (-want +got):\n%s", diff)
	}
	key := filepath.Join(files, "key.pem")
	if err := errors.Join(os.Chmod(key, 0o644), os.Chmod(credentials, 0o640)); err != nil {
		t.Fatal(err)
	}
	want = []string{
		"fail the certificates of the machine: the mode of " + key + " is 0644, so others may use it: run chmod 600 " + key,
		"fail the mode of " + credentials + " is 0640, so others may use it: run chmod 600 " + credentials,
	}
	if diff := cmp.Diff(want, found()); diff != "" {
		t.Errorf("known to others (-want +got):\n%s", diff)
	}
	for _, flags := range [][]string{{"--cluster-files", files}, {"--cluster", "farm", "--machine", "a", "--nats", "nats://127.0.0.1:1", "--nats-creds", credentials}} {
		cmd := exec.Command(filepath.Join(programs, "nexus"), append([]string{"serve", "0", "--home", home}, flags...)...)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "so others may use it: run chmod 600") {
			t.Errorf("serve %q: %v: %s", flags, err, out)
		}
	}
}
