package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// roleArg as the first argument makes this program play the bare HTTP server.
const roleArg = "-role"

// play is told [what, path of the bare process, how many of them].
func play(args []string) int {
	err := errors.New("usage: http|parent PROGRAM N")
	switch {
	case len(args) == 3 && args[0] == "http":
		err = playHTTP(args[1], args[2])
	case len(args) == 3 && args[0] == "parent":
		err = playParent(args[1], args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "nexus-bench "+roleArg+":", err)
		return 1
	}
	return 0
}

// playHTTP is the least server that could do a send: path /N passes the body
// to the Nth of some echo processes. A GET of /N is answered with N bytes. It prints its address and ends with its
// stdin.
func playHTTP(program, count string) error {
	echoes, stop, err := startEchoes(program, count, nil)
	if err != nil {
		return err
	}
	defer stop()
	n := len(echoes)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i, err := strconv.Atoi(r.URL.Path[1:])
		if err == nil && r.Method == http.MethodGet {
			_, _ = w.Write(make([]byte, max(i, 0)))
			return
		}
		if err != nil || i < 0 || i >= n {
			http.NotFound(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		answer, err := echoes[i].call(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer) // a client that is gone is its own loss
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	fmt.Fprintln(os.Stdout, "http://"+listener.Addr().String())
	_, err = io.Copy(io.Discard, os.Stdin)
	_ = server.Close()
	serving.Wait()
	return err
}

// startEchoes starts some echo processes. stop ends them and waits for them.
func startEchoes(program, count string, attr *syscall.SysProcAttr) (echoes []*echo, stop func(), err error) {
	n, err := strconv.Atoi(count)
	if err != nil {
		return nil, nil, err
	}
	stop = func() {
		for _, e := range echoes {
			e.close()
		}
	}
	for range n {
		cmd := exec.CommandContext(context.Background(), program, "echo")
		cmd.SysProcAttr = attr
		e, err := startEcho(cmd)
		if err != nil {
			stop()
			return nil, nil, err
		}
		echoes = append(echoes, e)
	}
	return echoes, stop, nil
}

// echoBody is about what a one-word send is on the wire.
const echoBody = `{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"echo pong"}}`

// httpEcho is the running HTTP floor.
type httpEcho struct {
	process *echo
	url     string
	client  *http.Client
}

func (b *bench) startHTTPEcho(ctx context.Context) (*httpEcho, error) {
	process, err := startEcho(exec.CommandContext(ctx, b.self, roleArg, "http", b.floor(), strconv.Itoa(rateAgents)))
	if err != nil {
		return nil, err
	}
	return &httpEcho{process: process, url: strings.TrimSpace(process.first), client: newClient()}, nil
}

func (h *httpEcho) post(ctx context.Context, i int) error {
	_, err := post(ctx, h.client, h.url+"/"+strconv.Itoa(i), "", echoBody)
	return err
}

func (h *httpEcho) close() {
	h.client.CloseIdleConnections()
	h.process.close()
}

// newClient keeps enough connections alive for every figure.
func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
}

// post sends JSON and returns the answer.
func post(ctx context.Context, client *http.Client, url, key, body string) ([]byte, error) {
	answer, err := ask(ctx, client, http.MethodPost, url, key, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	return io.ReadAll(answer)
}

// get is the text at an address.
func get(ctx context.Context, client *http.Client, url, key string) (string, error) {
	answer, err := ask(ctx, client, http.MethodGet, url, key, nil)
	if err != nil {
		return "", err
	}
	defer answer.Close()
	text, err := io.ReadAll(answer)
	return string(text), err
}

// ask returns the body of an answer, which the caller must close. It fails on any status
// but 200.
func ask(ctx context.Context, client *http.Client, method, url, key string, body io.Reader) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(res.Body) // it only adds to the error
		return nil, errors.Join(fmt.Errorf("%s: %s", res.Status, text), res.Body.Close())
	}
	return res.Body, nil
}
