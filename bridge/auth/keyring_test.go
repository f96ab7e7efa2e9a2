package auth_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge/auth"
)

func open(t *testing.T, home string) *auth.Keyring {
	t.Helper()
	k, err := auth.OpenKeyring(auth.KeyPath(home, 1), filepath.Join(home, "keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

func good(k *auth.Keyring, key auth.Key) bool {
	_, _, ok := k.Check(key.Reveal())
	return ok
}

func TestKeyringRotates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := open(t, t.TempDir())
		first := k.Key()
		if _, err := k.Rotate(time.Minute); err != nil {
			t.Fatal(err)
		}
		second := k.Key()
		if inFile, err := auth.Read(k.Path()); err != nil || !inFile.Matches(second.Reveal()) {
			t.Errorf("the file has another key: %v", err)
		}
		if !good(k, first) || !good(k, second) {
			t.Error("within the grace both keys are good")
		}
		<-time.After(59 * time.Second)
		if !good(k, first) {
			t.Error("the old key ended before its grace")
		}
		<-time.After(time.Second)
		synctest.Wait()
		if good(k, first) || !good(k, second) {
			t.Error("after the grace the new key alone is good")
		}
		for range 12 { // more than are kept
			if _, err := k.Rotate(time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		if good(k, second) {
			t.Error("the oldest of too many old keys is still good")
		}
		last := k.Key()
		if _, err := k.Rotate(0); err != nil {
			t.Fatal(err)
		}
		if good(k, last) || !good(k, k.Key()) {
			t.Error("without a grace the newest key alone is good")
		}
	})
}

// Scoped keys outlive the server, their hashes alone are kept, and the file is for
// its owner alone.
func TestKeyringKeepsScopedKeys(t *testing.T) {
	home := t.TempDir()
	k := open(t, home)
	read, made, err := k.Add(auth.Grant{Scope: auth.ScopeRead, Name: "dashboard"})
	if err != nil {
		t.Fatal(err)
	}
	agent, _, err := k.Add(auth.Grant{Scope: auth.ScopeAgent, AgentID: "a", Expires: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	wantMode(t, filepath.Join(home, "keys.json"), 0o600)
	text, err := os.ReadFile(filepath.Join(home, "keys.json"))
	if err != nil || strings.Contains(string(text), "nxk_") || strings.Contains(string(text), read.Reveal()[4:]) {
		t.Errorf("the file shows a key: %v", err)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	if _, valid, ok := k.Check(read.Reveal()); ok {
		t.Errorf("a closed keyring takes a key: %v", valid.Err())
	}

	again := open(t, home)
	if diff := cmp.Diff(k.List(), []auth.Grant(nil)); diff != "" {
		t.Errorf("keys of the closed one: %s", diff)
	}
	g, _, ok := again.Check(read.Reveal())
	if !ok || g.Scope != auth.ScopeRead || g.Name != "dashboard" || g.ID != made.ID || g.ID != read.ID() {
		t.Errorf("after a restart: %+v, %v", g, ok)
	}
	g, _, ok = again.Check(agent.Reveal())
	if !ok || g.Scope != auth.ScopeAgent || g.AgentID != "a" || g.Expires.IsZero() {
		t.Errorf("after a restart: %+v, %v", g, ok)
	}
	if ok, err := again.Revoke(made.ID); !ok || err != nil {
		t.Errorf("Revoke: %v, %v", ok, err)
	}
	if ok, err := again.Revoke(made.ID); ok || err != nil {
		t.Errorf("Revoke once more: %v, %v", ok, err)
	}
	if good(again, read) || !good(again, agent) {
		t.Error("the wrong key was revoked")
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if third := open(t, home); good(third, read) || !good(third, agent) {
		t.Error("a revoked key is good again after a restart")
	}
}

func TestKeyringIsBounded(t *testing.T) {
	k := open(t, t.TempDir())
	for range auth.MaxScoped {
		if _, _, err := k.Add(auth.Grant{Scope: auth.ScopeRead}); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := k.Add(auth.Grant{Scope: auth.ScopeRead}); !errors.Is(err, auth.ErrTooMany) {
		t.Errorf("one more: %v, want ErrTooMany", err)
	}
	if ok, err := k.Revoke(k.List()[0].ID); !ok || err != nil {
		t.Fatal(err)
	}
	if _, _, err := k.Add(auth.Grant{Scope: auth.ScopeRead}); err != nil {
		t.Errorf("in the place of a revoked one: %v", err)
	}
}

// A file that somebody else could have written, or that is damaged, gives nobody
// a key and lets no server start.
func TestKeyringRefusesItsFile(t *testing.T) {
	const hash = `"0000000000000000000000000000000000000000000000000000000000000000"`
	for name, test := range map[string]struct {
		text string
		mode os.FileMode
		say  string
	}{
		"others may write": {`{"keys":[]}`, 0o606, "chmod 600"},
		"others may read":  {`{"keys":[]}`, 0o604, "chmod 600"},
		"no JSON":          {`{"keys":`, 0o600, "keys.json"},
		"a full key":       {`{"keys":[{"sha256":` + hash + `,"scope":"full","created_at":"2026-01-01T00:00:00Z"}]}`, 0o600, "keys[0]"},
		"no scope":         {`{"keys":[{"sha256":` + hash + `,"created_at":"2026-01-01T00:00:00Z"}]}`, 0o600, "keys[0]"},
		"no agent":         {`{"keys":[{"sha256":` + hash + `,"scope":"agent","created_at":"2026-01-01T00:00:00Z"}]}`, 0o600, "keys[0]"},
		"more than known":  {`{"keys":[{"sha256":` + hash + `,"scope":"read","created_at":"2026-01-01T00:00:00Z","paths":["/"]}]}`, 0o600, "paths"},
		"no hash":          {`{"keys":[{"sha256":"","scope":"read","created_at":"2026-01-01T00:00:00Z"}]}`, 0o600, "keys[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			write(t, filepath.Join(home, "keys.json"), test.text, test.mode)
			_, err := auth.OpenKeyring(auth.KeyPath(home, 1), filepath.Join(home, "keys.json"))
			if err == nil || !strings.Contains(err.Error(), test.say) {
				t.Errorf("got %v, want an error that says %q", err, test.say)
			}
			if _, err := os.Stat(auth.KeyPath(home, 1)); err == nil {
				t.Error("a key file was left")
			}
		})
	}
}

// What proves a key is computed here by hand, as SPEC §6.5 says.
func TestProof(t *testing.T) {
	key, err := auth.Parse("nxk_test")
	if err != nil {
		t.Fatal(err)
	}
	const nonce, address = "0123456789abcdef", "127.0.0.1:8765"
	// v=$(printf nxk_test | sha256sum | cut -d' ' -f1)
	// printf 'nexus-proof-v1\n0123456789abcdef\n127.0.0.1:8765' | openssl dgst -sha256 -hmac $v -binary | base64
	// printf $v | sha256sum | cut -c1-12
	if got, want := key.Prove(nonce, address), "SJQ3T/ssL4qQPYO2SjwwLgd3wwFuc2dFqyk/zy6fcsU="; got != want {
		t.Errorf("proof %s, want %s", got, want)
	}
	if got, want := key.ID(), "fdc0c89d7dda"; got != want {
		t.Errorf("id %s, want %s", got, want)
	}
	// printf 'x' | openssl dgst -sha256 -hmac nxk_test -binary | base64
	if got, want := key.Sign("x"), "nZHCcS50j/qGUadwoG1P0eD5xj884oV0/5OxmetORcQ="; got != want {
		t.Errorf("signature %s, want %s", got, want)
	}
	if !key.Proves(nonce, address, key.Prove(nonce, address)) || key.Proves(nonce, address, "") || (auth.Key{}).Proves(nonce, address, auth.Key{}.Prove(nonce, address)) {
		t.Error("Proves is wrong")
	}
	if !key.Signed("x", key.Sign("x")) || key.Signed("x", key.Sign("y")) || key.Signed("x", "") || (auth.Key{}).Signed("x", auth.Key{}.Sign("x")) {
		t.Error("Signed is wrong")
	}
}

// A proof is of the key that was asked for, and of no other: without an id, of the full
// one.
func TestProofOfWhichKey(t *testing.T) {
	const nonce, address = "0123456789abcdef", "127.0.0.1:8765"
	k := open(t, t.TempDir())
	scoped, _, err := k.Add(auth.Grant{Scope: auth.ScopeRead})
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{
		"": k.Key().Prove(nonce, address), k.Key().ID(): k.Key().Prove(nonce, address), scoped.ID(): scoped.Prove(nonce, address),
		"000000000000": "", "x": "", k.Key().ID() + "0": "", k.Key().ID()[:11]: "", strings.ToUpper(scoped.ID()) + " ": "",
	} {
		if proof, ok := k.Prove(id, nonce, address); proof != want || ok != (want != "") {
			t.Errorf("key %q: %q, %v, want %q", id, proof, ok, want)
		}
	}
}

// A key that is taken ends at once where its file cannot be written, which is written
// as soon as that is possible, at the end at the latest.
func TestKeyringTakesWhatItCannotSave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		home := t.TempDir()
		k := open(t, home)
		records := filepath.Join(home, "keys.json")
		block := func(path string) {
			os.Remove(path)
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		wantUnsaved := func(err error) {
			t.Helper()
			if _, ok := errors.AsType[*auth.UnsavedError](err); !ok {
				t.Errorf("error %v, want an UnsavedError", err)
			}
		}
		var keys []auth.Key
		for range 3 {
			key, _, err := k.Add(auth.Grant{Scope: auth.ScopeRead})
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, key)
		}
		_, valid, _ := k.Check(keys[0].Reveal())
		full := k.Key()

		block(records)
		for range 2 { // again as long as it is not saved
			ok, err := k.Revoke(keys[0].ID())
			wantUnsaved(err)
			if !ok || good(k, keys[0]) || valid.Err() == nil || len(k.List()) != 2 {
				t.Errorf("after a revocation: %v, good %v, ended %v", ok, good(k, keys[0]), valid.Err())
			}
		}
		if _, _, err := k.Add(auth.Grant{Scope: auth.ScopeRead}); err == nil || len(k.List()) != 2 {
			t.Errorf("one more key: %v, %d", err, len(k.List()))
		}
		block(k.Path())
		_, err := k.Rotate(0)
		wantUnsaved(err)
		if good(k, full) || !good(k, k.Key()) {
			t.Error("after a rotation the full key before it is good, or the new one is not")
		}
		<-time.After(10 * time.Second) // nothing but time helps
		for _, path := range []string{records, k.Path()} {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if inFile, err := auth.Read(k.Path()); err != nil || !inFile.Matches(k.Key().Reveal()) {
			t.Errorf("the file has another key: %v", err)
		}
		if text, err := os.ReadFile(records); err != nil || strings.Count(string(text), "sha256") != 2 {
			t.Errorf("the scoped keys: %s, %v", text, err)
		}
		if ok, err := k.Revoke(keys[0].ID()); ok || err != nil {
			t.Errorf("Revoke once it is saved: %v, %v", ok, err)
		}

		block(records)
		_, err = k.Revoke(keys[1].ID())
		wantUnsaved(err)
		if err := os.Remove(records); err != nil {
			t.Fatal(err)
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(k.Path()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the full key's file is left: %v", err)
		}
		if again := open(t, home); good(again, keys[0]) || good(again, keys[1]) || !good(again, keys[2]) {
			t.Error("the next server takes a revoked key")
		}
	})
}

// What was opened with a full key ends when that is good no more: after its grace, when
// there are too many old ones, or when a rotation has no grace.
func TestKeyringEndsWhatItRotates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := open(t, t.TempDir())
		opened := func() context.Context {
			_, valid, ok := k.Check(k.Key().Reveal())
			if !ok {
				t.Fatal("the full key is not good")
			}
			return valid
		}
		rotate := func(grace time.Duration) {
			if _, err := k.Rotate(grace); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		graced := opened()
		rotate(time.Minute)
		if graced.Err() != nil {
			t.Error("it ended before the grace")
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if graced.Err() == nil {
			t.Error("it goes on after the grace")
		}
		oldest := opened()
		for n := range 9 {
			if oldest.Err() != nil {
				t.Errorf("it ended after %d rotations", n)
			}
			rotate(time.Hour)
		}
		if oldest.Err() == nil {
			t.Error("it goes on after the key that was the oldest of too many")
		}
		before := opened()
		rotate(time.Hour)
		last := opened()
		rotate(0)
		if before.Err() == nil || last.Err() == nil {
			t.Error("it goes on after a rotation without grace")
		}
	})
}

// The key files that came with a copy of a home open the server of the other home:
// the server of this one removes them.
func TestOtherKeyFilesAreRemoved(t *testing.T) {
	home := t.TempDir()
	for _, name := range []string{"server.key", "server-18412.key", "server-mine.key", "other-1.key"} {
		if err := os.WriteFile(filepath.Join(home, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k, err := auth.OpenKeyring(auth.KeyPath(home, 18413), filepath.Join(home, "keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	left, err := filepath.Glob(filepath.Join(home, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range left {
		left[i] = filepath.Base(path)
	}
	want := []string{"other-1.key", "server-18413.key", "server-mine.key"}
	if !slices.Equal(left, want) {
		t.Errorf("left: %v, want %v", left, want)
	}
}
