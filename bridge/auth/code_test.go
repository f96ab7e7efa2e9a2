package auth_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"nexus.internal/bridge/auth"
)

// A code is good once, for a minute, and no longer than the key that asked for it.
func TestCodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var codes auth.Codes
		valid, end := context.WithCancel(t.Context())
		made := codes.Make("k", valid)
		if codes.Use("") != "" || codes.Use(made+"x") != "" || codes.Use(made[:len(made)-1]) != "" {
			t.Error("another text is a code")
		}
		if codes.Use(made) != "k" {
			t.Error("a new code is not good")
		}
		if codes.Use(made) != "" {
			t.Error("a code is good twice")
		}
		late, punctual := codes.Make("k", valid), codes.Make("k", valid)
		<-time.After(auth.CodeLife - 1)
		if codes.Use(punctual) != "k" {
			t.Error("a code is not good for a minute")
		}
		<-time.After(1)
		if codes.Use(late) != "" {
			t.Error("a code is good after its minute")
		}
		of := codes.Make("k", valid)
		end()
		if codes.Use(of) != "" {
			t.Error("a code outlives the key that asked for it")
		}
	})
}

// More codes than there may be end the oldest.
func TestManyCodes(t *testing.T) {
	var codes auth.Codes
	var made []string
	for range auth.MaxCodes + 2 {
		made = append(made, codes.Make("k", t.Context()))
	}
	for i, code := range made {
		if got, want := codes.Use(code) != "", i >= 2; got != want {
			t.Errorf("code %d of %d is good: %v", i, len(made), got)
		}
	}
}
