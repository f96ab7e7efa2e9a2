package auth_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"nexus.internal/bridge/auth"
)

// A key of a later format is none here, and stays whatever is changed. Of a list of a later format no scoped key is good, nothing is changed, and the full key goes on: once
// the list can be read again, it holds.
func TestLaterKeys(t *testing.T) {
	homes := []string{home(t), home(t)}
	synctest.Test(t, func(t *testing.T) {
		c := newTogether()
		a := c.join(t, homes[0])
		synctest.Wait()
		read, _, err := a.Add(auth.Grant{Scope: auth.ScopeRead})
		if err != nil {
			t.Fatal(err)
		}
		const one = `{"format":2,"sha512":"ff","scope":"some"}`
		c.set(func() {
			c.text = bytes.Replace(c.text, []byte(`{"keys":[`), []byte(`{"keys":[`+one+`,`), 1)
			c.revision++
		})
		synctest.Wait()
		b := c.join(t, homes[1]) // which gives the cluster no full key
		<-time.After(5 * time.Second)
		_, made, err := a.Add(auth.Grant{Scope: auth.ScopeRead})
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := a.Revoke(made.ID); !ok || err != nil {
			t.Error(ok, err)
		}
		if _, err := a.Rotate(0); !errors.Is(err, auth.ErrNoMajority) || !strings.Contains(err.Error(), "a key has format 2, and this program reads 1: upgrade it") {
			t.Errorf("the full key, which may have a later format, was replaced: %v", err)
		}
		synctest.Wait()
		if !bytes.Contains(c.text, []byte(one)) || bytes.Count(c.text, []byte(`"full"`)) != 1 || len(a.List()) != 1 || a.good(read) != auth.ScopeRead || b.good(read) != auth.ScopeRead {
			t.Errorf("of a key of a later format became %s, and %+v are known", c.text, a.List())
		}

		before, list := c.text, []byte(`{"format":3,"keys":{}}`)
		c.set(func() { c.text = list; c.revision++ })
		<-time.After(5 * time.Second)
		if a.good(read) != "" || b.good(read) != "" || a.good(a.own) != auth.ScopeFull {
			t.Error("a scoped key goes on that may be revoked, or the full key ends")
		}
		_, _, added := a.Add(auth.Grant{Scope: auth.ScopeRead})
		_, rotated := a.Rotate(0)
		_, revoked := a.Revoke(made.ID)
		for what, err := range map[string]error{"why no key is known": a.Unknown(), "added": added, "rotated": rotated, "revoked": revoked} {
			if !errors.Is(err, auth.ErrNoMajority) || !strings.Contains(err.Error(), "the list of keys has format 3, and this program reads 1: upgrade it") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if !bytes.Equal(c.text, list) {
			t.Errorf("the list became %s", c.text)
		}
		want := []string{"a key has format 2, and this program reads 1: upgrade it", "the list of keys has format 3, and this program reads 1: upgrade it"}
		if got := c.later.Warnings(); !slices.Equal(got, want) {
			t.Errorf("warnings: %q", got)
		}
		c.set(func() { c.text = before; c.revision++ })
		<-time.After(5 * time.Second)
		if a.good(read) != auth.ScopeRead || a.Unknown() != nil {
			t.Error("a list that can be read again does not hold")
		}
	})
}

// Where the full key has a later format, a machine that does not read it makes the cluster no other one. Its own is good there.
func TestLaterFullKey(t *testing.T) {
	dir := home(t)
	synctest.Test(t, func(t *testing.T) {
		c := newTogether()
		const list = `{"keys":[{"format":2,"scope":"full"}]}`
		c.text, c.revision = []byte(list), 1
		a := c.join(t, dir)
		<-time.After(5 * time.Second)
		if string(c.text) != list || a.good(a.own) != auth.ScopeFull {
			t.Errorf("the list became %s", c.text)
		}
	})
}
