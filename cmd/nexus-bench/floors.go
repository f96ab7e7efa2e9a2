package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// floors are the figures of the machine itself.
type floors struct {
	pipe     time.Duration // one line to an echo process and back, p50
	http     time.Duration // the same through a net/http handler, p50
	httpRate float64       // such requests a second with 16 clients and 16 processes
	spawn    time.Duration // fork and exec until the first line, p50
	lines    float64       // lines a second split off a pipe, each one write
	bulk     float64       // the same, 500 lines in each write
	sync     time.Duration // one append with fdatasync, p50
}

func measureFloors(ctx context.Context, self, dir string, o options) (f floors, err error) {
	if f.pipe, err = floorPipe(ctx, self, o.sends); err != nil {
		return f, fmt.Errorf("pipe echo: %w", err)
	}
	if f.http, f.httpRate, err = floorHTTP(ctx, self, o.sends); err != nil {
		return f, fmt.Errorf("http echo: %w", err)
	}
	if f.spawn, err = floorSpawn(ctx, self, o.spawns); err != nil {
		return f, fmt.Errorf("spawn: %w", err)
	}
	if f.lines, err = floorLines(ctx, self, o.lines*2, 1); err != nil {
		return f, fmt.Errorf("pipe lines: %w", err)
	}
	if f.bulk, err = floorLines(ctx, self, o.lines*20, 500); err != nil {
		return f, fmt.Errorf("pipe lines in bulk: %w", err)
	}
	if f.sync, err = floorSync(ctx, dir, o.sends/3); err != nil {
		return f, fmt.Errorf("append and fdatasync: %w", err)
	}
	return f, nil
}

// echoBody is about what a one-word send is on the wire.
const echoBody = `{"jsonrpc":"2.0","method":"send","params":{"content":"ping"},"id":1}`

func floorPipe(ctx context.Context, self string, n int) (time.Duration, error) {
	e, err := startEcho(ctx, self)
	if err != nil {
		return 0, err
	}
	defer e.close()
	return p50(ctx, n, func() error {
		_, err := e.call([]byte(echoBody))
		return err
	})
}

func floorHTTP(ctx context.Context, self string, n int) (time.Duration, float64, error) {
	cmd := exec.CommandContext(ctx, self, roleArg, "http", strconv.Itoa(rateAgents))
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	defer func() { _ = cmd.Wait() }() // after its stdin, which it ends with
	defer in.Close()
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return 0, 0, err
	}
	base := "http://" + address[:len(address)-1]
	post := poster(rateAgents)
	latency, err := p50(ctx, n, func() error { return post(ctx, base+"/0", "", echoBody) })
	if err != nil {
		return 0, 0, err
	}
	rate, err := perSecond(ctx, rateAgents, 4*n/rateAgents, func(worker int) error {
		return post(ctx, base+"/"+strconv.Itoa(worker), "", echoBody)
	})
	return latency, rate, err
}

func floorSpawn(ctx context.Context, self string, n int) (time.Duration, error) {
	var running []*echo
	defer func() {
		for _, e := range running {
			e.close()
		}
	}()
	return p50(ctx, n, func() error {
		e, err := startEcho(ctx, self)
		if err == nil {
			running = append(running, e)
		}
		return err
	})
}

func floorLines(ctx context.Context, self string, n, each int) (float64, error) {
	cmd := exec.CommandContext(ctx, self, roleArg, "flood", strconv.Itoa(n), strconv.Itoa(each))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer func() { _ = cmd.Wait() }() // all that counts was read by then
	reader := bufio.NewReaderSize(out, 64<<10)
	if _, err := reader.ReadSlice('\n'); err != nil { // the start is not counted
		return 0, err
	}
	began, count := time.Now(), 0
	for {
		if _, err := reader.ReadSlice('\n'); err != nil {
			return float64(count) / time.Since(began).Seconds(), ignoreEOF(err)
		}
		count++
	}
}

func floorSync(ctx context.Context, dir string, n int) (time.Duration, error) {
	file, err := os.OpenFile(filepath.Join(dir, "append"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	record := append(bytes.Repeat([]byte("x"), 255), '\n')
	return p50(ctx, n, func() error {
		if _, err := file.Write(record); err != nil {
			return err
		}
		return fdatasync(file)
	})
}

// poster returns a function that posts JSON over kept-alive connections, at
// most conns of them, and fails on any status but 200.
func poster(conns int) func(ctx context.Context, url, key, body string) error {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: conns}}
	return func(ctx context.Context, url, key, body string) error {
		_, err := call(ctx, client, url, key, body)
		return err
	}
}

func call(ctx context.Context, client *http.Client, url, key, body string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader([]byte(body)))
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
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, answer)
	}
	return answer, err
}
