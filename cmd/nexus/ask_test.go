package main_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// askSocket is what a tool would try: it asks for the agent's model at its
// socket.
func askSocket(path string, stdout io.Writer) int {
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
	res, err := client.Post("http://broker/vendor/chat/completions", "application/json", strings.NewReader(`{"messages":[]}`))
	if err != nil {
		fmt.Fprintln(stdout, "no:", err)
		return 1
	}
	defer res.Body.Close()
	fmt.Fprintln(stdout, "asked the model and got", res.StatusCode)
	_, _ = io.Copy(stdout, res.Body)
	return 0
}
