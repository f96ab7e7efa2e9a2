package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// idleConnections is what a kept connection costs a server in memory (PSS), that has had
// one answer and says nothing more: beside the same of the bare HTTP server.
func (b *bench) idleConnections(ctx context.Context, s *server) ([]row, error) {
	floor, err := b.startHTTPEcho(ctx)
	if err != nil {
		return nil, err
	}
	defer floor.close()
	bare, err := idleCost(floor.process.cmd.Process.Pid, b.size.idle, floor.url, "POST /0", "")
	if err != nil {
		return nil, fmt.Errorf("bare server: %w", err)
	}
	ours, err := idleCost(s.cmd.Process.Pid, b.size.idle, s.url, "POST /rpc", s.key)
	if err != nil {
		return nil, err
	}
	return []row{{"idle connection, the server's memory", ours, bare, "idle connection, bare", size, ratioAtMost(1.5)}}, nil
}

// idleCost opens n connections, asks once by each, and returns by how many bytes for each
// of them the process has grown by then.
func idleCost(pid, n int, url, line, key string) (each float64, err error) {
	address := strings.TrimPrefix(url, "http://")
	const body = `{"jsonrpc":"2.0","id":1,"method":"list_agents"}`
	request := fmt.Sprintf("%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", line, address, key, len(body), body)
	var open []net.Conn
	defer func() {
		for _, conn := range open {
			err = errors.Join(err, conn.Close())
		}
	}()
	ask := func() error {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		open = append(open, conn)
		if _, err := io.WriteString(conn, request); err != nil {
			return err
		}
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, response.Body)
		err = errors.Join(err, response.Body.Close())
		if err == nil && response.StatusCode != http.StatusOK {
			err = errors.New(response.Status)
		}
		return err
	}
	for range 50 { // what the first ones cost is the server's and not theirs
		if err := ask(); err != nil {
			return 0, err
		}
	}
	before, err := pss(pid)
	if err != nil {
		return 0, err
	}
	for range n {
		if err := ask(); err != nil {
			return 0, fmt.Errorf("after %d connections: %w", len(open), err)
		}
	}
	after, err := pss(pid)
	return float64(after-before) / float64(n), err
}
