package acp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"nexus.internal/child/foreign/rpcpeer"
	"nexus.internal/protocol/textcut"
)

const (
	// codeLogin is the protocol's code of an error that means that nobody is logged in.
	codeLogin = -32000
	// loginTimeout bounds one attempt to log in without a person.
	loginTimeout = 10 * time.Second
)

// wantsLogin reports whether an error means that nobody is logged in.
func wantsLogin(err error) bool {
	e, ok := errors.AsType[*rpcpeer.Error](err)
	return ok && e.Code == codeLogin
}

// keyed reports whether a method is called as those are that take a key out of the environment. The
// protocol has no other sign of what needs no person: the others may open a browser.
func keyed(name string) bool {
	name = strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(name))
	for _, word := range []string{"apikey", "accesskey", "vertex", "gateway"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// logIn logs in by the methods that need no person, one after the other, until again works. why is the
// program's error.
func (s *session) logIn(ctx context.Context, methods gjson.Result, why error, again func() error) error {
	var names, refusals []string
	for _, m := range methods.Array() {
		id, name := m.Get("id").Str, m.Get("name").Str
		names = append(names, fmt.Sprintf("%s (%s)", id, name))
		kind := m.Get("type").Str
		if kind == "terminal" || (kind != "env_var" && !keyed(id) && !keyed(name)) {
			continue
		}
		err := s.authenticate(ctx, id)
		if err == nil { // some take any key, and find out later
			if err = again(); !wantsLogin(err) {
				return err
			}
		}
		refusals = append(refusals, id+": "+err.Error())
	}
	text := "the program wants a login: log in with it by hand and give the agent the home of that login, or name the variable of its key"
	if len(names) > 0 {
		text += "; its ways to log in: " + strings.Join(names, ", ")
	}
	if len(refusals) > 0 {
		text += "; tried: " + strings.Join(refusals, "; ")
	}
	return fmt.Errorf("%s: %w", textcut.Clip(text, 2<<10), why)
}

func (s *session) authenticate(ctx context.Context, method string) error {
	ctx, cancel := context.WithTimeout(ctx, loginTimeout)
	defer cancel()
	_, err := s.peer.Call(ctx, "authenticate", struct {
		Method string `json:"methodId"`
	}{method})
	return err
}
