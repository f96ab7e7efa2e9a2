package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/rpc"
)

// runs begins the path of the record of a run at another machine, which the run's id ends. Clients do not reach it.
const runs = "/runs/"

// Run is the id of the run whose record the path of another machine's request is for; ok is false for another path.
func Run(path string) (id string, ok bool) { return strings.CutPrefix(path, runs) }

// GiveRun implements [plan.Others].
func (f *Client) GiveRun(ctx context.Context, machine, run string, record io.Reader) error {
	_, err := f.askRun(ctx, http.MethodPost, machine, run, errand{asked: "agents"}, record)
	return err
}

// RunDigest implements [plan.Others].
func (f *Client) RunDigest(ctx context.Context, machine, run string) (string, error) {
	return f.askRun(ctx, http.MethodGet, machine, run, errand{asked: "run"}, http.NoBody)
}

// askRun asks a machine for something with the record of a run, for this machine itself, and returns what it says.
func (f *Client) askRun(ctx context.Context, method, machine, run string, of errand, body io.Reader) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, runPatience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+machine+runs+run, body)
	if err != nil {
		return "", fmt.Errorf("ask for a run: %w", err)
	}
	f.sign(r, rpc.Principal{Grant: auth.Grant{ID: "machine " + f.machines.Self()}}, "")
	response, err := f.ask(ctx, machine, of, r)
	if err != nil {
		if ctx.Err() != nil {
			err = unreachable(machine, of, err)
		}
		return "", err
	}
	defer response.Body.Close()
	text, err := readAll(response.Body)
	if err != nil {
		return "", unreachable(machine, of, err)
	}
	if response.StatusCode == http.StatusOK && response.Header.Get("Content-Type") == "text/plain" {
		return string(text), nil
	}
	if response.StatusCode == http.StatusNotFound {
		return "", unreachable(machine, of, errors.New("its program is an earlier one, which knows nothing of the runs of others: upgrade it"))
	}
	if _, err = decode(machine, of, response.StatusCode, text); err == nil {
		err = unreachable(machine, of, fmt.Errorf("it answers with HTTP %d", response.StatusCode))
	}
	return "", err
}
